/* SPDX-License-Identifier: BSD-2-Clause */
/* Structures that keep all timeouts in order: sorted list, binary heap, skip list. */
#include "structures.h"

#include <stdlib.h>

static void destroy_plain(void *self)
{
    free(self);
}

/* ---- sorted list, searched from the front (Varghese and Lauck, scheme 2) ---- */
struct list {
    struct item head; /* before the first and after the last */
};

static void *list_create(uint64_t capacity)
{
    struct list *list = bench_alloc(sizeof(*list));

    (void)capacity;
    list->head.deadline = UINT64_MAX;
    list->head.next = &list->head;
    list->head.prev = &list->head;
    return list;
}

static void list_put_before(struct item *at, struct item *item)
{
    item->next = at;
    item->prev = at->prev;
    at->prev->next = item;
    at->prev = item;
}

static void list_insert(void *self, struct item *item)
{
    struct list *list = self;
    struct item *at = list->head.next;

    while (at->deadline <= item->deadline && at != &list->head)
        at = at->next;
    list_put_before(at, item);
}

static void list_cancel(void *self, struct item *item)
{
    (void)self;
    item->next->prev = item->prev;
    item->prev->next = item->next;
}

static void list_fill(void *self, struct item **sorted, uint64_t n)
{
    struct list *list = self;

    for (uint64_t i = 0; i < n; i++)
        list_put_before(&list->head, sorted[i]);
}

static uint64_t list_next(void *self)
{
    return ((struct list *)self)->head.next->deadline;
}

static uint64_t list_expire(void *self, uint64_t now)
{
    struct list *list = self;
    uint64_t n = 0;

    for (; list->head.next->deadline <= now; n++)
        list_cancel(self, list->head.next);
    return n;
}

const struct structure sorted_list = {
    "sorted list", "n",         "1",         "1",       list_create, destroy_plain,
    list_fill,     list_insert, list_cancel, list_next, list_expire,
};

/* ---- binary heap whose items know where they are ---- */
struct heap {
    uint64_t n;
    struct item *items[];
};

static void *heap_create(uint64_t capacity)
{
    return bench_alloc(sizeof(struct heap) + capacity * sizeof(struct item *));
}

static void heap_put(struct heap *heap, uint64_t at, struct item *item)
{
    heap->items[at] = item;
    item->index = at;
}

static void heap_up(struct heap *heap, uint64_t at, struct item *item)
{
    while (at > 0 && heap->items[(at - 1) / 2]->deadline > item->deadline) {
        heap_put(heap, at, heap->items[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(heap, at, item);
}

static void heap_down(struct heap *heap, uint64_t at, struct item *item)
{
    uint64_t child;

    while ((child = 2 * at + 1) < heap->n) {
        if (child + 1 < heap->n && heap->items[child + 1]->deadline < heap->items[child]->deadline)
            child++;
        if (heap->items[child]->deadline >= item->deadline)
            break;
        heap_put(heap, at, heap->items[child]);
        at = child;
    }
    heap_put(heap, at, item);
}

static void heap_insert(void *self, struct item *item)
{
    struct heap *heap = self;

    heap_up(heap, heap->n++, item);
}

static void heap_cancel(void *self, struct item *item)
{
    struct heap *heap = self;
    struct item *last = heap->items[--heap->n];
    uint64_t at = item->index;

    if (last == item)
        return;
    if (at > 0 && heap->items[(at - 1) / 2]->deadline > last->deadline)
        heap_up(heap, at, last);
    else
        heap_down(heap, at, last);
}

static uint64_t heap_next(void *self)
{
    const struct heap *heap = self;

    return heap->n ? heap->items[0]->deadline : UINT64_MAX;
}

static uint64_t heap_expire(void *self, uint64_t now)
{
    struct heap *heap = self;
    uint64_t n = 0;

    for (; heap_next(heap) <= now; n++)
        heap_cancel(heap, heap->items[0]);
    return n;
}

const struct structure binary_heap = {
    "binary heap", "log n",     "log n",     "log n",   heap_create, destroy_plain,
    NULL,          heap_insert, heap_cancel, heap_next, heap_expire,
};

/* ---- skip list: one in four goes up a level ---- */
#define LEVELS 16

struct skip {
    uint64_t seed;
    struct item head;
    struct item *first[LEVELS];
    struct item **arena; /* the levels above the lowest of every item, handed out once */
    uint64_t used, room;
};

static void *skip_create(uint64_t capacity)
{
    struct skip *skip = bench_alloc(sizeof(*skip));

    skip->seed = 1;
    skip->room = capacity + 1024; /* a third of it is used on the average */
    skip->arena = bench_alloc(skip->room * sizeof(*skip->arena));
    skip->head.forward = skip->first;
    skip->head.levels = LEVELS;
    return skip;
}

static void skip_destroy(void *self)
{
    struct skip *skip = self;

    free(skip->arena);
    free(skip);
}

/* An item that comes again keeps the height that it was given first. */
static void skip_grow(struct skip *skip, struct item *item)
{
    uint64_t coins = rng_next(&skip->seed);

    if (item->levels)
        return;
    for (item->levels = 1; item->levels < LEVELS && (coins & 3) == 0; coins >>= 2)
        item->levels++;
    if (skip->used + item->levels > skip->room)
        item->levels = 1;
    item->forward = skip->arena + skip->used;
    skip->used += item->levels - 1;
}

/* Level 0 is `next`, where a search ends in the line that it has just compared. */
static struct item **skip_link(struct item *item, unsigned level)
{
    return level == 0 ? &item->next : &item->forward[level - 1];
}

static bool skip_before(const struct item *a, const struct item *b)
{
    return a->deadline != b->deadline ? a->deadline < b->deadline : a < b;
}

static void skip_search(struct skip *skip, const struct item *item, struct item **before)
{
    struct item *at = &skip->head;

    for (unsigned level = LEVELS; level-- > 0;) {
        while (*skip_link(at, level) && skip_before(*skip_link(at, level), item))
            at = *skip_link(at, level);
        before[level] = at;
    }
}

static void skip_insert(void *self, struct item *item)
{
    struct skip *skip = self;
    struct item *before[LEVELS];

    skip_grow(skip, item);
    skip_search(skip, item, before);
    for (unsigned level = 0; level < item->levels; level++) {
        *skip_link(item, level) = *skip_link(before[level], level);
        *skip_link(before[level], level) = item;
    }
}

static void skip_cancel(void *self, struct item *item)
{
    struct item *before[LEVELS];

    skip_search(self, item, before);
    for (unsigned level = 0; level < item->levels; level++)
        *skip_link(before[level], level) = *skip_link(item, level);
}

static uint64_t skip_next(void *self)
{
    const struct skip *skip = self;

    return skip->head.next ? skip->head.next->deadline : UINT64_MAX;
}

/* The first item is the first of every level that it has. */
static uint64_t skip_expire(void *self, uint64_t now)
{
    struct skip *skip = self;
    uint64_t n = 0;

    for (; skip_next(skip) <= now; n++) {
        struct item *item = skip->head.next;

        for (unsigned level = 0; level < item->levels; level++)
            *skip_link(&skip->head, level) = *skip_link(item, level);
    }
    return n;
}

const struct structure skip_list = {
    "skip list", "log n",     "log n",     "1",       skip_create, skip_destroy,
    NULL,        skip_insert, skip_cancel, skip_next, skip_expire,
};

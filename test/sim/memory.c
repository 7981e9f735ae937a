/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory as the library sees it: what the compiler's marks call, store buffers, and the books that
 * tell a data race (vector clocks, as in FastTrack) or an access to what is free.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"
#include "tls.h"

/* ---- where everything lies ---- */

#define ARENA      ((uintptr_t)0xc0000000) /* within the library's PLATFORM_ADDRESS_BITS */
#define ARENA_SIZE ((size_t)8 << 20)
#define BLOCK      64
#define WORD_BYTES 8 /* the word too is the owner's, but the pool and its slabs may look at it */

/* The library's own variables: the sections are renamed so that the linker tells where they are. */
extern char __start_hwt_data[] __attribute__((weak)), __stop_hwt_data[] __attribute__((weak));
extern char __start_hwt_bss[] __attribute__((weak)), __stop_hwt_bss[] __attribute__((weak));
/* The text of depot.c, pool*.c, slab*.c, who alone may touch the words of blocks that are free. */
extern char __start_hwt_pool[], __stop_hwt_pool[];
/* That of those who may read the word of what has left its slot (sim.mk). */
extern char __start_hwt_peek[], __stop_hwt_peek[];
/* That of poison.c, which looks at whatever there is. */
extern char __start_hwt_debug[], __stop_hwt_debug[];

static char *first_data; /* as it was when main began */
size_t memory_used;
long memory_blocks_alive;

/* ---- the books: a cell for 8 bytes, in parts where smaller things are ---- */

/*
 * When each thread last read or wrote, plainly or atomically. A time is a clock of that thread;
 * clocks go on from history to history, so that old ones are always before.
 */
struct cell {
    uint32_t plain_write[SIM_THREADS], plain_read[SIM_THREADS];
    uint32_t atomic_write[SIM_THREADS], atomic_read[SIM_THREADS];
    uint32_t sync[SIM_THREADS]; /* what whoever acquires from here comes to know ... */
    uint32_t epoch;             /* ... in this history */
    uint32_t last;              /* whoever was here last: the history and the thread ... */
    uint8_t looked;             /* ... and what he has looked at since he came: his times aside */
    uint8_t users;              /* exhaustive: threads that were here atomically, in any history */
    struct cell *part;          /* 2 of 4 bytes each, and those of 1 byte */
};

static struct cell *arena_cell, *data_cell, *bss_cell;
static bool poisoned[ARENA_SIZE / 8], touched[ARENA_SIZE / 64], unmapped[ARENA_SIZE / 64];
static uint32_t epoch, clock_base;

static struct cell *cell_of(uintptr_t address)
{
    if (address - ARENA < ARENA_SIZE)
        return &arena_cell[(address - ARENA) / 8];
    if (address - (uintptr_t)__start_hwt_bss < (size_t)(__stop_hwt_bss - __start_hwt_bss))
        return &bss_cell[(address - (uintptr_t)__start_hwt_bss) / 8];
    if (address - (uintptr_t)__start_hwt_data < (size_t)(__stop_hwt_data - __start_hwt_data))
        return &data_cell[(address - (uintptr_t)__start_hwt_data) / 8];
    return NULL; /* a stack, a constant, the world's */
}

static void *map_cells(size_t bytes)
{
    void *cells = mmap(NULL, (bytes / 8 + 1) * sizeof(struct cell), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells == MAP_FAILED)
        abort();
    return cells;
}

void memory_set_up(void)
{
    size_t size = (size_t)(__stop_hwt_data - __start_hwt_data);
    void *arena = mmap((void *)ARENA, ARENA_SIZE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);

    if (arena != (void *)ARENA) {
        fprintf(stderr, "the simulator's addresses are taken\n");
        exit(77);
    }
    arena_cell = map_cells(ARENA_SIZE);
    bss_cell = map_cells((size_t)(__stop_hwt_bss - __start_hwt_bss));
    data_cell = map_cells(size);
    first_data = malloc(size + 1);
    if (!first_data)
        abort();
    memcpy(first_data, __start_hwt_data, size);
    clock_base = 1;
}

static uint32_t last_clock; /* of the history before */

void memory_reset(void)
{
    memcpy(__start_hwt_data, first_data, (size_t)(__stop_hwt_data - __start_hwt_data));
    memset(__start_hwt_bss, 0, (size_t)(__stop_hwt_bss - __start_hwt_bss));
    memset((void *)ARENA, 0, memory_used);
    memset(poisoned, 0, memory_used / 8 + 1);
    memset(touched, 0, memory_used / 64 + 1);
    memset(unmapped, 0, memory_used / 64 + 1);
    memory_used = 0;
    memory_blocks_alive = 0;
    epoch++;
    clock_base = last_clock + 1;
    if (clock_base > UINT32_MAX / 2) { /* once in a billion releases */
        madvise(arena_cell, ARENA_SIZE / 8 * sizeof *arena_cell, MADV_DONTNEED);
        memset(bss_cell, 0, (size_t)(__stop_hwt_bss - __start_hwt_bss) / 8 * sizeof *bss_cell);
        memset(data_cell, 0, (size_t)(__stop_hwt_data - __start_hwt_data) / 8 * sizeof *data_cell);
        clock_base = 1;
    }
    last_clock = clock_base;
}

/* ---- clocks ---- */

static void join(uint32_t *into, const uint32_t *from)
{
    for (unsigned i = 0; i < SIM_THREADS; i++) {
        if (from[i] > into[i])
            into[i] = from[i];
    }
}

static void split(struct cell *cell, unsigned size)
{
    unsigned parts = size == 8 ? 2 : 4;

    cell->part = malloc(parts * sizeof *cell);
    if (!cell->part)
        abort();
    for (unsigned i = 0; i < parts; i++) {
        cell->part[i] = *cell;
        cell->part[i].part = NULL;
    }
}

/* Of just these bytes: 8, 4 or 1 of them, where such can be. */
static struct cell *leaf_of(uintptr_t address, unsigned size)
{
    struct cell *cell = cell_of(address);

    if (!cell || size == 8)
        return cell;
    if (!cell->part)
        split(cell, 8);
    cell = &cell->part[(address & 7) / 4];
    if (size == 4)
        return cell;
    if (!cell->part)
        split(cell, 4);
    return &cell->part[address & 3];
}

static uint32_t *sync_of(struct cell *cell)
{
    if (cell->epoch != epoch) {
        memset(cell->sync, 0, sizeof cell->sync);
        cell->epoch = epoch;
    }
    return cell->sync;
}

static void tick(struct sim_thread *me)
{
    if (++me->clock[me->index] > last_clock)
        last_clock = me->clock[me->index];
}

void memory_release(uintptr_t address)
{
    struct cell *cell = cell_of(address);

    if (!sim_current || !cell)
        return;
    join(sync_of(cell), sim_current->clock);
    tick(sim_current);
}

void memory_acquire(uintptr_t address)
{
    struct cell *cell = cell_of(address);

    if (sim_current && cell)
        join(sim_current->clock, sync_of(cell));
}

void memory_fork_clock(struct sim_thread *child)
{
    for (unsigned i = 0; i < SIM_THREADS; i++)
        child->clock[i] = sim_current ? sim_current->clock[i] : clock_base;
    child->clock[child->index] = ++last_clock;
    if (sim_current)
        tick(sim_current);
}

void memory_join_clock(const struct sim_thread *ended)
{
    join(sim_current->clock, ended->clock);
}

/* ---- races ---- */

static const char *what_is(bool write, bool atomic)
{
    return atomic ? (write ? "atomic write" : "atomic read") : (write ? "write" : "read");
}

static void race(uintptr_t address, bool write, bool atomic, unsigned other, bool other_write,
                 bool other_atomic) __attribute__((noreturn));
static void race(uintptr_t address, bool write, bool atomic, unsigned other, bool other_write,
                 bool other_atomic)
{
    char name[96] = "";

    if (trace_name_of)
        trace_name_of(address, name, sizeof name);
    sim_fail("data race: %s of %s (%#jx) by thread %u, beside a %s of thread %u",
             what_is(write, atomic), name, (uintmax_t)address, sim_current->index,
             what_is(other_write, other_atomic), other);
}

static void look(const uint32_t *seen, uintptr_t address, bool write, bool atomic, bool other_write,
                 bool other_atomic)
{
    const uint32_t *clock = sim_current->clock;
    unsigned later = 0;

    for (unsigned i = 0; i < SIM_THREADS; i++)
        later |= seen[i] > clock[i];
    for (unsigned i = 0; later && i < SIM_THREADS; i++) {
        if (seen[i] > clock[i])
            race(address, write, atomic, i, other_write, other_atomic);
    }
}

enum { PLAIN_WRITES = 1, PLAIN_READS = 2, ATOMIC_WRITES = 4, ATOMIC_READS = 8 };

static bool lies_in(uintptr_t pc, const char *start, const char *stop)
{
    return pc - (uintptr_t)start < (size_t)(stop - start);
}

static void check_poison(uintptr_t address, bool reads_word, uintptr_t pc)
{
    if (!lies_in(pc, __start_hwt_pool, __stop_hwt_pool) &&
        !(reads_word && lies_in(pc, __start_hwt_peek, __stop_hwt_peek))) {
        char name[96] = "";
        if (trace_name_of)
            trace_name_of(address, name, sizeof name);
        sim_fail("use of free memory: %s (%#jx) by thread %u", name, (uintmax_t)address,
                 sim_current->index);
    }
}

static void access_leaf(struct cell *cell, uintptr_t address, bool write, bool atomic)
{
    unsigned me = sim_current->index;
    uint32_t now = sim_current->clock[me];

    unsigned todo = PLAIN_WRITES | (write ? PLAIN_READS : 0u) | (atomic ? 0u : ATOMIC_WRITES) |
                    (write && !atomic ? ATOMIC_READS : 0u);

    if (cell->last != (epoch << 3 | me)) {
        cell->last = epoch << 3 | me;
        cell->looked = 0;
    }
    todo &= ~(unsigned)cell->looked;
    if (todo) {
        if (todo & PLAIN_WRITES)
            look(cell->plain_write, address, write, atomic, true, false);
        if (todo & PLAIN_READS)
            look(cell->plain_read, address, write, atomic, false, false);
        if (todo & ATOMIC_WRITES)
            look(cell->atomic_write, address, write, atomic, true, true);
        if (todo & ATOMIC_READS)
            look(cell->atomic_read, address, write, atomic, false, true);
        cell->looked |= (uint8_t)todo;
    }
    if (!atomic) {
        (write ? cell->plain_write : cell->plain_read)[me] = now;
    } else {
        (write ? cell->atomic_write : cell->atomic_read)[me] = now;
        cell->users |= (uint8_t)(1u << me);
    }
}

/* `count` bytes from `from` on, of a cell of `size`. */
static void access_cell(struct cell *cell, unsigned size, unsigned from, unsigned count,
                        uintptr_t address, bool write, bool atomic)
{
    unsigned part = size == 8 ? 4 : 1;

    if (count == size && !cell->part) {
        access_leaf(cell, address, write, atomic);
        return;
    }
    if (!cell->part)
        split(cell, size);
    for (unsigned i = from / part; i <= (from + count - 1) / part; i++) {
        unsigned begin = i * part > from ? i * part : from;
        unsigned end = (i + 1) * part < from + count ? (i + 1) * part : from + count;
        access_cell(&cell->part[i], part, begin - i * part, end - begin, address, write, atomic);
    }
}

static void access_range(uintptr_t address, size_t size, bool write, bool atomic, uintptr_t pc)
{
    struct cell *cell = sim_current ? cell_of(address) : NULL;

    if (!cell || pc - (uintptr_t)__start_hwt_debug < (size_t)(__stop_hwt_debug - __start_hwt_debug))
        return;
    while (size > 0) {
        unsigned from = address & 7, count = size < 8 - from ? (unsigned)size : 8 - from;
        if (address - ARENA < ARENA_SIZE) {
            touched[(address - ARENA) / 64] = true;
            if (unmapped[(address - ARENA) / 64])
                sim_fail("use of memory that was unmapped: %#jx by thread %u", (uintmax_t)address,
                         sim_current->index);
            if (poisoned[(address - ARENA) / 8])
                check_poison(address, atomic && !write && address % BLOCK < WORD_BYTES, pc);
        }
        access_cell(cell++, 8, from, count, address, write, atomic);
        address += count;
        size -= count;
    }
}

bool memory_is_shared(uintptr_t address)
{
    const struct cell *cell = cell_of(address);

    if (cell && cell->part)
        cell = &cell->part[(address & 7) / 4];
    if (cell && cell->part)
        cell = &cell->part[address & 3];
    return !cell || (cell->users & (cell->users - 1)) != 0;
}

void sim_plain_read(const void *address, size_t size)
{
    access_range((uintptr_t)address, size, false, false, 0);
}

void sim_plain_write(void *address, size_t size)
{
    access_range((uintptr_t)address, size, true, false, 0);
}

/* ---- a stack's entry is in one stack at a time: that of a block, at these places ---- */

static uint8_t linked[ARENA_SIZE / 64]; /* by `where` (1), by `link` (2) */

static bool is_entry(uint64_t value)
{
    return value - ARENA < ARENA_SIZE && ((value & 63) == 8 || (value & 63) == 16);
}

static uint8_t *entry_of(uint64_t value, uint8_t *bit)
{
    *bit = (value & 63) == 8 ? 1 : 2;
    return &linked[(value - ARENA) / 64];
}

static uint64_t peek(uintptr_t address, unsigned size);

static void note_push(uint64_t value)
{
    uint8_t bit, *entry = entry_of(value, &bit);

    if (*entry & bit)
        sim_fail("pushed on a stack while it is in one: %#jx", (uintmax_t)value);
    *entry |= bit;
}

static void note_pop_all(uint64_t value)
{
    for (; is_entry(value); value = peek((uintptr_t)value, 8)) {
        uint8_t bit, *entry = entry_of(value, &bit);
        *entry &= (uint8_t)~bit;
    }
}

/* ---- what memory holds ---- */

static uint64_t peek(uintptr_t address, unsigned size)
{
    switch (size) {
    case 1: return *(volatile uint8_t *)address;
    case 2: return *(volatile uint16_t *)address;
    case 4: return *(volatile uint32_t *)address;
    default: return *(volatile uint64_t *)address;
    }
}

static void poke(uintptr_t address, unsigned size, uint64_t value)
{
    switch (size) {
    case 1: *(volatile uint8_t *)address = (uint8_t)value; break;
    case 2: *(volatile uint16_t *)address = (uint16_t)value; break;
    case 4: *(volatile uint32_t *)address = (uint32_t)value; break;
    default: *(volatile uint64_t *)address = value; break;
    }
}

static uint64_t state_hash;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ (b * UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ z >> 29;
}

/* All atomic memory together: what changes is taken out and put in. */
static void change_memory(uintptr_t address, unsigned size, uint64_t value)
{
    uint64_t before = peek(address, size);

    poke(address, size, value);
    if (before != value) {
        state_hash ^= mix(address, before) ^ mix(address, value);
        trace_state(mix(state_hash, sim_current ? sim_current->pc : 0));
    }
}

/* ---- store buffers ---- */

static bool overlap(const struct buffered *b, uintptr_t address, unsigned size)
{
    return b->address < address + size && address < b->address + b->size;
}

void memory_flush_one(struct sim_thread *thread, unsigned which)
{
    struct buffered *b = &thread->buffer[which];
    struct cell *cell = leaf_of(b->address, b->size);

    change_memory(b->address, b->size, b->value);
    if (cell) {
        uint32_t *sync = sync_of(cell);
        if (b->release)
            memcpy(sync, b->clock, sizeof b->clock);
        else
            memset(sync, 0, sizeof b->clock);
    }
    thread->buffered--;
    memmove(b, b + 1, (thread->buffered - which) * sizeof *b);
}

void memory_drain(struct sim_thread *thread)
{
    while (thread->buffered > 0)
        memory_flush_one(thread, 0);
}

unsigned memory_can_flush(const struct sim_thread *thread, unsigned *which)
{
    unsigned count = 0;

    for (unsigned i = 0; i < thread->buffered; i++) {
        bool can = i == 0 || (sim_history->buffering == BUFFER_PSO && !thread->buffer[i].release);
        for (unsigned j = 0; can && j < i; j++)
            can = !overlap(&thread->buffer[j], thread->buffer[i].address, thread->buffer[i].size);
        if (can)
            which[count++] = i;
    }
    return count;
}

/* A plain access of a thread does not overtake its own stores to the same place. */
static void plain_access(uintptr_t address, size_t size, bool write, uintptr_t pc)
{
    struct sim_thread *me = sim_current;

    if (!me)
        return;
    for (unsigned i = 0; i < me->buffered; i++) {
        if (me->buffer[i].address < address + size &&
            address < me->buffer[i].address + me->buffer[i].size) {
            memory_drain(me);
            break;
        }
    }
    access_range(address, size, write, false, pc);
}

/* ---- atomic accesses, in the compiler's words for their orders ---- */

static bool acquires(int order)
{
    return order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME || order == __ATOMIC_ACQ_REL ||
           order == __ATOMIC_SEQ_CST;
}

static bool releases(int order)
{
    return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static void take_over(struct sim_thread *me, uintptr_t address, unsigned size, int order)
{
    struct cell *cell = leaf_of(address, size);

    if (!cell || cell->epoch != epoch)
        return;
    join(acquires(order) ? me->clock : me->acquired, cell->sync);
}

static bool is_here(uintptr_t address)
{
    char *tls = tls_here();
    return address - (uintptr_t)tls < tls_size();
}

static uint64_t load(uintptr_t address, unsigned size, int order, uintptr_t pc)
{
    struct sim_thread *me = sim_current;
    uint64_t value;

    if (!me || is_here(address))
        return peek(address, size);
    sim_point(pc, address);
    access_range(address, size, false, true, pc);
    for (unsigned i = me->buffered; i-- > 0;) {
        struct buffered *b = &me->buffer[i];
        if (b->address == address && b->size == size) {
            if (sim_history->tracing)
                trace_add(TRACE_LOAD, pc, address, b->value, b->value, "own");
            return b->value;
        }
        if (overlap(b, address, size)) {
            memory_drain(me);
            break;
        }
    }
    take_over(me, address, size, order);
    value = peek(address, size);
    if (sim_history->tracing)
        trace_add(TRACE_LOAD, pc, address, value, value, NULL);
    return value;
}

static void store(uintptr_t address, unsigned size, uint64_t value, int order, uintptr_t pc)
{
    struct sim_thread *me = sim_current;
    struct buffered *b;

    if (!me || is_here(address)) {
        poke(address, size, value);
        return;
    }
    sim_write_point(pc, address);
    access_range(address, size, true, true, pc);
    if (sim_history->tracing)
        trace_add(TRACE_STORE, pc, address, peek(address, size), value,
                  order == __ATOMIC_SEQ_CST || sim_history->buffering == BUFFER_NONE ? NULL
                                                                                     : "buffered");
    if (me->buffered == BUFFERED_MOST)
        memory_flush_one(me, 0);
    b = &me->buffer[me->buffered++];
    b->address = address;
    b->size = (uint8_t)size;
    b->value = value;
    b->release = true;
    if (releases(order)) {
        memcpy(b->clock, me->clock, sizeof b->clock);
        tick(me);
    } else if (me->released[me->index]) { /* after a fence */
        memcpy(b->clock, me->released, sizeof b->clock);
    } else {
        b->release = false;
    }
    if (order == __ATOMIC_SEQ_CST || sim_history->buffering == BUFFER_NONE || sim_calm > 0)
        memory_drain(me);
}

/* Before a read-modify-write: what must be seen before it is. */
static void begin_change(uintptr_t address, unsigned size, int order, uintptr_t pc)
{
    struct sim_thread *me = sim_current;

    sim_write_point(pc, address);
    if (sim_history->buffering != BUFFER_PSO || releases(order)) {
        memory_drain(me);
        return;
    }
    for (unsigned i = 0; i < me->buffered; i++) {
        if (overlap(&me->buffer[i], address, size)) {
            memory_drain(me);
            return;
        }
    }
}

/* It has read, and writes. */
static void end_change(uintptr_t address, unsigned size, uint64_t before, uint64_t value, int order,
                       uintptr_t pc)
{
    struct sim_thread *me = sim_current;
    struct cell *cell = leaf_of(address, size);

    me->changed = true;
    access_range(address, size, true, true, pc);
    take_over(me, address, size, order);
    if (is_entry(before) && value == 0)
        note_pop_all(before);
    change_memory(address, size, value);
    if (cell && releases(order)) {
        join(sync_of(cell), me->clock);
        tick(me);
    } else if (cell && me->released[me->index]) {
        join(sync_of(cell), me->released);
    }
    /* not a lane's slot; nor one of a bucket that is found unchanged, whose key makes it look so */
    if (is_entry(value) && size == 8 && value != before && (before == 0 || is_entry(before)))
        note_push(value);
    if (sim_history->tracing)
        trace_add(TRACE_CHANGE, pc, address, before, value, NULL);
}

enum operation { EXCHANGE, ADD, SUB, AND, OR, XOR, NAND };

static uint64_t apply(enum operation operation, uint64_t a, uint64_t b)
{
    switch (operation) {
    case EXCHANGE: return b;
    case ADD: return a + b;
    case SUB: return a - b;
    case AND: return a & b;
    case OR: return a | b;
    case XOR: return a ^ b;
    case NAND: return ~(a & b);
    }
    return b;
}

static uint64_t truncated(uint64_t value, unsigned size)
{
    return size == 8 ? value : value & ((UINT64_C(1) << (8 * size)) - 1);
}

static uint64_t change(uintptr_t address, unsigned size, enum operation operation, uint64_t operand,
                       int order, uintptr_t pc)
{
    uint64_t before, after;

    if (!sim_current || is_here(address)) {
        before = peek(address, size);
        poke(address, size, apply(operation, before, operand));
        return before;
    }
    begin_change(address, size, order, pc);
    before = peek(address, size);
    after = truncated(apply(operation, before, operand), size);
    end_change(address, size, before, after, order, pc);
    return before;
}

static bool compare_exchange(uintptr_t address, unsigned size, uint64_t *expected, uint64_t value,
                             int order, int failure, uintptr_t pc)
{
    uint64_t before;

    if (!sim_current || is_here(address)) {
        before = peek(address, size);
        if (before == *expected)
            poke(address, size, value);
        else
            *expected = before;
        return before == *expected;
    }
    begin_change(address, size, order, pc);
    before = peek(address, size);
    if (before == *expected) {
        end_change(address, size, before, value, order, pc);
        return true;
    }
    access_range(address, size, false, true, pc);
    take_over(sim_current, address, size, failure);
    if (sim_history->tracing)
        trace_add(TRACE_FAILED, pc, address, *expected, before, NULL);
    *expected = before;
    return false;
}

static void fence(int order, uintptr_t pc)
{
    struct sim_thread *me = sim_current;

    if (!me)
        return;
    sim_point(pc, 0);
    if (order == __ATOMIC_SEQ_CST)
        memory_drain(me);
    if (acquires(order))
        join(me->clock, me->acquired);
    if (releases(order)) {
        memcpy(me->released, me->clock, sizeof me->released);
        tick(me);
    }
}

/* ---- what the compiler calls ---- */

#define PC ((uintptr_t)__builtin_return_address(0))

void __tsan_init(void);
void __tsan_init(void)
{
}

#define CHANGE(bits, name, operation)                                                              \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *at, uint##bits##_t value,           \
                                                int order);                                        \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *at, uint##bits##_t value,           \
                                                int order)                                         \
    {                                                                                              \
        return (uint##bits##_t)change((uintptr_t)at, bits / 8, operation, value, order, PC);       \
    }

#define ATOMIC(bits)                                                                               \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *at, int order);                 \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *at, int order)                  \
    {                                                                                              \
        return (uint##bits##_t)load((uintptr_t)at, bits / 8, order, PC);                           \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile void *at, uint##bits##_t value, int order);          \
    void __tsan_atomic##bits##_store(volatile void *at, uint##bits##_t value, int order)           \
    {                                                                                              \
        store((uintptr_t)at, bits / 8, value, order, PC);                                          \
    }                                                                                              \
    CHANGE(bits, exchange, EXCHANGE)                                                               \
    CHANGE(bits, fetch_add, ADD)                                                                   \
    CHANGE(bits, fetch_sub, SUB)                                                                   \
    CHANGE(bits, fetch_and, AND)                                                                   \
    CHANGE(bits, fetch_or, OR)                                                                     \
    CHANGE(bits, fetch_xor, XOR)                                                                   \
    CHANGE(bits, fetch_nand, NAND)                                                                 \
    int __tsan_atomic##bits##_compare_exchange_strong(                                             \
        volatile void *at, void *expected, uint##bits##_t value, int order, int failure);          \
    int __tsan_atomic##bits##_compare_exchange_strong(                                             \
        volatile void *at, void *expected, uint##bits##_t value, int order, int failure)           \
    {                                                                                              \
        uint##bits##_t *in = expected;                                                             \
        uint64_t seen = *in;                                                                       \
        bool changed =                                                                             \
            compare_exchange((uintptr_t)at, bits / 8, &seen, value, order, failure, PC);           \
        *in = (uint##bits##_t)seen;                                                                \
        return changed;                                                                            \
    }                                                                                              \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile void *at, void *expected,             \
                                                    uint##bits##_t value, int order, int failure); \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile void *at, void *expected,             \
                                                    uint##bits##_t value, int order, int failure)  \
    {                                                                                              \
        return __tsan_atomic##bits##_compare_exchange_strong(at, expected, value, order, failure); \
    }                                                                                              \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                     \
        volatile void *at, uint##bits##_t expected, uint##bits##_t value, int order, int failure); \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                     \
        volatile void *at, uint##bits##_t expected, uint##bits##_t value, int order, int failure)  \
    {                                                                                              \
        uint64_t seen = expected;                                                                  \
        compare_exchange((uintptr_t)at, bits / 8, &seen, value, order, failure, PC);               \
        return (uint##bits##_t)seen;                                                               \
    }

ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    fence(order, PC);
}
void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}

#define PLAIN(name, size, write)                                                                   \
    void __tsan_##name(void *at);                                                                  \
    void __tsan_##name(void *at)                                                                   \
    {                                                                                              \
        plain_access((uintptr_t)at, size, write, PC);                                              \
    }
PLAIN(read1, 1, false)
PLAIN(read2, 2, false)
PLAIN(read4, 4, false)
PLAIN(read8, 8, false)
PLAIN(read16, 16, false)
PLAIN(write1, 1, true)
PLAIN(write2, 2, true)
PLAIN(write4, 4, true)
PLAIN(write8, 8, true)
PLAIN(write16, 16, true)
PLAIN(unaligned_read2, 2, false)
PLAIN(unaligned_read4, 4, false)
PLAIN(unaligned_read8, 8, false)
PLAIN(unaligned_read16, 16, false)
PLAIN(unaligned_write2, 2, true)
PLAIN(unaligned_write4, 4, true)
PLAIN(unaligned_write8, 8, true)
PLAIN(unaligned_write16, 16, true)

void __tsan_read_range(void *at, size_t size);
void __tsan_read_range(void *at, size_t size)
{
    plain_access((uintptr_t)at, size, false, PC);
}
void __tsan_write_range(void *at, size_t size);
void __tsan_write_range(void *at, size_t size)
{
    plain_access((uintptr_t)at, size, true, PC);
}

/* The compiler does not mark these calls. */
void *sim_memcpy(void *to, const void *from, size_t size);
void *sim_memcpy(void *to, const void *from, size_t size)
{
    plain_access((uintptr_t)from, size, false, PC);
    plain_access((uintptr_t)to, size, true, PC);
    return memcpy(to, from, size);
}
void *sim_memmove(void *to, const void *from, size_t size);
void *sim_memmove(void *to, const void *from, size_t size)
{
    plain_access((uintptr_t)from, size, false, PC);
    plain_access((uintptr_t)to, size, true, PC);
    return memmove(to, from, size);
}
void *sim_memset(void *to, int value, size_t size);
void *sim_memset(void *to, int value, size_t size)
{
    plain_access((uintptr_t)to, size, true, PC);
    return memset(to, value, size);
}

/* ---- the heap: nothing is used twice in a history, so that what is free stays free ---- */

#define HEADER 16

static bool alive[ARENA_SIZE / BLOCK]; /* of the pool, and in use */

void *memory_take(size_t size, size_t alignment)
{
    uintptr_t at;

    if (alignment < 16)
        alignment = 16;
    size = (size + 7) & ~(size_t)7;
    at = (ARENA + memory_used + HEADER + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (size > ARENA_SIZE || at + size > ARENA + ARENA_SIZE)
        sim_fail("the simulator's memory is too small: %zu bytes more", size);
    memory_used = at + size - ARENA;
    *(size_t *)(at - HEADER) = size;
    memset(&linked[(at - ARENA) / 64], 0, size / 64 + 1);
    memset(&alive[(at - ARENA) / 64], 0, size / 64 + 1);
    return (void *)at;
}

static void set_poison(uintptr_t address, size_t size, bool poison)
{
    memset(&poisoned[(address - ARENA) / 8], poison, (size + 7) / 8);
}

void memory_give(void *memory)
{
    size_t size;

    if (!memory)
        return;
    size = *(size_t *)((uintptr_t)memory - HEADER);
    for (uintptr_t at = (uintptr_t)memory; at < (uintptr_t)memory + size; at += 8) {
        if (touched[(at - ARENA) / 64])
            access_range(at, 8, true, false, 0); /* whoever is still at it races */
    }
    set_poison((uintptr_t)memory, size, true);
}

/* All of it at once: a write of what was used, beside whoever still does. */
void memory_unmap(void *memory, size_t size)
{
    for (uintptr_t at = (uintptr_t)memory; at < (uintptr_t)memory + size; at += 64) {
        if (touched[(at - ARENA) / 64])
            access_range(at, 64, true, false, 0);
        unmapped[(at - ARENA) / 64] = true;
    }
}

bool memory_is_poisoned(const void *address)
{
    return (uintptr_t)address - ARENA < ARENA_SIZE && poisoned[((uintptr_t)address - ARENA) / 8];
}

/*
 * The pages go, and come again as zeros. As if written atomically: who comes too late may look at a
 * free block's word, or at a slot of a lane, of which there are fewer than fill a block.
 */
void memory_clear_pages(void *memory, size_t size)
{
    uintptr_t from = (uintptr_t)memory;

    for (uintptr_t at = from; at < from + size; at += BLOCK) {
        SIM_CHECK(!alive[(at - ARENA) / BLOCK], "pages go from under a block in use: %#jx",
                  (uintmax_t)at);
        for (unsigned i = 0; i < BLOCK && at + i < from + size; i += 8)
            access_cell(cell_of(at + i), 8, 0, 8, at + i, true, i < WORD_BYTES || size < BLOCK);
    }
    memset(memory, 0, size);
}

/* What a debug build tells AddressSanitizer about the pool's blocks, all but their head. */
void __asan_poison_memory_region(void const volatile *at, size_t size);
void __asan_unpoison_memory_region(void const volatile *at, size_t size);

static uintptr_t block_of(const volatile void *at)
{
    return (uintptr_t)at & ~(uintptr_t)(BLOCK - 1);
}

void __asan_poison_memory_region(void const volatile *at, size_t size)
{
    uintptr_t block = block_of(at);

    if (!sim_current)
        return;
    if (alive[(block - ARENA) / BLOCK]) { /* otherwise it is carved */
        alive[(block - ARENA) / BLOCK] = false;
        memory_blocks_alive--;
    }
    set_poison((uintptr_t)at, size, true);
    set_poison(block, WORD_BYTES, true);
}

void __asan_unpoison_memory_region(void const volatile *at, size_t size)
{
    uintptr_t block = block_of(at);

    if (!sim_current)
        return;
    SIM_CHECK(!alive[(block - ARENA) / BLOCK], "a block is taken that is in use: %#jx",
              (uintmax_t)block);
    alive[(block - ARENA) / BLOCK] = true;
    memory_blocks_alive++;
    set_poison((uintptr_t)at, size, false);
    set_poison(block, WORD_BYTES, false);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* What a history did, for people; and what all of them together have reached. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"
#include "tls.h"

struct tls_segment tls_segment;

static int find_tls(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
            char *image;
            tls_segment.here = info->dlpi_tls_data;
            tls_segment.size = info->dlpi_phdr[i].p_memsz;
            image = calloc(1, tls_segment.size + 1);
            if (image)
                memcpy(image, (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
                       info->dlpi_phdr[i].p_filesz);
            tls_segment.image = image;
        }
    }
    return 1; /* only the first: the program itself */
}

void tls_set_up(void)
{
    dl_iterate_phdr(find_tls, NULL);
}

/* ---- the trace ---- */

struct line {
    uint8_t thread, kind;
    uintptr_t pc, address;
    uint64_t before, after, now;
    char what[72];
};

static struct line *lines;
static size_t line_count, line_room;
const char *(*trace_name_of)(uintptr_t address, char *buffer, size_t size);

void trace_reset(void)
{
    line_count = 0;
}

static struct line *add_line(void)
{
    if (line_count == line_room) {
        line_room = line_room ? 2 * line_room : 4096;
        lines = realloc(lines, line_room * sizeof *lines);
        if (!lines)
            abort();
    }
    return &lines[line_count++];
}

void trace_add(enum trace_kind kind, uintptr_t pc, uintptr_t address, uint64_t before,
               uint64_t after, const char *what)
{
    struct line *line = add_line();

    *line = (struct line){(uint8_t)(sim_current ? sim_current->index : 0),
                          (uint8_t)kind,
                          pc,
                          address,
                          before,
                          after,
                          sim_now,
                          ""};
    snprintf(line->what, sizeof line->what, "%s", what ? what : "");
}

void trace_say(const char *format, ...)
{
    char text[72];
    va_list list;

    if (!sim_history || !sim_history->tracing)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    trace_add(TRACE_WORLD, 0, 0, 0, 0, text);
}

/* ---- file and line, by the tool that knows ---- */

extern char __executable_start[], etext[];

struct place {
    char where[96];
};
static struct place **places; /* by pc */

static size_t text_size(void)
{
    return (size_t)(etext - __executable_start);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "lane.c:153 < schedule.c:56": where it is, and into what that was inlined. */
static void resolve(const uintptr_t *pcs, size_t count)
{
    char command[256], list[] = "/tmp/hwt-sim-XXXXXX", text[512];
    int fd = mkstemp(list);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    size_t at = (size_t)-1;

    if (!file)
        return;
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%#jx\n", (uintmax_t)(pcs[i] - 1));
    fclose(file);
    snprintf(command, sizeof command, "addr2line -a -i -e /proc/%ld/exe <%s 2>/dev/null",
             (long)getpid(), list);
    file = popen(command, "r");
    while (file && fgets(text, sizeof text, file)) {
        char *end = strpbrk(text, "\n ");
        if (end)
            *end = '\0';
        if (text[0] == '0' && text[1] == 'x') {
            at++;
        } else if (at < count) {
            struct place **place = &places[pcs[at] - (uintptr_t)__executable_start];
            if (!*place && !(*place = calloc(1, sizeof **place)))
                continue;
            size_t used = strlen((*place)->where);
            if (used + 40 < sizeof(*place)->where)
                snprintf((*place)->where + used, sizeof(*place)->where - used, "%s%.60s",
                         used ? " < " : "", base_name(text));
        }
    }
    if (file)
        pclose(file);
    remove(list);
}

static const char *where(uintptr_t pc)
{
    size_t index = pc - (uintptr_t)__executable_start;
    return index < text_size() && places[index] ? places[index]->where : "";
}

static int compare_pcs(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

static void resolve_lines(void)
{
    uintptr_t *pcs = calloc(line_count + 1, sizeof *pcs);
    size_t count = 0, kept = 0;

    for (size_t i = 0; pcs && i < line_count; i++) {
        size_t index = lines[i].pc - (uintptr_t)__executable_start;
        if (lines[i].pc && index < text_size() && !places[index])
            pcs[count++] = lines[i].pc;
    }
    if (!pcs)
        return;
    qsort(pcs, count, sizeof *pcs, compare_pcs);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || pcs[i] != pcs[i - 1])
            pcs[kept++] = pcs[i];
    }
    resolve(pcs, kept);
    free(pcs);
}

static void print_line(const struct line *line, size_t number)
{
    static const char *const verbs[] = {"load", "store", "change", "no change", "", ""};
    char name[96] = "", value[96] = "";

    if (line->kind == TRACE_WORLD) {
        printf("%5zu  T%u  %9.3f us            -- %s\n", number, line->thread,
               (double)(line->now - 1000000000) / 1000, line->what);
        return;
    }
    if (line->address && trace_name_of)
        trace_name_of(line->address, name, sizeof name);
    switch (line->kind) {
    case TRACE_LOAD: snprintf(value, sizeof value, "%#" PRIx64, line->after); break;
    case TRACE_FAILED:
        snprintf(value, sizeof value, "wanted %#" PRIx64 ", is %#" PRIx64, line->before,
                 line->after);
        break;
    case TRACE_CALL:
        if (line->before || line->after)
            snprintf(value, sizeof value, "%#" PRIx64 ", %#" PRIx64, line->before, line->after);
        break;
    default:
        snprintf(value, sizeof value, "%#" PRIx64 " -> %#" PRIx64, line->before, line->after);
        break;
    }
    printf("%5zu  T%u  %9.3f us  %-34s %-9s %-22s %s%s%s\n", number, line->thread,
           (double)(line->now - 1000000000) / 1000, where(line->pc), verbs[line->kind], name, value,
           line->what[0] ? "  " : "", line->what);
}

void trace_print(void)
{
    resolve_lines();
    for (size_t i = 0; i < line_count; i++)
        print_line(&lines[i], i);
}

/* ---- points: how often they were reached, and how often a thread was left there ---- */

static uint32_t *reached, *left;

void trace_set_up(void)
{
    tls_set_up();
    reached = calloc(text_size(), sizeof *reached);
    left = calloc(text_size(), sizeof *left);
    places = calloc(text_size(), sizeof *places);
    if (!reached || !left || !places)
        abort();
}

void trace_reached(uintptr_t pc, bool switched)
{
    size_t index = pc - (uintptr_t)__executable_start;

    if (index < text_size())
        (switched ? left : reached)[index]++;
}

/*
 * Which of the points that there are in the objects were never reached, or never left: the calls of
 * the runtime that `objdump -d` shows, by line.
 */
static size_t list_points(uintptr_t *pcs, size_t most)
{
    char command[128], text[512];
    bool after = false;
    size_t count = 0;
    FILE *file;

    snprintf(command, sizeof command, "objdump -d --no-show-raw-insn /proc/%ld/exe 2>/dev/null",
             (long)getpid());
    file = popen(command, "r");
    while (file && fgets(text, sizeof text, file)) {
        char *colon = strchr(text, ':');
        if (after && colon && count < most)
            pcs[count++] = (uintptr_t)strtoull(text, NULL, 16);
        after = (strstr(text, "call") || strstr(text, "\tbl\t")) && strstr(text, "<__tsan_atomic");
    }
    if (file)
        pclose(file);
    return count;
}

struct by_file {
    char name[32];
    unsigned points, reached, left;
};

void trace_report(bool every_line)
{
    static uintptr_t pcs[1 << 14];
    static struct by_file files[64];
    size_t count = list_points(pcs, 1 << 14), file_count = 0;
    unsigned points = 0, were_reached = 0, were_left = 0;

    resolve(pcs, count);
    for (size_t i = 0; i < count; i++) {
        size_t index = pcs[i] - (uintptr_t)__executable_start, f = 0;
        char name[96];
        snprintf(name, sizeof name, "%.90s", where(pcs[i]));
        if (every_line && !left[index])
            printf("  never left%s: %s\n", reached[index] ? "" : ", never reached", name);
        name[strcspn(name, ":")] = '\0';
        while (f < file_count && strcmp(files[f].name, name) != 0)
            f++;
        if (f == file_count && f < 64)
            snprintf(files[file_count++].name, sizeof files[0].name, "%.31s", name);
        if (f == 64)
            continue;
        files[f].points++;
        files[f].reached += reached[index] > 0;
        files[f].left += left[index] > 0;
        points++;
        were_reached += reached[index] > 0;
        were_left += left[index] > 0;
    }
    for (size_t f = 0; every_line && f < file_count; f++)
        printf("  %-20s %4u points, %4u reached, %4u left for another thread\n", files[f].name,
               files[f].points, files[f].reached, files[f].left);
    printf("%u atomic accesses in the code: %u reached, %u left for another thread\n", points,
           were_reached, were_left);
}

/* ---- states: how many different ones, by the bits that are still 0 (linear counting) ---- */

#define SKETCH_BITS 28
static uint64_t *sketch;

void trace_state(uint64_t hash)
{
    if (!sketch) {
        sketch = calloc((size_t)1 << (SKETCH_BITS - 6), sizeof *sketch);
        if (!sketch)
            return;
    }
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    hash >>= 64 - SKETCH_BITS;
    sketch[hash / 64] |= UINT64_C(1) << hash % 64;
}

double trace_states(void)
{
    double bits = (double)((size_t)1 << SKETCH_BITS), zero = 0;

    if (!sketch)
        return 0;
    for (size_t i = 0; i < (size_t)1 << (SKETCH_BITS - 6); i++)
        zero += 64 - __builtin_popcountll(sketch[i]);
    return zero > 0 ? -bits * log(zero / bits) : bits;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

#define ROWS 64

/* One line: {"case":"..","producers":n,"count":n,"metric":"..","unit":"..","values":[..]} */
struct line {
    char text[1024];
    char scenario[64], metric[64], unit[32];
    struct bench_row row;
    struct series values;
};

static const char *after(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at ? at + strlen(name) : "";
}

static void text_field(const char *text, const char *name, char *to, size_t room)
{
    const char *from = after(text, name);
    size_t length = strcspn(from, "\"");

    snprintf(to, room, "%.*s", (int)length, from);
}

static bool parse(struct line *line, const char *name)
{
    const char *at = after(line->text, "\"values\":[");
    char *end;

    if (*at == '\0')
        return false;
    text_field(line->text, "\"case\":\"", line->scenario, sizeof(line->scenario));
    text_field(line->text, "\"metric\":\"", line->metric, sizeof(line->metric));
    text_field(line->text, "\"unit\":\"", line->unit, sizeof(line->unit));
    line->row = (struct bench_row){
        name,
        line->scenario,
        (unsigned)strtoul(after(line->text, "\"producers\":"), NULL, 10),
        strtoull(after(line->text, "\"count\":"), NULL, 10),
        line->metric,
        line->unit,
        0,
    };
    line->values.n = 0;
    for (; *at && *at != ']'; at = end + (*end == ',')) {
        double value = strtod(at, &end);

        if (end == at)
            return false;
        series_add(&line->values, value);
    }
    return line->values.n > 0;
}

/* Handed over when it has ended: what it used then counts as this program's own load. */
bool peer_figures(struct bench *b, const char *name, const char *call, peer_figure *figure,
                  void *arg)
{
    struct line *lines = bench_alloc(ROWS * sizeof(*lines));
    unsigned n = 0;
    bool good;
    FILE *f;

    fflush(NULL);
    f = popen(call, "r");
    while (f && n < ROWS && fgets(lines[n].text, sizeof(lines[n].text), f)) {
        bench_progress(b, "%s, %u figures", name, n);
        n += parse(&lines[n], name);
    }
    good = f && pclose(f) == 0;
    if (!good)
        bench_skip(b, name, "its program failed");
    for (unsigned i = 0; i < n; i++)
        figure(b, &lines[i].row, &lines[i].values, arg);
    free(lines);
    return good;
}

static void report(struct bench *b, const struct bench_row *row, const struct series *s, void *arg)
{
    (void)arg;
    bench_report(b, row, s);
}

void peer_foreign(struct bench *b, const char *name, const char *command)
{
    char call[4096];

    snprintf(call, sizeof(call), "%s %u %g %d", command, b->repeats, b->seconds, b->quick);
    peer_figures(b, name, call, report, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One question of ask.h to the library that this program is started with, once: compiled against
 * the header of 1.0, it runs with that release and with all later ones. Arguments: the question,
 * producers, timeouts, others, seconds of a window. Prints a JSON line for each figure.
 */
#include <stdlib.h>

#include "ask.h"

int main(int argc, char **argv)
{
    static struct series figures[ASK_FIGURES];
    struct ask ask = {.peer = &peer_hwt, .figures = figures};
    struct bench b = {.name = "release"};
    ask_question *question = argc == 6 ? ask_named(argv[1]) : NULL;

    if (!question) {
        fputs("usage: release QUESTION PRODUCERS COUNT OTHERS SECONDS\n", stderr);
        return 2;
    }
    ask.producers = (unsigned)strtoul(argv[2], NULL, 10);
    ask.count = strtoull(argv[3], NULL, 10);
    ask.others = strtoull(argv[4], NULL, 10);
    b.seconds = strtod(argv[5], NULL);
    question(&b, &ask);
    for (unsigned i = 0; i < ASK_FIGURES && figures[i].n > 0; i++)
        printf("{\"case\":\"%s\",\"metric\":\"%u\",\"values\":[%.17g]}\n", argv[1], i,
               figures[i].v[0]);
    return 0;
}

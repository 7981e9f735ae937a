/* SPDX-License-Identifier: BSD-2-Clause */
#include "peer.h"

#include <errno.h>
#include <stdlib.h>

void *peer_alloc(size_t bytes)
{
    void *p = malloc(bytes);

    if (!p)
        bench_die("memory", ENOMEM);
    return p;
}

struct timespec peer_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

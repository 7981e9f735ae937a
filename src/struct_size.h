/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sizes that the structs of hwt.h had, release by release. A program says in struct_size which
 * of them it was compiled with; nothing behind that is read or written.
 */
#ifndef HWT_STRUCT_SIZE_H
#define HWT_STRUCT_SIZE_H

#include <string.h>

#include "base.h"
#include "hwt.h"

enum struct_size {
    CONFIG_SIZE_1_0 = 120,
    SPEC_SIZE_1_0 = 56,
    STATS_SIZE_1_0 = 608,
};

static inline bool config_size_known(size_t size)
{
    return size == sizeof(hwt_config) || size == CONFIG_SIZE_1_0;
}

static inline bool spec_size_known(size_t size)
{
    return size == sizeof(hwt_spec) || size == SPEC_SIZE_1_0;
}

static inline bool stats_size_known(size_t size)
{
    return size == sizeof(hwt_stats) || size == STATS_SIZE_1_0;
}

/*
 * Initializes the caller's struct of `size` bytes, which may be of a later release: struct_size, as
 * much of `defaults` as it has, and zeroes.
 */
static inline void struct_init(void *to, size_t size, const void *defaults, size_t known)
{
    if (!to || size < sizeof size)
        return;
    memset(to, 0, size);
    memcpy(to, defaults, min_u64(size, known));
    memcpy(to, &size, sizeof size); /* struct_size, which is the first of each */
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of the pool, and of what it stands on, begin with. */
#ifndef HWT_TEST_SUPPORT_POOL_H
#define HWT_TEST_SUPPORT_POOL_H

#include <criterion/criterion.h>

#include "pool.h"
#include "support.h"

/* A suite's init. */
static inline void pool_arm(void)
{
    test_arm();
    cr_assert_eq(pool_prepare(), 0);
}

/* Of a reservation whose owner has none in use. */
static inline uint64_t pool_none_pending(const void *owner)
{
    (void)owner;
    return 0;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What platform_cpu says, and that it is read from memory wherever the C library offers that. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <sched.h>

#include "platform.h"
#include "support.h"

TestSuite(platform, .init = test_arm);

Test(platform, cpu)
{
    cpu_set_t all, one;

    cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    for (unsigned cpu = 0; cpu < platform_cpu_count() && cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
        cr_assert_eq(platform_cpu(), cpu);
        cr_assert_eq(platform_cpu_slow(), cpu);
    }
}

#ifdef PLATFORM_RSEQ
#include <sys/rseq.h>

Test(platform, cpu_from_memory)
{
    cr_assert_eq(platform_rseq_cpu != 0, __rseq_size > 0);
}
#endif

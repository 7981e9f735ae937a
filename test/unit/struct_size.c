/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Structs with a struct_size: each size that a released header had is known, no other is, and not a
 * byte behind the caller's struct is read or written: it lies at the end of a page, before one that
 * cannot be touched. Compiled against older headers, too (check/compat.sh).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

TestSuite(struct_size, .init = test_arm);

#define CONFIG_1_0 120
#define SPEC_1_0   56
#define STATS_1_0  608

/* Room for `size` bytes, with nothing behind; full of rubbish. */
static void *edge(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert_neq(pages, MAP_FAILED);
    cr_assert_eq(mprotect(pages + page, page, PROT_NONE), 0);
    memset(pages, 0xa5, page);
    return pages + page - size;
}

static bool config_works(const hwt_config *config)
{
    hwt_timer *timer;

    return hwt_timer_create(&timer, config) == 0 && hwt_timer_destroy(timer) == 0;
}

Test(struct_size, of_this_header)
{
    hwt_config *config = edge(sizeof *config);
    hwt_spec *spec = edge(sizeof *spec);
    hwt_stats *stats = edge(sizeof *stats);
    probe p = {0};
    rig r;

    hwt_config_init(config);
    cr_assert_eq(config->struct_size, sizeof *config);
    cr_assert(config_works(config));
    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, 0), 0);
    hwt_spec_init(spec);
    cr_assert_eq(spec->struct_size, sizeof *spec);
    spec->task = probe_task;
    spec->cancelled = probe_hook;
    spec->arg = &p;
    cr_assert_eq(hwt_schedule(r.timer, spec, NULL), 0);
    hwt_stats_init(stats);
    cr_assert_eq(stats->struct_size, sizeof *stats);
    cr_assert_eq(hwt_timer_stats(r.timer, stats), 0);
    cr_assert_eq(stats->struct_size, sizeof *stats);
    cr_assert_eq(stats->scheduled, 1);
    rig_close(&r);
    cr_assert_eq(p.hooks, 1);
}

/* What is called by its address is the function of 1.0. */
Test(struct_size, the_functions_of_1_0)
{
    void (*config_init)(hwt_config *) = hwt_config_init;
    void (*spec_init)(hwt_spec *) = hwt_spec_init;
    void (*stats_init)(hwt_stats *) = hwt_stats_init;
    hwt_config *config = edge(CONFIG_1_0);
    hwt_spec *spec = edge(SPEC_1_0);
    hwt_stats *stats = edge(STATS_1_0);
    probe p = {0};
    rig r;

    config_init(config);
    cr_assert_eq(config->struct_size, CONFIG_1_0);
    cr_assert(config->tick_ns == 0 || config->tick_ns == HWT_MSEC(1));
    cr_assert(config_works(config));
    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, 0), 0);
    spec_init(spec);
    cr_assert_eq(spec->struct_size, SPEC_1_0);
    spec->task = probe_task;
    spec->arg = &p;
    cr_assert_eq(hwt_schedule(r.timer, spec, NULL), 0);
    spec->cancelled = probe_hook;
    cr_assert_eq(hwt_schedule(r.timer, spec, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_MSEC(1)), 2);
    stats_init(stats);
    cr_assert_eq(stats->struct_size, STATS_1_0);
    cr_assert_eq(hwt_timer_stats(r.timer, stats), 0);
    cr_assert_eq(stats->struct_size, STATS_1_0);
    cr_assert_eq(stats->runs, 2);
    cr_assert_eq(stats->late_log2[63], 0);
    config_init(NULL);
    spec_init(NULL);
    stats_init(NULL);
    rig_close(&r);
}

#if HWT_VERSION_MINOR >= 1
static void count_call(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

/* As by a binding that looks the names up: its structs are larger than they say. */
Test(struct_size, what_1_0_had_not_is_not_looked_at)
{
    void (*config_init)(hwt_config *) = hwt_config_init;
    void (*spec_init)(hwt_spec *) = hwt_spec_init;
    void (*stats_init)(hwt_stats *) = hwt_stats_init;
    atomic_uint calls = 0, runs = 0;
    hwt_config config;
    hwt_timer *timer;
    hwt_stats stats;
    hwt_spec spec;

    config_init(&config);
    config.worker_start = config.worker_exit = count_call;
    config.worker_arg = &calls;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    spec_init(&spec);
    spec.task = count_task;
    spec.arg = &runs;
    spec.release = count_call; /* a mistake would count as a run */
    cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    cr_assert_eq(hwt_timer_drain(timer, HWT_SEC(PATIENCE_S), NULL), 0);
    stats_init(&stats);
    stats.late_ns_sum = 7;
    cr_assert_eq(hwt_timer_stats(timer, &stats), 0);
    cr_assert_eq(stats.late_ns_sum, 7);
    cr_assert_eq(runs, 1);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(calls, 0);
}

Test(struct_size, no_other_is_known)
{
    rig r;

    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, 0), 0);
    for (size_t size = 0; size < 1000; size++) {
        hwt_config config;
        hwt_spec spec;
        hwt_stats stats;

        hwt_config_init(&config);
        config.struct_size = size;
        if (size != CONFIG_1_0 && size != sizeof config)
            cr_assert_eq(hwt_timer_create(&(hwt_timer *){NULL}, &config), -EINVAL, "%zu", size);
        hwt_spec_init(&spec);
        spec.task = noop_task;
        spec.struct_size = size;
        if (size != SPEC_1_0 && size != sizeof spec)
            cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), -EINVAL, "%zu", size);
        hwt_stats_init(&stats);
        stats.struct_size = size;
        if (size != STATS_1_0 && size != sizeof stats)
            cr_assert_eq(hwt_timer_stats(r.timer, &stats), -EINVAL, "%zu", size);
    }
    cr_assert_eq(stats_of(r.timer).scheduled, 0);
    rig_close(&r);
}

/* A struct of a later release is zeroed as a whole, and refused where it is used. */
Test(struct_size, of_a_later_release)
{
    static const char zeroes[4096];
    size_t size = sizeof(hwt_config) + 40;
    hwt_config *config = edge(size);

    hwt_config_init_size(config, size);
    cr_assert_eq(config->struct_size, size);
    cr_assert_eq(config->tick_ns, HWT_MSEC(1));
    cr_assert_eq(memcmp(config + 1, zeroes, 40), 0);
    cr_assert_eq(hwt_timer_create(&(hwt_timer *){NULL}, config), -EINVAL);
    size = sizeof(hwt_stats) + 40;
    hwt_stats_init_size(edge(size), size);
    hwt_spec_init_size(edge(8), 8);
    hwt_spec_init_size(edge(4), 4); /* nothing that it could say fits in there */
}
#endif

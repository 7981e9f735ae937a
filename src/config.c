/* SPDX-License-Identifier: BSD-2-Clause */
/* What a timer is told at its creation: defaults and checks. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "quota.h"
#include "struct_size.h"

#define DEFAULT_TICK_NS HWT_MSEC(1)
#define DEFAULT_SLOTS   512u
#define LEAST_TICK_NS   HWT_USEC(1)
#define MOST_SLOTS      (UINT32_C(1) << 20)

void hwt_config_init_size(hwt_config *config, size_t size)
{
    static const hwt_config defaults = {
        .struct_size = sizeof defaults,
        .tick_ns = DEFAULT_TICK_NS,
        .ticks_per_wheel = DEFAULT_SLOTS,
        .clock_id = CLOCK_MONOTONIC,
        .thread_name = "hwt-worker",
    };

    struct_init(config, size, &defaults, sizeof defaults);
}

void(hwt_config_init)(hwt_config *config)
{
    hwt_config_init_size(config, CONFIG_SIZE_1_0);
}

bool config_take(hwt_config *taken, const hwt_config *config)
{
    hwt_config_init(taken);
    if (!config)
        return true;
    if (!config_size_known(config->struct_size))
        return false;
    memcpy(taken, config, config->struct_size);
    return true;
}

static bool enums_known(const hwt_config *config)
{
    return wheel_kind_exists(config->wheel) &&
           (config->drive == HWT_DRIVE_WORKER || config->drive == HWT_DRIVE_CALLER);
}

static bool clock_known(clockid_t id)
{
    return id == 0 || id == CLOCK_MONOTONIC || id == CLOCK_BOOTTIME;
}

/* Before its last moment: a time namespace can set the clock anywhere. */
static bool clock_goes(const hwt_config *config)
{
    clockid_t id = config->clock_id == CLOCK_BOOTTIME ? CLOCK_BOOTTIME : CLOCK_MONOTONIC;

    return config->now || clock_system_now(id) < CLOCK_LAST;
}

static uint32_t round_up(uint32_t slots)
{
    uint32_t rounded = 1;

    while (rounded < slots)
        rounded *= 2;
    return rounded;
}

static bool geometry_valid(uint64_t tick_ns, uint32_t slots)
{
    return tick_ns >= LEAST_TICK_NS && slots <= MOST_SLOTS &&
           tick_ns <= (uint64_t)INT64_MAX / slots;
}

static void take_clock(hwt_timer *timer, const hwt_config *config)
{
    timer->clock.id = config->clock_id == CLOCK_BOOTTIME ? CLOCK_BOOTTIME : CLOCK_MONOTONIC;
    timer->clock.now = config->now;
    timer->clock.context = config->clock;
    timer->flags = config->now                          ? FLAG_CALLERS_CLOCK
                   : config->clock_id == CLOCK_BOOTTIME ? FLAG_BOOTTIME
                                                        : 0;
}

int config_apply(hwt_timer *timer, const hwt_config *config, uint32_t *slots)
{
    const char *name = config->thread_name ? config->thread_name : "hwt-worker";
    uint64_t tick_ns = config->tick_ns ? config->tick_ns : DEFAULT_TICK_NS;

    *slots = config->ticks_per_wheel ? config->ticks_per_wheel : DEFAULT_SLOTS;
    if (!enums_known(config) || !clock_known(config->clock_id) || !geometry_valid(tick_ns, *slots))
        return -EINVAL;
    if ((config->now && config->drive != HWT_DRIVE_CALLER) || !clock_goes(config))
        return -EINVAL;
    if (config->executor && !config->execute)
        return -EINVAL;
    *slots = round_up(*slots);
    take_clock(timer, config);
    timer->tick_ns = tick_ns;
    timer->max_pending = min_u64(config->max_pending, QUOTA_FREE);
    timer->slow_task_ns = config->slow_task_ns;
    timer->reserved = config->reserve;
    timer->drive = config->drive;
    timer->execute = config->execute;
    timer->executor = config->executor;
    timer->runs_plainly = !timer->execute && !timer->max_pending && !timer->slow_task_ns;
    timer->log = config->log;
    timer->log_arg = config->log_arg;
    timer->worker_start = config->worker_start;
    timer->worker_exit = config->worker_exit;
    timer->worker_arg = config->worker_arg;
    strncpy(timer->thread_name, name, sizeof timer->thread_name - 1);
    timer->thread_name[sizeof timer->thread_name - 1] = '\0';
    return 0;
}

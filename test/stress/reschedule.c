/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection that moves its idle deadline on every packet, about a million times a second, from
 * several threads. Moving later wakes nobody, moving back and forth does not grow memory (G6), no
 * move makes a timeout early (G1), and the last deadline is met (G4).
 */
#include "stress.h"

enum { MOVERS = 2, CONNECTIONS = 8 };

static hwt_timer *timer;
static _Atomic bool quit;
static _Atomic uint64_t moves, fired;

static void never(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    stress_fail(__FILE__, __LINE__, "idle", "G1: a deadline of %" PRIu64 " fired at %" PRIu64,
                hwt_timeout_deadline(timeout), hwt_timer_now(timer));
}

static void create(hwt_wheel_kind wheel)
{
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    STRESS_OK(hwt_timer_create(&timer, &config));
}

static void finish(uint64_t handed_back)
{
    hwt_unprocessed list = {0};

    STRESS_OK(hwt_timer_stop(timer, &list));
    STRESS_CHECK(list.count == handed_back, "%zu handed back of %" PRIu64, list.count, handed_back);
    for (hwt_timeout *t = hwt_unprocessed_take(&list); t != NULL; t = hwt_unprocessed_take(&list))
        hwt_timeout_unref(t);
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

/* ---- shared connections, moved by every thread ---- */
static hwt_timeout *shared[CONNECTIONS];

static void *move_later(void *arg)
{
    uint64_t count = 0;

    for (; !atomic_load(&quit); count++)
        STRESS_CHECK(hwt_timeout_reschedule(shared[count % CONNECTIONS], HWT_SEC(3600)),
                     "an idle connection did not move");
    atomic_fetch_add(&moves, count);
    return arg;
}

static void *move_about(void *arg)
{
    uint64_t count = 0;

    for (; !atomic_load(&quit); count++) {
        uint64_t delay = HWT_SEC(60) + stress_below(HWT_SEC(7200));

        STRESS_CHECK(hwt_timeout_reschedule(shared[count % CONNECTIONS], delay),
                     "an idle connection did not move");
    }
    atomic_fetch_add(&moves, count);
    return arg;
}

/* Runs the movers for a while and returns by how many wake-ups they disturbed the worker. */
static uint64_t run_movers(void *(*mover)(void *), double seconds, const char *what)
{
    pthread_t threads[MOVERS];
    uint64_t before, wakeups;

    atomic_store(&quit, false);
    for (int i = 0; i < MOVERS; i++)
        threads[i] = stress_thread(mover, NULL);
    stress_sleep((uint64_t)(seconds * 3e8));
    before = stress_resident();
    wakeups = stress_stats(timer).wakeups;
    stress_sleep((uint64_t)(seconds * 7e8));
    wakeups = stress_stats(timer).wakeups - wakeups;
    stress_check_growth(before, 2 << 20, what);
    atomic_store(&quit, true);
    for (int i = 0; i < MOVERS; i++)
        stress_join(threads[i]);
    return wakeups;
}

static void count_fired(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    STRESS_CHECK(hwt_timer_now(timer) >= hwt_timeout_deadline(timeout), "G1: early");
    atomic_fetch_add(&fired, 1);
}

/* After a million moves back and forth, one more to "soon" still has its effect in time (G4). */
static void fire_all_soon(void)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        STRESS_CHECK(hwt_timeout_reschedule(shared[i], HWT_MSEC(5)), "it did not move");
        hwt_timeout_unref(shared[i]);
    }
    stress_await(&fired, CONNECTIONS, "connections moved to soon");
}

static void schedule_shared(hwt_task *task)
{
    for (int i = 0; i < CONNECTIONS; i++)
        STRESS_OK(hwt_new_timeout(timer, task, NULL, HWT_SEC(3600), &shared[i]));
}

static void later_only(hwt_wheel_kind wheel, double seconds)
{
    uint64_t wakeups;

    create(wheel);
    schedule_shared(never);
    stress_sleep(HWT_MSEC(20));
    wakeups = run_movers(move_later, seconds, "moving later");
    STRESS_CHECK(wakeups == 0, "G5: moving later woke the worker %" PRIu64 " times", wakeups);
    for (int i = 0; i < CONNECTIONS; i++)
        hwt_timeout_unref(shared[i]);
    finish(CONNECTIONS);
}

static void back_and_forth(hwt_wheel_kind wheel, double seconds)
{
    create(wheel);
    atomic_store(&fired, 0);
    schedule_shared(count_fired);
    run_movers(move_about, seconds, "moving back and forth");
    fire_all_soon();
    finish(0);
}

/* ---- a connection of one's own: its exact deadline is known ---- */
struct connection {
    hwt_timeout *timeout;
    _Atomic uint64_t promised; /* never above the deadline in force */
    _Atomic uint64_t ended;
    uint64_t lives, owner_moves;
};

static void time_out(hwt_timeout *timeout, void *arg)
{
    struct connection *c = arg;
    uint64_t now = hwt_timer_now(timer);

    STRESS_CHECK(now >= atomic_load(&c->promised), "G1: %" PRIu64 " ns before what was promised",
                 atomic_load(&c->promised) - now);
    STRESS_CHECK(now >= hwt_timeout_deadline(timeout), "G1: early");
    atomic_fetch_add(&c->ended, 1);
}

static bool move_own(struct connection *c, uint64_t deadline)
{
    bool earlier = deadline < atomic_load(&c->promised);
    bool moved;

    if (earlier)
        atomic_store(&c->promised, deadline);
    moved = hwt_timeout_reschedule_at(c->timeout, deadline);
    if (moved && !earlier)
        atomic_store(&c->promised, deadline);
    c->owner_moves += moved;
    return moved;
}

/* One life: keeps the deadline 1 to 3 ms ahead for a while, then lets it pass. */
static void live(struct connection *c)
{
    uint64_t quiet = hwt_timer_now(timer) + stress_below(HWT_MSEC(30));
    uint64_t now = hwt_timer_now(timer);

    atomic_store(&c->promised, now + HWT_MSEC(2));
    STRESS_OK(hwt_new_timeout_at(timer, time_out, c, now + HWT_MSEC(2), &c->timeout));
    while ((now = hwt_timer_now(timer)) < quiet)
        if (!move_own(c, now + HWT_MSEC(1) + stress_below(HWT_MSEC(2))))
            break; /* a preempted owner can be too late */
    stress_await(&c->ended, ++c->lives, "an abandoned connection");
    STRESS_CHECK(!hwt_timeout_reschedule(c->timeout, 0), "moved after it had run");
    hwt_timeout_unref(c->timeout);
}

static void *owner(void *arg)
{
    struct connection *c = arg;

    while (!atomic_load(&quit))
        live(c);
    atomic_fetch_add(&moves, c->owner_moves);
    return NULL;
}

static uint64_t exact_deadlines(hwt_wheel_kind wheel, double seconds)
{
    struct connection connections[MOVERS] = {0};
    pthread_t threads[MOVERS];
    uint64_t lives = 0;

    create(wheel);
    atomic_store(&quit, false);
    for (int i = 0; i < MOVERS; i++)
        threads[i] = stress_thread(owner, &connections[i]);
    stress_sleep((uint64_t)(seconds * 1e9));
    atomic_store(&quit, true);
    for (int i = 0; i < MOVERS; i++) {
        stress_join(threads[i]);
        STRESS_CHECK(connections[i].ended == connections[i].lives, "G2: %" PRIu64 " of %" PRIu64,
                     connections[i].ended, connections[i].lives);
        lives += connections[i].lives;
    }
    finish(0);
    return lives;
}

int main(int argc, char **argv)
{
    double each = stress_begin(argc, argv, 3) / 6;
    uint64_t lives = 0;

    for (int i = 0; i < 2; i++) {
        hwt_wheel_kind wheel = i == 0 ? HWT_WHEEL_HIERARCHICAL : HWT_WHEEL_HASHED;

        later_only(wheel, each);
        back_and_forth(wheel, each);
        lives += exact_deadlines(wheel, each);
    }
    return stress_end("stress/reschedule", "%" PRIu64 " moves, %" PRIu64 " idle connections ended",
                      atomic_load(&moves), lives);
}

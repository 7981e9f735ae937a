/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=mmap,--wrap=pthread_create,--wrap=pthread_key_create,--wrap=eventfd,--wrap=timerfd_create,--wrap=epoll_create1 */
/*
 * Every allocation, thread and descriptor that the library asks for fails in turn: the Nth alone,
 * and the Nth with all that follow. At create, start, submit, for descriptors, in the worker's own
 * work and at stop. An error leaves nothing behind, and nothing that was accepted is lost (G2).
 * With `reserve`, submission asks for nothing at all.
 */
#include "inject.h"

#include <sys/wait.h>
#include <unistd.h>

#ifndef HWT_SANITIZED
/* In the place of a LeakSanitizer that ends the process over an empty region, as newer ones do. */
void __lsan_register_root_region(const void *memory, size_t size);
void __lsan_register_root_region(const void *memory, size_t size)
{
    STRESS_CHECK(memory && size > 0, "a region of %zu bytes", size);
}
#endif

/* ---- tasks, a clock of one's own ---- */
static hwt_timer *timer;
static _Atomic uint64_t ran;
static uint64_t submitted, virtual_now;

static void count_run(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    STRESS_CHECK(hwt_timer_now(timer) >= hwt_timeout_deadline(timeout), "G1: early");
    atomic_fetch_add(&ran, 1);
}

static uint64_t read_virtual(void *clock)
{
    return *(uint64_t *)clock;
}

static hwt_config config_for(hwt_drive drive)
{
    hwt_config config;

    hwt_config_init(&config);
    config.drive = drive;
    if (drive == HWT_DRIVE_CALLER) {
        config.now = read_virtual;
        config.clock = &virtual_now;
    }
    return config;
}

static void create_worker(void)
{
    hwt_config config = config_for(HWT_DRIVE_WORKER);

    STRESS_OK(hwt_timer_create(&timer, &config));
}

static void destroy(void)
{
    STRESS_OK(hwt_timer_destroy(timer));
    timer = NULL;
}

static void submit_one_and_see_it_run(void)
{
    uint64_t before = atomic_load(&ran);

    STRESS_OK(hwt_new_timeout(timer, count_run, NULL, 0, NULL));
    stress_await(&ran, before + 1, "a timeout after the failures");
}

/* ---- create ---- */
static hwt_config tried_config;

static void try_create(void)
{
    int result = hwt_timer_create(&timer, &tried_config);

    STRESS_CHECK(result == 0 || result == -ENOMEM || result == -EMFILE, "create: %d", result);
    if (result != 0)
        timer = NULL;
}

static void destroy_if_created(void)
{
    if (timer != NULL)
        destroy();
}

enum { REFUSED, ASKED_LESS = 42 };

static int in_a_new_process(uint64_t nth, bool and_all_that_follow)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        arm(nth, and_all_that_follow);
        try_create();
        status = disarm() ? REFUSED : ASKED_LESS;
        destroy_if_created();
        _exit(status);
    }
    STRESS_CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The first timer of a process: with it comes all that is made once. */
static void fail_first_create(void)
{
    int status = REFUSED;

    tried_config = config_for(HWT_DRIVE_WORKER);
    for (unsigned follow = 0; follow < 2; follow++) {
        for (uint64_t nth = 0; (status = in_a_new_process(nth, follow)) == REFUSED; nth++)
            injected++;
        STRESS_CHECK(status == ASKED_LESS, "a process ended with %d", status);
    }
}

static void init_attr(pthread_attr_t *attr)
{
    STRESS_OK(pthread_attr_init(attr));
#ifdef __GLIBC__ /* which asks for memory to copy CPUs; musl's attributes have none */
    cpu_set_t cpus;

    STRESS_CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0, "sched_getaffinity");
    STRESS_OK(pthread_attr_setaffinity_np(attr, sizeof cpus, &cpus));
#endif
}

static void fail_create(void)
{
    pthread_attr_t attr;

    tried_config = config_for(HWT_DRIVE_WORKER);
    each_failing(try_create, nothing, destroy_if_created);
    tried_config.wheel = HWT_WHEEL_HASHED;
    tried_config.reserve = 100000;
    init_attr(&attr);
    tried_config.thread_attr = &attr;
    each_failing(try_create, nothing, destroy_if_created);
    STRESS_OK(pthread_attr_destroy(&attr));
    tried_config = config_for(HWT_DRIVE_WORKER);
    tried_config.clock_id = CLOCK_BOOTTIME;
    each_failing(try_create, nothing, destroy_if_created);
}

/* ---- start, explicit and by the first submission ---- */
static void try_start(void)
{
    int result = hwt_timer_start(timer);

    STRESS_CHECK(result == 0 || result == -EAGAIN || result == -ENOMEM, "start: %d", result);
    if (result == 0)
        return;
    disarm();
    STRESS_OK(hwt_timer_start(timer)); /* it can be started again */
}

static void try_first_submission(void)
{
    hwt_timeout *const untouched = (hwt_timeout *)&virtual_now;
    hwt_timeout *handle = untouched;
    int result = hwt_new_timeout(timer, count_run, NULL, 0, &handle);

    STRESS_CHECK(result == 0 || result == -EAGAIN || result == -ENOMEM, "submission: %d", result);
    if (result == 0) {
        disarm();
        while (!hwt_timeout_is_expired(handle))
            stress_sleep(100000);
        hwt_timeout_unref(handle);
        return;
    }
    STRESS_CHECK(handle == untouched, "an error of %d touched the handle", result);
    STRESS_CHECK(hwt_timer_pending(timer) == 0, "an error left something pending");
    STRESS_CHECK(stress_stats(timer).scheduled == 0, "an error was counted as scheduled");
}

static void use_and_destroy(void)
{
    submit_one_and_see_it_run();
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    destroy();
}

/* ---- submit: the population grows, so that memory must too ---- */
enum { POPULATION = 50000, MOST = 8 * POPULATION };

static int submit_one(int number, uint64_t *accepted)
{
    hwt_timeout *const untouched = (hwt_timeout *)&virtual_now;
    hwt_timeout *handle = untouched;
    hwt_spec spec;
    int result;

    hwt_spec_init(&spec);
    spec.task = count_run;
    spec.delay_ns = HWT_SEC(3600) + stress_below(HWT_SEC(3600));
    spec.cancelled = number % 4 == 0 ? count_run : NULL; /* needs more memory than one without */
    result = hwt_schedule(timer, &spec, &handle);
    STRESS_CHECK(result == 0 || result == -ENOMEM, "submission: %d", result);
    STRESS_CHECK((handle == untouched) == (result != 0), "%d, and the handle?", result);
    if (result == 0)
        hwt_timeout_unref(handle);
    *accepted += result == 0;
    return result;
}

/* Memory is mapped ahead: it may take more of them until some is asked for. */
static void try_submit(void)
{
    for (int i = 0; i < POPULATION || (i < MOST && is_to_come()); i++)
        if (submit_one(i, &submitted) != 0 && stress_one_in(2000))
            STRESS_CHECK(hwt_timer_pending(timer) == submitted, "an error left something pending");
}

static void check_submitted(void)
{
    STRESS_CHECK(stress_stats(timer).scheduled == submitted, "%" PRIu64 " accepted", submitted);
    STRESS_CHECK(hwt_timer_pending(timer) == submitted, "an error left something pending");
}

static void *submit_in_a_thread(void *arg)
{
    try_submit();
    return arg;
}

/* A new thread has nothing put by, not even where to put it. The thread itself may start. */
static void fail_submit_of_new_thread(void)
{
    pthread_t thread;

    arm(1, true);
    STRESS_OK(pthread_create(&thread, NULL, submit_in_a_thread, NULL));
    stress_join(thread);
    disarm();
    check_submitted();
}

static void take_all_back(void)
{
    hwt_unprocessed list = {0};

    STRESS_OK(hwt_timer_stop(timer, &list));
    STRESS_CHECK(list.count == submitted, "%zu handed back of %" PRIu64, list.count, submitted);
    for (hwt_timeout *t; (t = hwt_unprocessed_take(&list)) != NULL;)
        hwt_timeout_unref(t);
    stress_check_balance(timer);
    destroy();
}

/*
 * The first timer keeps its population meanwhile, or the second would find enough put by. Each
 * comes to two million, for which a sanitizer takes a minute: there one wheel is drawn.
 */
static void fail_submit(void)
{
    hwt_timer *timers[2];
    uint64_t population[2];
    const int wheels = STRESS_SANITIZED ? 1 : 2;
    const int first = STRESS_SANITIZED ? (int)stress_below(2) : 0;

    virtual_now = HWT_SEC(1000);
    for (int i = 0; i < wheels; i++) {
        hwt_config config = config_for(HWT_DRIVE_CALLER);

        config.wheel = (hwt_wheel_kind)(first + i);
        submitted = 0;
        STRESS_OK(hwt_timer_create(&timer, &config));
        each_failing(try_submit, nothing, check_submitted);
        fail_submit_of_new_thread();
        timers[i] = timer;
        population[i] = submitted;
    }
    for (int i = 0; i < wheels; i++) {
        timer = timers[i];
        submitted = population[i];
        take_all_back();
    }
}

/* ---- the runtime's own work: filing, cascading, expiring, stopping ---- */
enum { SPREAD = STRESS_SANITIZED ? 3000 : 20000 };
static uint64_t periodic_runs;

static void count_periodic(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    periodic_runs++;
}

/* Spread so that every slot of several levels needs room, and due within a virtual hour. */
static void submit_spread(void)
{
    hwt_spec spec;

    for (uint64_t i = 0; i < SPREAD; i++)
        STRESS_OK(hwt_new_timeout(timer, count_run, NULL,
                                  stress_below(i % 2 ? HWT_SEC(2) : HWT_SEC(3600)), NULL));
    hwt_spec_init(&spec);
    spec.task = count_periodic;
    spec.delay_ns = spec.period_ns = HWT_SEC(60);
    STRESS_OK(hwt_schedule(timer, &spec, NULL));
}

static void advance_an_hour(void)
{
    uint64_t end = virtual_now + HWT_SEC(3600) + HWT_SEC(1);

    while (virtual_now < end) {
        virtual_now += 1 + stress_below(HWT_SEC(20));
        STRESS_CHECK(hwt_timer_advance(timer) >= 0, "advance");
        hwt_timer_next_deadline(timer);
    }
}

static void fail_collecting(uint64_t nth, hwt_wheel_kind wheel)
{
    hwt_config config = config_for(HWT_DRIVE_CALLER);
    uint64_t before = atomic_load(&ran);

    config.wheel = wheel;
    periodic_runs = 0;
    STRESS_OK(hwt_timer_create(&timer, &config));
    submit_spread();
    arm(nth, true);
    advance_an_hour();
    injected += atomic_load(&failed);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    disarm();
    STRESS_CHECK(atomic_load(&ran) - before == SPREAD, "G2: %" PRIu64 " of %d ran",
                 atomic_load(&ran) - before, SPREAD);
    STRESS_CHECK(periodic_runs == 60, "G14: %" PRIu64 " of 60 periodic runs", periodic_runs);
    stress_check_balance(timer);
    destroy();
}

static void wait_for_release(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    while (!atomic_load((_Atomic bool *)arg))
        stress_sleep(100000);
}

/* The same with a worker: all is submitted while it is held, and then nothing can be allocated. */
static void fail_worker(hwt_wheel_kind wheel)
{
    hwt_config config = config_for(HWT_DRIVE_WORKER);
    uint64_t before = atomic_load(&ran);
    _Atomic bool release = false;
    hwt_timeout *moved;

    config.wheel = wheel;
    config.tick_ns = HWT_USEC(100);
    STRESS_OK(hwt_timer_create(&timer, &config));
    STRESS_OK(hwt_new_timeout(timer, wait_for_release, &release, 0, NULL));
    for (int i = 0; i < SPREAD; i++)
        STRESS_OK(hwt_new_timeout(timer, count_run, NULL, stress_below(HWT_MSEC(300)), NULL));
    STRESS_OK(hwt_new_timeout(timer, count_run, NULL, HWT_SEC(3600), &moved));
    arm(0, true);
    atomic_store(&release, true);
    STRESS_CHECK(hwt_timeout_reschedule(moved, HWT_MSEC(10)), "a move without memory");
    stress_await(&ran, before + SPREAD + 1, "timeouts of a worker that cannot allocate");
    STRESS_OK(hwt_timer_stop(timer, NULL));
    disarm();
    injected += atomic_load(&failed);
    hwt_timeout_unref(moved);
    stress_check_balance(timer);
    destroy();
}

/* ---- descriptors ---- */
static void create_caller(void)
{
    hwt_config config;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    STRESS_OK(hwt_timer_create(&timer, &config));
}

static void try_fd(void)
{
    int fd = hwt_timer_fd(timer);

    STRESS_CHECK(fd >= 0 || fd == -EMFILE || fd == -ENOMEM, "fd: %d", fd);
}

static void use_fd_and_destroy(void)
{
    uint64_t before = atomic_load(&ran);

    STRESS_CHECK(hwt_timer_fd(timer) >= 0, "fd, the second time");
    STRESS_OK(hwt_new_timeout(timer, count_run, NULL, 0, NULL));
    STRESS_CHECK(hwt_timer_advance(timer) == 1 && atomic_load(&ran) == before + 1, "advance");
    destroy();
}

/* ---- reserve ---- */
enum { RESERVE = 3000 };
static hwt_timeout *reserved[RESERVE];

static void submit_reserved(void)
{
    for (int i = 0; i < RESERVE; i++)
        STRESS_OK(hwt_new_timeout(timer, count_run, NULL, HWT_SEC(3600) + stress_below(HWT_SEC(60)),
                                  &reserved[i]));
}

static void cancel_reserved(void)
{
    for (int i = 0; i < RESERVE; i++) {
        STRESS_CHECK(hwt_timeout_cancel(reserved[i]), "it was not pending");
        hwt_timeout_unref(reserved[i]);
    }
}

static void *use_reserve(void *arg)
{
    for (int i = 0; i < 3; i++) {
        submit_reserved();
        cancel_reserved();
    }
    return arg;
}

/* From the first submission on, in this thread and then in another, no memory is asked for. */
static void check_reserve(hwt_wheel_kind wheel)
{
    hwt_config config = config_for(HWT_DRIVE_WORKER);
    uint64_t before;

    config.wheel = wheel;
    config.reserve = RESERVE;
    STRESS_OK(hwt_timer_create(&timer, &config));
    STRESS_OK(hwt_timer_start(timer));
    before = atomic_load(&asked_memory);
    use_reserve(NULL);
    stress_join(stress_thread(use_reserve, NULL));
    STRESS_CHECK(atomic_load(&asked_memory) == before, "reserve: %" PRIu64 " allocations",
                 atomic_load(&asked_memory) - before);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    destroy();
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv, 1);
    fail_first_create();
    check_reserve(HWT_WHEEL_HIERARCHICAL);
    check_reserve(HWT_WHEEL_HASHED);
    fail_submit(); /* before the large reserve of fail_create, which would serve it */
    fail_create();
    each_failing(try_start, create_worker, use_and_destroy);
    each_failing(try_first_submission, create_worker, use_and_destroy);
    for (int wheel = 0; wheel < 2; wheel++) {
        for (uint64_t nth = 0; nth < 4; nth++)
            fail_collecting(nth * nth * nth, (hwt_wheel_kind)wheel);
        fail_worker((hwt_wheel_kind)wheel);
    }
    each_failing(try_fd, create_caller, use_fd_and_destroy);
    STRESS_CHECK(injected > 20, "only %" PRIu64 " failures were injected", injected);
    return stress_end("fault/alloc", "%" PRIu64 " failures injected, %" PRIu64 " requests in all",
                      injected, atomic_load(&asked));
}

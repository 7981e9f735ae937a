/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads, locks, keys and forks, as far as the library uses them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#include "sim.h"
#include "system.h"
#include "tls.h"

#define PC ((uintptr_t)__builtin_return_address(0))

const ptrdiff_t sim_rseq_offset = 0;
const unsigned sim_rseq_size = 0; /* there is none: sched_getcpu is asked */

static bool fails(void)
{
    return sim_choose(EVENT_FAIL, 1, sim_fail_one_in) > 0;
}

/* ---- threads ---- */

int sim_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                       void *arg)
{
    struct sim_thread *made;

    (void)attr;
    sim_point(PC, 0);
    memory_drain(sim_current);
    if (fails())
        return EAGAIN;
    made = sim_spawn(start, arg);
    if (!made)
        return EAGAIN;
    SIM_CHECK(sim_current->blocks_signals, "G13: a worker is made that takes signals");
    *thread = (pthread_t)made->index;
    return 0;
}

static void join_thread(unsigned index)
{
    struct sim_thread *thread = &sim_threads[index];

    SIM_CHECK(thread != sim_current, "a thread joins itself");
    SIM_CHECK(!thread->joined, "a thread is joined twice");
    while (thread->state != OVER)
        sim_wait((uintptr_t)thread, UINT64_MAX, "a thread's end");
    thread->joined = true;
    memory_join_clock(thread);
}

int sim_pthread_join(pthread_t thread, void **result)
{
    sim_point(PC, 0);
    SIM_CHECK(sim_current->locks == 0, "joins a thread under a lock");
    join_thread((unsigned)thread);
    if (result)
        *result = sim_threads[(unsigned)thread].result;
    return 0;
}

unsigned sim_start(void *(*start)(void *), void *arg)
{
    struct sim_thread *made = sim_spawn(start, arg);

    SIM_CHECK(made, "the world has too many threads");
    return made->index;
}

void sim_join(unsigned thread)
{
    join_thread(thread);
}

int sim_pthread_setcancelstate(int state, int *before)
{
    (void)state;
    if (before)
        *before = PTHREAD_CANCEL_ENABLE;
    return 0;
}

int sim_pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    static bool was;

    (void)how;
    if (before)
        was = sim_current->blocks_signals;
    sim_current->blocks_signals = before ? sigismember(set, SIGTERM) == 1 : was;
    return 0;
}

/* As the C library does it: frames are left one by one, and those with something to do do it. */
static _Unwind_Reason_Code leave_frame(int version, _Unwind_Action actions,
                                       _Unwind_Exception_Class exception_class,
                                       struct _Unwind_Exception *exception,
                                       struct _Unwind_Context *context, void *arg)
{
    (void)version;
    (void)exception_class;
    (void)exception;
    (void)context;
    (void)arg;
    if (actions & _UA_END_OF_STACK)
        sim_end_thread();
    return _URC_NO_REASON;
}

void sim_pthread_exit(void *result)
{
    static struct _Unwind_Exception exceptions[SIM_THREADS];
    struct _Unwind_Exception *exception = &exceptions[sim_current->index];

    sim_current->result = result;
    memset(exception, 0, sizeof *exception);
    _Unwind_ForcedUnwind(exception, leave_frame, NULL);
    sim_end_thread(); /* no tables for what is above */
}

/* ---- locks: what lies in the caller's memory is ours to lay out ---- */

struct lock {
    uint32_t held_by; /* a thread and 1 */
    uint32_t destroyed;
};

const void *sim_forbidden_lock;

static struct lock *lock_of(pthread_mutex_t *mutex)
{
    return (struct lock *)(void *)mutex;
}

int sim_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
    (void)attr;
    memset(mutex, 0, sizeof *mutex);
    return 0;
}

int sim_pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    SIM_CHECK(lock_of(mutex)->held_by == 0, "a lock is destroyed that is held");
    lock_of(mutex)->destroyed = 1;
    return 0;
}

int sim_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    struct lock *lock = lock_of(mutex);

    sim_point(PC, (uintptr_t)mutex);
    memory_drain(sim_current);
    SIM_CHECK(!sim_current->may_not_wait || mutex != sim_forbidden_lock, "G7: %s takes a lock",
              sim_current->may_not_wait);
    SIM_CHECK(!lock->destroyed, "a lock is used after its end");
    SIM_CHECK(!memory_is_poisoned(mutex), "a lock is used whose memory is free");
    SIM_CHECK(lock->held_by != sim_current->index + 1, "a thread waits for its own lock");
    if (sim_history->tracing)
        trace_add(TRACE_CALL, PC, (uintptr_t)mutex, 0, 0, "lock");
    while (lock->held_by) {
        const char *before = sim_current->may_not_wait;
        sim_current->may_not_wait = NULL; /* which locks it may take is asked elsewhere */
        sim_wait((uintptr_t)mutex, UINT64_MAX, "a lock");
        sim_current->may_not_wait = before;
    }
    lock->held_by = sim_current->index + 1;
    sim_current->locks++;
    memory_acquire((uintptr_t)mutex);
    return 0;
}

static void unlock(pthread_mutex_t *mutex)
{
    struct lock *lock = lock_of(mutex);

    SIM_CHECK(lock->held_by == sim_current->index + 1, "a lock is given up that is not held");
    memory_release((uintptr_t)mutex);
    lock->held_by = 0;
    sim_current->locks--;
    sim_wake((uintptr_t)mutex, true);
}

int sim_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    sim_point(PC, (uintptr_t)mutex);
    memory_drain(sim_current);
    unlock(mutex);
    return 0;
}

int sim_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr)
{
    (void)attr;
    memset(cond, 0, sizeof *cond);
    return 0;
}

int sim_pthread_cond_destroy(pthread_cond_t *cond)
{
    for (unsigned i = 0; i < sim_thread_count; i++)
        SIM_CHECK(sim_threads[i].state != WAITING || sim_threads[i].wait_key != (uintptr_t)cond,
                  "a condition is destroyed that thread %u waits for", i);
    return 0;
}

int sim_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    sim_point(PC, (uintptr_t)cond);
    memory_drain(sim_current);
    SIM_CHECK(sim_current->locks == 1, "waits for a condition under another lock");
    unlock(mutex);
    if (!fails() && !sim_choose(EVENT_FAIL, 1, sim_interrupt_one_in)) /* else spurious */
        sim_wait((uintptr_t)cond, UINT64_MAX, "a condition");
    return sim_pthread_mutex_lock(mutex);
}

int sim_pthread_cond_broadcast(pthread_cond_t *cond)
{
    sim_point(PC, (uintptr_t)cond);
    sim_wake((uintptr_t)cond, true);
    return 0;
}

int sim_pthread_once(pthread_once_t *once, void (*routine)(void))
{
    uint32_t *state = (uint32_t *)(void *)once;

    sim_point(PC, (uintptr_t)once);
    while (*state == 1)
        sim_wait((uintptr_t)once, UINT64_MAX, "pthread_once");
    if (*state == 0) {
        *state = 1;
        routine();
        *state = 2;
        memory_release((uintptr_t)once);
        sim_wake((uintptr_t)once, true);
    }
    memory_acquire((uintptr_t)once);
    return 0;
}

/* ---- keys ---- */

#define KEYS 8
static struct {
    bool used;
    void (*destructor)(void *);
} keys[KEYS];

int sim_pthread_key_create(pthread_key_t *key, void (*destructor)(void *))
{
    sim_point(PC, 0);
    for (unsigned i = 0; i < KEYS && !fails(); i++) {
        if (!keys[i].used) {
            keys[i].used = true;
            keys[i].destructor = destructor;
            *key = (pthread_key_t)i;
            return 0;
        }
    }
    return EAGAIN;
}

int sim_pthread_key_delete(pthread_key_t key)
{
    if (!sim_current) /* the end of the process */
        return 0;
    SIM_CHECK(key < KEYS && keys[key].used, "a key is deleted that is none");
    keys[key].used = false;
    return 0;
}

int sim_pthread_setspecific(pthread_key_t key, const void *value)
{
    sim_point(PC, 0);
    SIM_CHECK(key < KEYS && keys[key].used, "a key is used that is none");
    if (fails())
        return ENOMEM;
    memcpy(&sim_current->specific[key], &value, sizeof value);
    return 0;
}

void pthread_run_destructors(void)
{
    for (unsigned i = 0; i < KEYS; i++) {
        void *value = sim_current->specific[i];
        sim_current->specific[i] = NULL;
        if (value && keys[i].used && keys[i].destructor)
            keys[i].destructor(value);
    }
}

/* ---- forks ---- */

static struct {
    void (*before)(void), (*parent)(void), (*child)(void);
} handlers[4];
static unsigned handler_count;
static bool in_child;
static void (*end_of_child)(void); /* of one that goes on after the fork */
static int child_says[2];
static pid_t pid;

int sim_pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
    if (handler_count == 4)
        return ENOMEM;
    handlers[handler_count].before = before;
    handlers[handler_count].parent = parent;
    handlers[handler_count].child = child;
    handler_count++;
    return 0;
}

static unsigned first_handlers;

void pthread_set_up(void)
{
    first_handlers = handler_count; /* those of the library's constructors */
}

void pthread_reset(void)
{
    memset(keys, 0, sizeof keys);
    handler_count = first_handlers;
    pid = 1000;
}

pid_t sim_getpid(void)
{
    sim_point(PC, 0);
    return pid;
}

/* The end of a forked child's history: what it has to say goes to its parent. */
void pthread_end_child(void)
{
    ssize_t written = 0;

    if (!in_child)
        return;
    if (sim_history->failed)
        written = write(child_says[1], sim_history->message, strlen(sim_history->message) + 1);
    _exit(sim_history->failed || written < 0);
}

static void await_child(pid_t child)
{
    char message[sizeof sim_history->message];
    ssize_t length = 0, more;
    int status = 0;

    close(child_says[1]);
    while (length < (ssize_t)sizeof message - 1 &&
           (more = read(child_says[0], message + length, sizeof message - 1 - (size_t)length)) > 0)
        length += more;
    message[length] = '\0';
    close(child_says[0]);
    waitpid(child, &status, 0);
    SIM_CHECK(status == 0, "in the forked child: %.400s", length ? message : "it died");
}

/* True: in the child. */
static bool do_fork(void)
{
    pid_t made;

    for (unsigned i = handler_count; i-- > 0;)
        handlers[i].before();
    sim_point(PC, 0);
    memory_drain(sim_current);
    if (pipe(child_says) != 0 || (made = fork()) < 0)
        sim_fail("the simulator cannot fork");
    if (made == 0) {
        close(child_says[0]);
        in_child = true;
        pid++;
        sim_alone();
        for (unsigned i = 0; i < handler_count; i++)
            handlers[i].child();
        memory_drain(sim_current); /* the oracle reads what is in memory */
        return true;
    }
    await_child(made);
    for (unsigned i = 0; i < handler_count; i++)
        handlers[i].parent();
    return false;
}

void sim_fork(void (*child)(void *arg), void *arg)
{
    if (!do_fork())
        return;
    child(arg);
    pthread_end_child();
}

bool sim_fork_here(void (*at_end)(void))
{
    if (!do_fork())
        return false;
    end_of_child = at_end;
    return true;
}

void sim_end_child(void)
{
    void (*at_end)(void) = end_of_child;

    end_of_child = NULL;
    if (at_end)
        at_end();
    pthread_end_child();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A deterministic scheduler for the library as it is shipped. The objects of src/ are compiled with
 * the compiler's marks for ThreadSanitizer, and linked with a runtime of ours instead: so every
 * atomic access is a call, and a point at which another thread may go on. What they ask of the
 * system (threads, locks, clocks, descriptors, memory) is renamed in the objects (system.syms), and
 * answered here. Threads are fibers of one thread, time is virtual, all chance comes from a seed.
 *
 * A history is one run of a world (world.h) from the same beginning. Whatever happens in it that
 * need not happen (a switch, time that passes, a store that leaves its buffer, memory that runs
 * out) is an event: thread, step of that thread, what. The same events give the same history; to
 * shrink one is to leave events out.
 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>

#define SIM_THREADS 8

/* ---- chance ---- */

struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *rng);
uint32_t rng_below(struct rng *rng, uint32_t bound);

/* ---- events: what the history chose ---- */

enum event_kind {
    EVENT_SWITCH, /* value: the thread that goes on */
    EVENT_TIME,   /* value: how much passes */
    EVENT_FLUSH,  /* value: a thread and one of its buffered stores */
    EVENT_FAIL,   /* a call of the system fails or is interrupted */
    EVENT_CHOICE, /* the world's own */
};

struct event {
    uint32_t step; /* of that thread */
    uint8_t thread;
    uint8_t kind;
    uint16_t value;
};

struct event_list {
    struct event *event;
    unsigned count, room;
};
void events_add(struct event_list *list, struct event event);
void events_copy(struct event_list *to, const struct event_list *from);

/* ---- strategies ---- */

enum strategy {
    STRATEGY_RANDOM,
    STRATEGY_PCT,
    STRATEGY_STRAGGLER,
    STRATEGY_EXHAUSTIVE,
    STRATEGY_COUNT,
};
extern const char *const strategy_names[STRATEGY_COUNT];

enum buffering { BUFFER_NONE, BUFFER_TSO, BUFFER_PSO };
extern const char *const buffering_names[3];

/* ---- one history ---- */

struct history {
    enum strategy strategy;
    enum buffering buffering;
    uint64_t seed; /* of the events; the program is the world's affair */
    bool replay;   /* `events` says what happens; otherwise they are written down there */
    bool tracing;
    bool choices; /* exhaustive: write down where there was a choice */
    struct event_list events;
    unsigned expected; /* points: a guess, for PCT and stragglers */
    /* results */
    uint64_t points, switches;
    bool failed;
    char message[512];
};

/* Runs `main` as thread 0. */
void sim_run(struct history *history, void (*main)(void *arg), void *arg);

/* From anywhere inside a history: it has failed, and this does not return. */
void sim_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
#define SIM_CHECK(condition, ...) ((condition) ? (void)0 : sim_fail(__VA_ARGS__))

/* Exhaustive: where the last history could have gone elsewhere. */
struct decision {
    uint32_t step;
    uint8_t thread;
    uint8_t others; /* a bit for each thread that could have gone on instead */
    bool free;      /* the thread could not go on anyway: no preemption */
};
extern struct decision *sim_decisions;
extern unsigned sim_decision_count;

/* ---- threads ---- */

enum wait_state { READY, WAITING, SUSPENDED, OVER };

/* Store buffers. */
struct buffered {
    uintptr_t address;
    uint64_t value;
    uint8_t size;
    bool release;
    uint32_t clock[SIM_THREADS]; /* of the thread, when it stored */
};
#define BUFFERED_MOST 6

struct sim_thread {
    unsigned index;
    enum wait_state state;
    uint32_t step; /* of its own choices */
    /* WAITING: for what, and until when at most */
    uintptr_t wait_key;
    uint64_t wait_until;
    bool woken, timed_out, timed_out_before;
    const char *waits_for;
    uintptr_t pc; /* of its last point */
    /* happens-before */
    uint32_t clock[SIM_THREADS], acquired[SIM_THREADS], released[SIM_THREADS];
    struct buffered buffer[BUFFERED_MOST];
    unsigned buffered;
    /* pthread.c */
    void *(*start)(void *);
    void *arg, *result;
    void *specific[8];
    bool joined, blocks_signals;
    unsigned locks;
    uint32_t asks_cpu; /* kernel.c: so often it has */
    /* the world's: in a call that must not wait (G7) */
    const char *may_not_wait;
    unsigned setting; /* has set a descriptor: points until it has looked whether that is wanted */
    /* strategy */
    int priority;
    uint32_t suspend_at, suspend_for;
    bool suspend_after_change; /* there, or behind the next change of memory that it makes */
    bool changed;              /* by its last access */
    uint32_t writes, suspend_at_write; /* ... or at that one of its writes; 0: not so */
};

extern struct sim_thread *sim_current; /* NULL: outside a history */
extern struct sim_thread sim_threads[SIM_THREADS];
extern unsigned sim_thread_count;
extern struct history *sim_history;

/* A new thread, ready to run. NULL: there are too many. */
struct sim_thread *sim_spawn(void *(*start)(void *), void *arg);
/* This thread ends here. */
void sim_end_thread(void) __attribute__((noreturn));
/* In a forked child: this thread is the only one. */
void sim_alone(void);

/* Another thread may go on here. */
void sim_point(uintptr_t pc, uintptr_t address);
/* The same, before something that others will notice. */
void sim_write_point(uintptr_t pc, uintptr_t address);
/* This one has nothing to do until others have. */
void sim_yield(uintptr_t pc);
/* Waits until sim_wake(key), or virtual time `until`. True: woken. */
bool sim_wait(uintptr_t key, uint64_t until, const char *what);
void sim_wake(uintptr_t key, bool all);
/* The world's: this thread is about to wait, its state says for what. */
extern void (*sim_when_waiting)(void);

/* 0, or now and then (one in so many) 1 to `options`. */
unsigned sim_choose(enum event_kind kind, unsigned options, unsigned one_in);
/* While it is above 0 nothing is chosen: no switches, no failures. */
extern int sim_calm;
/* One in so many calls of the system that can fail does; 0: none. */
extern unsigned sim_fail_one_in;
/* One in so many times the system keeps pages that could go; 0: none. */
extern unsigned sim_stay_one_in;
/* One in so many waits is interrupted, or ends for no reason, besides. */
extern unsigned sim_interrupt_one_in;
/* One in so many points lets time pass; 0: only when all wait. `sim_time_step`: a tick, about. */
extern unsigned sim_time_one_in;
extern uint64_t sim_time_step;
extern bool sim_clock_jumps; /* now and then far ahead */
extern uint64_t sim_now;
extern bool sim_one_cpu;           /* that all threads are on */
extern bool sim_wanders;           /* otherwise: each goes from one CPU to the other */
extern unsigned sim_stays;         /* or all of them do, after so many questions */
extern unsigned sim_asks;          /* so many there were */
extern size_t sim_no_maps_from;    /* maps of so many bytes fail */
extern bool sim_no_chunks;         /* nor is there memory for anything else that is aligned */
extern void (*sim_all_wait)(void); /* called before time passes because all wait */
extern void (*sim_pages_go)(void); /* called when pages go back to the system */

/* ---- memory.c ---- */

void memory_reset(void); /* all of the library as it was in the beginning */
void memory_set_up(void);
/* A store of this thread leaves its buffer; all of them. */
void memory_flush_one(struct sim_thread *thread, unsigned which);
void memory_drain(struct sim_thread *thread);
/* How many of a thread's stores may leave now: their numbers. */
unsigned memory_can_flush(const struct sim_thread *thread, unsigned *which);
/* Edges between threads that the library does not make itself: locks, and the world's hands. */
void memory_release(uintptr_t address);
void memory_acquire(uintptr_t address);
void memory_fork_clock(struct sim_thread *child);
void memory_join_clock(const struct sim_thread *ended);
/* The world's own plain accesses, checked as those of the library. */
void sim_plain_read(const void *address, size_t size);
void sim_plain_write(void *address, size_t size);
/* Pieces of memory that are given out. */
void *memory_take(size_t size, size_t alignment);
void memory_give(void *memory);
void memory_unmap(void *memory, size_t size);
bool memory_is_poisoned(const void *address);
void memory_clear_pages(void *memory, size_t size);
extern size_t memory_used;
/* Blocks of the pool in use: births without a death. */
extern long memory_blocks_alive;
bool memory_is_shared(uintptr_t address);

/* ---- trace.c ---- */

enum trace_kind { TRACE_LOAD, TRACE_STORE, TRACE_CHANGE, TRACE_FAILED, TRACE_CALL, TRACE_WORLD };
void trace_set_up(void);
void trace_reset(void);
void trace_add(enum trace_kind kind, uintptr_t pc, uintptr_t address, uint64_t before,
               uint64_t after, const char *what);
/* From the world: what a thread does now. */
void trace_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void trace_print(void);
void trace_reached(uintptr_t pc, bool switched);
void trace_report(bool lines);
/* The states seen: a sketch, by their hashes. */
void trace_state(uint64_t hash);
double trace_states(void);
/* A name for an address, by the world. */
extern const char *(*trace_name_of)(uintptr_t address, char *buffer, size_t size);

/* ---- kernel.c, pthread.c ---- */

void kernel_reset(void);
void pthread_reset(void);
void pthread_set_up(void);
void pthread_run_destructors(void);
void pthread_end_child(void); /* a forked child goes no further than the end of its history */
/* A thread of the world's; it counts as one of the history's. */
unsigned sim_start(void *(*start)(void *), void *arg);
void sim_join(unsigned thread);
void sim_sleep(uint64_t ns);
/* No call that must not wait takes this one (G7). */
extern const void *sim_forbidden_lock;
/* Until the descriptor is readable, or that time. */
bool sim_wait_readable(int fd, uint64_t until);
/*
 * Until it becomes readable: once for each time that it is set, one of all who wait for that. (As
 * threads on one epoll, edge-triggered.) False: it is over.
 */
bool sim_wait_edge(int fd, const bool *over);
void sim_end_edges(bool *over);
bool sim_is_readable(int fd);
/* When it becomes readable as it is set now: UINT64_MAX never. */
uint64_t sim_readable_at(int fd);
/* fork(): the child goes on alone, to the end of `child`; its failures are the history's. */
void sim_fork(void (*child)(void *arg), void *arg);
/* The same; true: in the child, which goes on from here until its thread or this ends it. */
bool sim_fork_here(void (*at_end)(void));
void sim_end_child(void);

#endif

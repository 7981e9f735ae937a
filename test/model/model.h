/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the relacy models share. A model is a struct with threads, written with the memory orders of
 * the code in src/, and a list of mutants: the same model with one rule broken. The true model must
 * survive its interleavings, and every mutant must be caught, or the model proves nothing.
 *
 * Plain variables need no protection here: relacy runs the threads as coroutines, and switches only
 * before an atomic operation. They serve for the books that the assertions are made from, and what
 * follows an atomic operation up to the next one happens at the same moment as it.
 */
#ifndef HWT_MODEL_H
#define HWT_MODEL_H

#include <cstdio>
#include <ostream>
#include <streambuf>

#include <relacy/relacy.hpp>

#define RELAXED rl::mo_relaxed, $
#define ACQUIRE rl::mo_acquire, $
#define RELEASE rl::mo_release, $
#define ACQ_REL rl::mo_acq_rel, $
#define SEQ     rl::mo_seq_cst, $

/*
 * Relacy's random choice of the next thread is fair, so that it hardly ever leaves one of them
 * behind for long, and just that is what protocols break on. Hence every thread may once be
 * preempted for a while, before any of its steps.
 */
enum { MODEL_THREADS = 8 };

struct model_preemption {
    unsigned step, at, length;
};

static model_preemption model_preempted[MODEL_THREADS];

/* The first thing in every before(): nobody is preempted until that has returned. */
struct model_setup {
    const unsigned threads, steps;

    model_setup(unsigned of_threads, unsigned of_steps) : threads(of_threads), steps(of_steps)
    {
        for (model_preemption &p : model_preempted)
            p = {1, 0, 0};
    }

    ~model_setup()
    {
        for (unsigned i = 0; i < threads; i++)
            model_preempted[i] = {0, rl::rand(2 * steps), 1 + rl::rand(4 * steps)};
    }
};

static inline void model_step(rl::debug_info_param info)
{
    unsigned index = rl::thread_index();

    if (index >= MODEL_THREADS)
        return; /* before() and after() */
    model_preemption &mine = model_preempted[index];
    if (mine.step++ == mine.at) {
        for (unsigned i = 0; i < mine.length; i++)
            rl::yield(1, info);
    }
}

/* Where it matters most, a thread may be preempted once more. */
static inline void model_dawdle(unsigned steps, rl::debug_info_param info)
{
    if (rl::rand(2))
        return;
    for (unsigned i = rl::rand(steps); i > 0; i--)
        rl::yield(1, info);
}

#define MODEL_STEP model_step($)

/* The vocabulary of src/atomic.h. */
#define load_relaxed(a)        (MODEL_STEP, (a).load(RELAXED))
#define load_acquire(a)        (MODEL_STEP, (a).load(ACQUIRE))
#define load_seq(a)            (MODEL_STEP, (a).load(SEQ))
#define store_relaxed(a, v)    (MODEL_STEP, (a).store((v), RELAXED))
#define store_release(a, v)    (MODEL_STEP, (a).store((v), RELEASE))
#define store_seq(a, v)        (MODEL_STEP, (a).store((v), SEQ))
#define exchange_seq(a, v)     (MODEL_STEP, (a).exchange((v), SEQ))
#define exchange_acq_rel(a, v) (MODEL_STEP, (a).exchange((v), ACQ_REL))
#define exchange_relaxed(a, v) (MODEL_STEP, (a).exchange((v), RELAXED))
#define add_relaxed(a, v)      (MODEL_STEP, (a).fetch_add((v), RELAXED))
#define add_release(a, v)      (MODEL_STEP, (a).fetch_add((v), RELEASE))
#define add_seq(a, v)          (MODEL_STEP, (a).fetch_add((v), SEQ))
#define add_acq_rel(a, v)      (MODEL_STEP, (a).fetch_add((v), ACQ_REL))
#define or_seq(a, v)           (MODEL_STEP, (a).fetch_or((v), SEQ))
#define or_relaxed(a, v)       (MODEL_STEP, (a).fetch_or((v), RELAXED))
#define sub_acq_rel(a, v)      (MODEL_STEP, (a).fetch_sub((v), ACQ_REL))
/* acq_rel reads with acquire when it fails, as there. */
#define cas_acq_rel(a, e, v)   (MODEL_STEP, (a).compare_exchange_strong((e), (v), ACQ_REL))
#define cas_seq(a, e, v)       (MODEL_STEP, (a).compare_exchange_strong((e), (v), SEQ))
#define cas_release(a, e, v)   (MODEL_STEP, (a).compare_exchange_strong((e), (v), RELEASE))
#define cas_relaxed(a, e, v)   (MODEL_STEP, (a).compare_exchange_strong((e), (v), RELAXED))

/* Which rule is broken; 0: none, the true model. */
static int mutant;

struct model_case {
    int mutant;
    const char *what;
};

/* Corners that a true model must have been to: model_corner(x) counts, model_check insists. */
static unsigned long model_corners[64];

static inline void model_corner(unsigned corner)
{
    model_corners[corner] += mutant == 0;
}

/* What relacy writes about a failure. It never grows: relacy replaces operator new meanwhile. */
struct model_report : std::streambuf {
    char text[1 << 18];

    model_report()
    {
        setp(text, text + sizeof text);
    }
    void print()
    {
        fwrite(text, 1, (size_t)(pptr() - text), stdout);
    }
};

template <typename Model>
static bool explore(unsigned long iterations, rl::test_params &params, model_report &report)
{
    std::ostream out(&report);

    params.iteration_count = iterations;
    params.output_stream = &out;
    params.progress_stream = &out;
    params.search_type = rl::sched_random;
    params.execution_depth_limit = 20000;
    return rl::simulate<Model>(params);
}

/* The true model: no failure in so many interleavings. */
template <typename Model> static bool model_holds(const char *what, unsigned long iterations)
{
    static model_report report;
    rl::test_params params;

    mutant = 0;
    if (explore<Model>(iterations, params, report)) {
        printf("  holds   %s: %lu interleavings\n", what, iterations);
        return true;
    }
    report.print();
    printf("  FAILS   %s: %s in interleaving %lu\n", what, rl::test_result_str(params.test_result),
           (unsigned long)params.stop_iteration);
    return false;
}

/* A mutant: a failure within so many. */
template <typename Model>
static bool model_caught(const model_case &broken, unsigned long iterations)
{
    static model_report report;
    rl::test_params params;
    bool survived;

    mutant = broken.mutant;
    survived = explore<Model>(iterations, params, report);
    mutant = 0;
    if (survived) {
        printf("  MISSED  %s: not caught in %lu interleavings\n", broken.what, iterations);
        return false;
    }
    printf("  caught  %s: %s in interleaving %lu\n", broken.what,
           rl::test_result_str(params.test_result), (unsigned long)params.stop_iteration);
    return true;
}

/* All of it; the last line is the summary. */
template <typename Model, unsigned Count>
static bool model_check(const char *what, const model_case (&mutants)[Count],
                        unsigned long iterations, unsigned corners = 0, unsigned first_corner = 0)
{
    bool good = model_holds<Model>(what, iterations);

    for (unsigned i = first_corner; i < corners; i++) {
        if (model_corners[i] == 0)
            printf("  UNSEEN  corner %u was never reached\n", i);
        good = model_corners[i] != 0 && good;
    }
    for (const model_case &broken : mutants)
        good = model_caught<Model>(broken, 4 * iterations) && good;
    if (good)
        printf("%s: %lu interleavings, %u mutants caught\n", what, iterations, Count);
    fflush(stdout);
    return good;
}

#endif

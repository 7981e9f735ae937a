/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one vocabulary for the project's own protocol: C11 atomics, the order in the name.
 * Stand-alone fences are avoided, because ThreadSanitizer does not model them; where a store must
 * be seen before a later load (the Dekker pairs of docs/concurrency.md) both are sequentially
 * consistent operations. The exceptions are beside Concurrency Kit's stacks, whose accesses are not
 * C11's: after a push, and before the worker looks whether one has come.
 */
#ifndef HWT_ATOMIC_H
#define HWT_ATOMIC_H

#include <stdatomic.h>

#define load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define load_seq(p)     atomic_load_explicit((p), memory_order_seq_cst)

#define store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define store_seq(p, v)     atomic_store_explicit((p), (v), memory_order_seq_cst)

#define exchange_acq_rel(p, v) atomic_exchange_explicit((p), (v), memory_order_acq_rel)
#define exchange_seq(p, v)     atomic_exchange_explicit((p), (v), memory_order_seq_cst)

#define add_relaxed(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define add_release(p, v) atomic_fetch_add_explicit((p), (v), memory_order_release)
#define add_seq(p, v)     atomic_fetch_add_explicit((p), (v), memory_order_seq_cst)
#define add_acq_rel(p, v) atomic_fetch_add_explicit((p), (v), memory_order_acq_rel)
#define and_relaxed(p, v) atomic_fetch_and_explicit((p), (v), memory_order_relaxed)
#define and_seq(p, v)     atomic_fetch_and_explicit((p), (v), memory_order_seq_cst)
#define or_seq(p, v)      atomic_fetch_or_explicit((p), (v), memory_order_seq_cst)
#define sub_relaxed(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_relaxed)
#define sub_acq_rel(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_acq_rel)

/* On failure *expected holds what was found, read with acquire. */
#define cas_acq_rel(p, expected, v)                                                                \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acq_rel,            \
                                            memory_order_acquire)
#define cas_seq(p, expected, v)                                                                    \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_seq_cst,            \
                                            memory_order_seq_cst)

/*
 * A counter with one writer at a time and many readers: no read-modify-write, no torn value. By a
 * release store: who reads it finds what was counted before it.
 */
#define bump_single_writer(p, v) store_relaxed((p), load_relaxed(p) + (v))
#define bump_release(p, v)       store_release((p), load_relaxed(p) + (v))

#endif

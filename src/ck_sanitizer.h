/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Concurrency Kit's ck_pr for sanitizer builds; the Makefile includes it ahead of everything else
 * there, and nothing else may. The real ck_pr is inline assembly, through which ThreadSanitizer
 * sees neither the ordering (it reports races in a correct ck_stack) nor AddressSanitizer the
 * access. Here every primitive is a compiler builtin.
 *
 * All of them are sequentially consistent, so a missing fence around ck_pr stays hidden: whatever
 * depends on a weaker order belongs on C11 atomics, whose order ThreadSanitizer sees as written.
 *
 * Only the primitives are given; ck_pr.h derives inc, dec, bts, add, or, ... from load and cas.
 */
#ifndef HWT_CK_SANITIZER_H
#define HWT_CK_SANITIZER_H

#if defined(CK_PR_H)
#error "ck_sanitizer.h comes before every header of Concurrency Kit"
#endif

#include <stdbool.h>
#include <stdint.h>

#define CK_USE_CC_BUILTINS 1
#define CK_PR_DISABLE_DOUBLE
#define CK_F_PR /* ck_pr.h: the primitives are supplied */

/* The simulator has them as they are: weak, with fences. */
#ifdef CK_SAN_WEAK
#define CK_SAN_LOAD    __ATOMIC_ACQUIRE
#define CK_SAN_STORE   __ATOMIC_RELAXED
#define CK_SAN_CHANGE  __ATOMIC_ACQ_REL
#define CK_SAN_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#else
#define CK_SAN_LOAD   __ATOMIC_SEQ_CST
#define CK_SAN_STORE  __ATOMIC_SEQ_CST
#define CK_SAN_CHANGE __ATOMIC_SEQ_CST
#endif

#define CK_SAN_INLINE static inline __attribute__((unused))

/* M: what ck_pr declares the target to point to; T: what is really there. */
#define CK_SAN_PRIMITIVES(S, M, T)                                                                 \
    CK_SAN_INLINE T ck_pr_md_load_##S(const M *target)                                             \
    {                                                                                              \
        return __atomic_load_n((T const *)target, CK_SAN_LOAD);                                    \
    }                                                                                              \
    CK_SAN_INLINE T ck_pr_fas_##S(M *target, T value)                                              \
    {                                                                                              \
        return __atomic_exchange_n((T *)target, value, CK_SAN_CHANGE);                             \
    }                                                                                              \
    CK_SAN_INLINE bool ck_pr_cas_##S(M *target, T compare, T set)                                  \
    {                                                                                              \
        return __atomic_compare_exchange_n((T *)target, &compare, set, false, CK_SAN_CHANGE,       \
                                           CK_SAN_LOAD);                                           \
    }                                                                                              \
    CK_SAN_INLINE bool ck_pr_cas_##S##_value(M *target, T compare, T set, M *seen)                 \
    {                                                                                              \
        bool swapped = __atomic_compare_exchange_n((T *)target, &compare, set, false,              \
                                                   CK_SAN_CHANGE, CK_SAN_LOAD);                    \
        *(T *)seen = compare;                                                                      \
        return swapped;                                                                            \
    }

#define CK_SAN_INTEGER(S, T)                                                                       \
    CK_SAN_PRIMITIVES(S, T, T)                                                                     \
    CK_SAN_INLINE void ck_pr_md_store_##S(T *target, T value)                                      \
    {                                                                                              \
        __atomic_store_n(target, value, CK_SAN_STORE);                                             \
    }                                                                                              \
    CK_SAN_INLINE T ck_pr_faa_##S(T *target, T delta)                                              \
    {                                                                                              \
        return __atomic_fetch_add(target, delta, CK_SAN_CHANGE);                                   \
    }

CK_SAN_INTEGER(char, char)
CK_SAN_INTEGER(int, int)
CK_SAN_INTEGER(uint, unsigned int)
CK_SAN_INTEGER(64, uint64_t)
CK_SAN_INTEGER(32, uint32_t)
CK_SAN_INTEGER(16, uint16_t)
CK_SAN_INTEGER(8, uint8_t)
CK_SAN_PRIMITIVES(ptr, void, void *)

CK_SAN_INLINE void ck_pr_md_store_ptr(void *target, const void *value)
{
    __atomic_store_n((const void **)target, value, CK_SAN_STORE);
}

CK_SAN_INLINE void *ck_pr_faa_ptr(void *target, uintptr_t delta)
{
    return (void *)__atomic_fetch_add((uintptr_t *)target, delta, CK_SAN_CHANGE);
}

#define CK_F_PR_LOAD_CHAR
#define CK_F_PR_LOAD_INT
#define CK_F_PR_LOAD_UINT
#define CK_F_PR_LOAD_64
#define CK_F_PR_LOAD_32
#define CK_F_PR_LOAD_16
#define CK_F_PR_LOAD_8
#define CK_F_PR_LOAD_PTR
#define CK_F_PR_STORE_CHAR
#define CK_F_PR_STORE_INT
#define CK_F_PR_STORE_UINT
#define CK_F_PR_STORE_64
#define CK_F_PR_STORE_32
#define CK_F_PR_STORE_16
#define CK_F_PR_STORE_8
#define CK_F_PR_STORE_PTR
#define CK_F_PR_FAS_CHAR
#define CK_F_PR_FAS_INT
#define CK_F_PR_FAS_UINT
#define CK_F_PR_FAS_64
#define CK_F_PR_FAS_32
#define CK_F_PR_FAS_16
#define CK_F_PR_FAS_8
#define CK_F_PR_FAS_PTR
#define CK_F_PR_FAA_CHAR
#define CK_F_PR_FAA_INT
#define CK_F_PR_FAA_UINT
#define CK_F_PR_FAA_64
#define CK_F_PR_FAA_32
#define CK_F_PR_FAA_16
#define CK_F_PR_FAA_8
#define CK_F_PR_FAA_PTR
#define CK_F_PR_CAS_CHAR
#define CK_F_PR_CAS_INT
#define CK_F_PR_CAS_UINT
#define CK_F_PR_CAS_64
#define CK_F_PR_CAS_32
#define CK_F_PR_CAS_16
#define CK_F_PR_CAS_8
#define CK_F_PR_CAS_PTR
#define CK_F_PR_CAS_CHAR_VALUE
#define CK_F_PR_CAS_INT_VALUE
#define CK_F_PR_CAS_UINT_VALUE
#define CK_F_PR_CAS_64_VALUE
#define CK_F_PR_CAS_32_VALUE
#define CK_F_PR_CAS_16_VALUE
#define CK_F_PR_CAS_8_VALUE
#define CK_F_PR_CAS_PTR_VALUE

CK_SAN_INLINE void ck_pr_stall(void)
{
    __asm__ __volatile__("" ::: "memory");
}

/* TSan does not model fences (gcc warns); between sequentially consistent accesses none acts. */
#if defined(CK_SAN_FENCE)
#elif defined(__SANITIZE_THREAD__)
#define CK_SAN_FENCE() __asm__ __volatile__("" ::: "memory")
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CK_SAN_FENCE() __asm__ __volatile__("" ::: "memory")
#endif
#endif
#if !defined(CK_SAN_FENCE)
#define CK_SAN_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

#define CK_SAN_FENCE_FOR(T)                                                                        \
    CK_SAN_INLINE void ck_pr_fence_strict_##T(void)                                                \
    {                                                                                              \
        CK_SAN_FENCE();                                                                            \
    }

CK_SAN_FENCE_FOR(atomic)
CK_SAN_FENCE_FOR(atomic_load)
CK_SAN_FENCE_FOR(atomic_store)
CK_SAN_FENCE_FOR(store_atomic)
CK_SAN_FENCE_FOR(load_atomic)
CK_SAN_FENCE_FOR(load)
CK_SAN_FENCE_FOR(load_store)
CK_SAN_FENCE_FOR(store)
CK_SAN_FENCE_FOR(store_load)
CK_SAN_FENCE_FOR(memory)
CK_SAN_FENCE_FOR(acquire)
CK_SAN_FENCE_FOR(release)
CK_SAN_FENCE_FOR(acqrel)
CK_SAN_FENCE_FOR(lock)
CK_SAN_FENCE_FOR(unlock)

#undef CK_SAN_FENCE_FOR
#undef CK_SAN_FENCE
#undef CK_SAN_LOAD
#undef CK_SAN_STORE
#undef CK_SAN_CHANGE
#undef CK_SAN_INTEGER
#undef CK_SAN_PRIMITIVES
#undef CK_SAN_INLINE

#endif

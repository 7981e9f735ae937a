/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the compiler calls under -fsanitize=thread, in place of the sanitizer's runtime: each access
 * is reported, and an atomic one then made. Their names and types are the compiler's.
 */
#include <stdatomic.h>
#include <stdint.h>

#include "lines.h"

#define HERE __builtin_return_address(0)
#define HOOK __attribute__((visibility("default")))

void HOOK __tsan_init(void);
void HOOK __tsan_init(void)
{
}
void HOOK __tsan_func_entry(void *caller);
void HOOK __tsan_func_entry(void *caller)
{
    (void)caller;
}
void HOOK __tsan_func_exit(void);
void HOOK __tsan_func_exit(void)
{
}
void HOOK __tsan_read_range(void *p, size_t n);
void HOOK __tsan_read_range(void *p, size_t n)
{
    line_access(p, n, false, HERE);
}
void HOOK __tsan_write_range(void *p, size_t n);
void HOOK __tsan_write_range(void *p, size_t n)
{
    line_access(p, n, true, HERE);
}
void HOOK __tsan_atomic_thread_fence(int order);
void HOOK __tsan_atomic_thread_fence(int order)
{
    (void)order;
    atomic_thread_fence(memory_order_seq_cst);
}

#define PLAIN(name, size, write)                                                                   \
    void HOOK name(void *p);                                                                       \
    void HOOK name(void *p)                                                                        \
    {                                                                                              \
        line_access(p, size, write, HERE);                                                         \
    }

PLAIN(__tsan_read1, 1, false)
PLAIN(__tsan_read2, 2, false)
PLAIN(__tsan_read4, 4, false)
PLAIN(__tsan_read8, 8, false)
PLAIN(__tsan_read16, 16, false)
PLAIN(__tsan_write1, 1, true)
PLAIN(__tsan_write2, 2, true)
PLAIN(__tsan_write4, 4, true)
PLAIN(__tsan_write8, 8, true)
PLAIN(__tsan_write16, 16, true)
PLAIN(__tsan_unaligned_read2, 2, false)
PLAIN(__tsan_unaligned_read4, 4, false)
PLAIN(__tsan_unaligned_read8, 8, false)
PLAIN(__tsan_unaligned_read16, 16, false)
PLAIN(__tsan_unaligned_write2, 2, true)
PLAIN(__tsan_unaligned_write4, 4, true)
PLAIN(__tsan_unaligned_write8, 8, true)
PLAIN(__tsan_unaligned_write16, 16, true)

/* A compare-and-swap takes the line for writing whether it succeeds or not. */
#define UPDATE(bits, name, builtin)                                                                \
    uint##bits##_t HOOK __tsan_atomic##bits##_##name(volatile uint##bits##_t *p, uint##bits##_t v, \
                                                     int order);                                   \
    uint##bits##_t HOOK __tsan_atomic##bits##_##name(volatile uint##bits##_t *p, uint##bits##_t v, \
                                                     int order)                                    \
    {                                                                                              \
        (void)order;                                                                               \
        line_access(p, bits / 8, true, HERE);                                                      \
        return builtin(p, v, __ATOMIC_SEQ_CST);                                                    \
    }

#define COMPARE(bits, name)                                                                        \
    int HOOK __tsan_atomic##bits##_##name(volatile uint##bits##_t *p, uint##bits##_t *e,           \
                                          uint##bits##_t v, int yes, int no);                      \
    int HOOK __tsan_atomic##bits##_##name(volatile uint##bits##_t *p, uint##bits##_t *e,           \
                                          uint##bits##_t v, int yes, int no)                       \
    {                                                                                              \
        (void)yes;                                                                                 \
        (void)no;                                                                                  \
        line_access(p, bits / 8, true, HERE);                                                      \
        return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
    }

/* clang's form returns what was found. */
#define COMPARE_VALUE(bits)                                                                        \
    uint##bits##_t HOOK __tsan_atomic##bits##_compare_exchange_val(                                \
        volatile uint##bits##_t *p, uint##bits##_t e, uint##bits##_t v, int yes, int no);          \
    uint##bits##_t HOOK __tsan_atomic##bits##_compare_exchange_val(                                \
        volatile uint##bits##_t *p, uint##bits##_t e, uint##bits##_t v, int yes, int no)           \
    {                                                                                              \
        (void)yes;                                                                                 \
        (void)no;                                                                                  \
        line_access(p, bits / 8, true, HERE);                                                      \
        __atomic_compare_exchange_n(p, &e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);          \
        return e;                                                                                  \
    }

#define ATOMICS(bits)                                                                              \
    uint##bits##_t HOOK __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int o);       \
    uint##bits##_t HOOK __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int o)        \
    {                                                                                              \
        (void)o;                                                                                   \
        line_access(p, bits / 8, false, HERE);                                                     \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    void HOOK __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t v, int o);    \
    void HOOK __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t v, int o)     \
    {                                                                                              \
        (void)o;                                                                                   \
        line_access(p, bits / 8, true, HERE);                                                      \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    UPDATE(bits, exchange, __atomic_exchange_n)                                                    \
    UPDATE(bits, fetch_add, __atomic_fetch_add)                                                    \
    UPDATE(bits, fetch_sub, __atomic_fetch_sub)                                                    \
    UPDATE(bits, fetch_and, __atomic_fetch_and)                                                    \
    UPDATE(bits, fetch_or, __atomic_fetch_or)                                                      \
    UPDATE(bits, fetch_xor, __atomic_fetch_xor)                                                    \
    COMPARE(bits, compare_exchange_strong)                                                         \
    COMPARE(bits, compare_exchange_weak)                                                           \
    COMPARE_VALUE(bits)

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

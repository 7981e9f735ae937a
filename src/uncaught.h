/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An exception that leaves a task on the worker ends the process, as it does on any thread: the
 * search for a handler finds none, so nothing is unwound, and std::terminate is called where it was
 * thrown. All that is left to do is to say whose it was. A function that begins with UNCAUGHT_TOLD
 * is asked during that search, and tells the log of the timer; it must not be inlined, and have no
 * cleanup of its own. Where this cannot be said to the assembler, nobody is told.
 */
#ifndef HWT_UNCAUGHT_H
#define HWT_UNCAUGHT_H

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define UNCAUGHT_TOLD     __asm__ volatile(".cfi_personality 0x1b, uncaught_personality")
#define UNCAUGHT_FUNCTION __attribute__((noinline, no_sanitize("thread")))
#else
#define UNCAUGHT_TOLD     ((void)0)
#define UNCAUGHT_FUNCTION __attribute__((noinline))
#endif

#endif

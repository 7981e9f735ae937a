/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef HWT_BENCH_LINES_H
#define HWT_BENCH_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* The calling thread reads or writes these bytes, in the code at `place`. */
void line_access(const volatile void *address, size_t size, bool write, const void *place);

#endif

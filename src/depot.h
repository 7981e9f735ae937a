/* SPDX-License-Identifier: BSD-2-Clause */
/* Depots: where the CPUs keep free blocks, in batches. Any thread pushes to and pops from any. */
#ifndef HWT_DEPOT_H
#define HWT_DEPOT_H

#include "batch.h"

/* A power of two that covers the CPUs, if these are no more than DEPOTS. */
unsigned depots_used(void);
/* Of a CPU. The batch, which knows its length, is nobody's any more. */
void depot_push(unsigned depot, hwt_timeout *batch);
/* Of depots_used(). The batch is the caller's. */
hwt_timeout *depot_pop(unsigned depot);
/* Batches. A glimpse; below zero is a pop that was counted before its push. */
int32_t depot_length(unsigned depot);

#endif

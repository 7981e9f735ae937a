/* SPDX-License-Identifier: BSD-2-Clause */
/* A visitor is shown all that is pending, by whoever acts as the worker, between two passes. */
#ifndef HWT_VISIT_H
#define HWT_VISIT_H

#include "timer.h"

/* The worker: those who wait get their answer. */
void visit_attend(hwt_timer *timer);
/* The worker is not there any more: all of them get this one. */
void visit_refuse_all(hwt_timer *timer, int64_t answer);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* A timer's life. */
#ifndef HWT_LIFECYCLE_H
#define HWT_LIFECYCLE_H

#include "timer.h"

/* Ready for submissions: started if need be. 0 or a negative errno. Any thread. */
int lifecycle_begin(hwt_timer *timer);

#endif

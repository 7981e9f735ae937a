/* SPDX-License-Identifier: BSD-2-Clause */
/* What a timer is told at its creation. */
#ifndef HWT_CONFIG_H
#define HWT_CONFIG_H

#include "timer.h"

/* A whole one from the caller's, of any release; NULL: defaults. False: its size is unknown. */
bool config_take(hwt_config *taken, const hwt_config *config);
/* Checks, and fills the unchanging part of a shell. 0 or -EINVAL. *slots: per level. */
int config_apply(hwt_timer *timer, const hwt_config *config, uint32_t *slots);

#endif

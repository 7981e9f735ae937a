/* SPDX-License-Identifier: BSD-2-Clause */
#include "base.h"

#ifdef HWT_DEBUG
#include <stdio.h>
#include <stdlib.h>

/* Debug builds only: a broken promise ends the process where it was seen. */
void base_fail(const char *what, const char *file, int line)
{
    fprintf(stderr, "hwt: %s (%s:%d)\n", what, file, line);
    abort();
}
#endif

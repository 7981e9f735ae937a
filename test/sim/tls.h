/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The library's thread-local variables: all that the program has in its own segment of such, for
 * the simulator has none. A fiber's are copied in when it goes on, and out when another does.
 */
#ifndef SIM_TLS_H
#define SIM_TLS_H

#include <link.h>
#include <stddef.h>
#include <stdint.h>

struct tls_segment {
    char *here;
    const char *image;
    size_t size;
};
extern struct tls_segment tls_segment;

void tls_set_up(void);

static inline char *tls_here(void)
{
    return tls_segment.here;
}
static inline const char *tls_image(void)
{
    return tls_segment.image;
}
static inline size_t tls_size(void)
{
    return tls_segment.size;
}

#endif

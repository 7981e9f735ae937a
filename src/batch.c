/* SPDX-License-Identifier: BSD-2-Clause */
#include "batch.h"

/* The next one, as long as there are any. */
HOT hwt_timeout *step(hwt_timeout *at, uint32_t *left)
{
    if (*left == 0)
        return at;
    --*left;
    return next_free(at);
}

/* The last of them. */
HOT hwt_timeout *note_followers(hwt_timeout *node, uint32_t *left)
{
    hwt_timeout *at = step(node, left);

    poison_open(node);
    for (unsigned i = 0; i < BATCH_NOTES; i++)
        node->noted[i] = at = step(at, left);
    poison(node);
    return at;
}

hwt_timeout *batch_note(hwt_timeout *first, uint32_t length)
{
    hwt_timeout *at = first;
    uint32_t left = length - 1;

    hwt_assert(length > 0);
    first->batch_length = length;
    first->batch_noted = 1;
    poison_open(first);
    for (unsigned i = 0; i < BATCH_NODES && left > 0; i++) {
        hwt_timeout *node = step(at, &left);

        if (i > 0)
            first->noted[i - 1] = node;
        at = note_followers(node, &left);
    }
    poison(first);
    while (left > 0)
        at = step(at, &left);
    return at;
}

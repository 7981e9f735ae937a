/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buckets beside the wheel, of its chunks: what is with the executor, or waits for the next pass
 * (filing.c). As in the wheel, whoever cancels what lies there takes it out himself; all else is
 * the worker's.
 */
#include "wheel.h"

_Atomic uint64_t *wheel_put_beside(struct wheel *wheel, struct bucket *bucket, hwt_timeout *timeout)
{
    return bucket_insert(bucket, &wheel->store, packed_of_key(timeout, 0),
                         timeout_deadline(timeout));
}

hwt_timeout *wheel_pop_beside(struct wheel *wheel, struct bucket *bucket)
{
    return bucket_pop(bucket, &wheel->store);
}

void wheel_file_beside(struct wheel *wheel, struct bucket *bucket)
{
    wheel_refile(wheel, bucket, 0, NULL);
}

bool wheel_has_beside(struct wheel *wheel, struct bucket *bucket)
{
    return bucket_has_any(bucket, &wheel->store);
}

struct sighting wheel_first_beside(struct wheel *wheel, struct bucket *bucket)
{
    if (!wheel_has_beside(wheel, bucket)) /* holes are not gone through again */
        return (struct sighting){NULL, 0, UINT64_MAX};
    return bucket_scan(bucket, 0);
}

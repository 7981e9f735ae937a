/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A distributed lock with a watchdog, as Redisson keeps its locks on Redis.
 *
 * The lock is a key with a lease, so that it frees itself when its holder dies. While the holder
 * lives, a timeout renews the lease at a third of its length. The task re-arms its own timeout
 * after each renewal that succeeded; releasing the lock ends it with cancel_sync, after which no
 * renewal is under way that could touch the key.
 *
 * usage: lock_watchdog SOCKET    (the unix socket of a redis-server)
 */
#include "example.h"

#include <hiredis/hiredis.h>
#include <hwt.h>
#include <stdarg.h>
#include <stdatomic.h>

#define LEASE_MS 450
#define LEASE    HWT_MSEC(LEASE_MS)

/* Both act only on a lock that is still ours. */
#define RENEW                                                                                      \
    "if redis.call('get', KEYS[1]) == ARGV[1] then "                                               \
    "return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"
#define RELEASE                                                                                    \
    "if redis.call('get', KEYS[1]) == ARGV[1] then "                                               \
    "return redis.call('del', KEYS[1]) else return 0 end"

struct lock {
    hwt_timer *timer;
    redisContext *redis;    /* the holder's */
    redisContext *watchdog; /* the task's own: a context serves one thread */
    const char *key, *owner;
    hwt_timeout *renewal;
    atomic_uint renewals;
    atomic_bool lost;
};

/* The integer that Redis answered, 1 for OK, 0 for nil, -1 for an error. */
static long long ask(redisContext *redis, const char *format, ...)
{
    long long result = -1;
    redisReply *reply;
    va_list args;

    va_start(args, format);
    reply = redisvCommand(redis, format, args);
    va_end(args);
    if (reply && reply->type == REDIS_REPLY_INTEGER)
        result = reply->integer;
    else if (reply && reply->type != REDIS_REPLY_ERROR)
        result = reply->type != REDIS_REPLY_NIL;
    if (reply)
        freeReplyObject(reply);
    return result;
}

static redisContext *open_redis(const char *path)
{
    struct timeval patience = {.tv_usec = LEASE_MS * 1000 / 3};
    redisContext *redis = redisConnectUnixWithTimeout(path, patience);

    must(redis && !redis->err, "connect to redis");
    must(redisSetTimeout(redis, patience) == REDIS_OK, "bound the wait for an answer");
    return redis;
}

/* Renewing waits for Redis; a program with other timeouts would give its timer an executor. */
static void renew(hwt_timeout *timeout, void *arg)
{
    struct lock *lock = arg;

    if (ask(lock->watchdog, "EVAL %s 1 %s %s %d", RENEW, lock->key, lock->owner, LEASE_MS) != 1) {
        lock->lost = true;
        return;
    }
    lock->renewals++;
    hwt_timeout_reschedule(timeout, LEASE / 3); /* refused once it is being released */
}

static bool lock_acquire(struct lock *lock)
{
    if (ask(lock->redis, "SET %s %s NX PX %d", lock->key, lock->owner, LEASE_MS) != 1)
        return false;
    lock->lost = false;
    must(hwt_new_timeout(lock->timer, renew, lock, LEASE / 3, &lock->renewal) == 0, "schedule");
    return true;
}

static void watchdog_end(struct lock *lock)
{
    hwt_timeout_cancel_sync(lock->renewal);
    hwt_timeout_unref(lock->renewal);
}

static bool lock_release(struct lock *lock)
{
    watchdog_end(lock);
    return ask(lock->redis, "EVAL %s 1 %s %s", RELEASE, lock->key, lock->owner) == 1;
}

static void lock_open(struct lock *lock, hwt_timer *timer, const char *path, const char *owner)
{
    lock->timer = timer;
    lock->redis = open_redis(path);
    lock->watchdog = open_redis(path);
    lock->key = "example:lock";
    lock->owner = owner;
}

static void lock_close(struct lock *lock)
{
    redisFree(lock->redis);
    redisFree(lock->watchdog);
}

/* Two leases long the lock stays held, because it is renewed. */
static void held_while_alive(struct lock *holder, struct lock *other)
{
    must(lock_acquire(holder), "a free lock is acquired");
    for (int i = 0; i < 9; i++) {
        sleep_ms(LEASE_MS * 2 / 9);
        must(!lock_acquire(other), "a held lock is not");
    }
    must(holder->renewals >= 3 && !holder->lost, "the watchdog renewed it");
    must(lock_release(holder), "it is released by its holder");
    must(lock_acquire(other), "and then acquired at once");
    must(lock_release(other), "and released");
}

/* A holder that dies, here one whose watchdog ends without a release, loses it with its lease. */
static void freed_when_dead(struct lock *holder, struct lock *other)
{
    must(lock_acquire(holder), "a free lock is acquired");
    watchdog_end(holder);
    must(!lock_acquire(other), "it is held while the lease lasts");
    sleep_ms(LEASE_MS + 20);
    must(lock_acquire(other), "and free after that");
    must(lock_release(other), "and released");
}

int main(int argc, char **argv)
{
    struct lock first = {0}, second = {0};
    hwt_timer *timer;

    if (argc != 2) {
        fprintf(stderr, "usage: lock_watchdog SOCKET (the unix socket of a redis-server)\n");
        return 2;
    }
    give_up_after(20);
    must(hwt_timer_create(&timer, NULL) == 0, "create a timer");
    lock_open(&first, timer, argv[1], "first");
    lock_open(&second, timer, argv[1], "second");

    held_while_alive(&first, &second);
    freed_when_dead(&first, &second);

    must(hwt_timer_pending(timer) == 0, "a released lock leaves nothing behind");
    must(hwt_timer_destroy(timer) == 0, "destroy the timer");
    printf("lock_watchdog: held two leases of %d ms with %u renewals, freed when its holder died\n",
           LEASE_MS, first.renewals);
    lock_close(&first);
    lock_close(&second);
    return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the library's objects call instead of the system's functions: each name of system.syms with
 * sim_ before it.
 */
#ifndef SIM_SYSTEM_H
#define SIM_SYSTEM_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct itimerspec;
struct pollfd;

int sim_clock_gettime(clockid_t id, struct timespec *ts);
int sim_sched_yield(void);
int sim_nanosleep(const struct timespec *ts, struct timespec *rest);
int sim_sched_getcpu(void);
long sim_sysconf(int name);
long sim_syscall(long number, ...);
int sim_timerfd_create(int clock, int flags);
int sim_timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *old);
int sim_eventfd(unsigned value, int flags);
ssize_t sim_read(int fd, void *buffer, size_t size);
int sim_close(int fd);
int sim_poll(struct pollfd *poll_fd, unsigned long count, int milliseconds);
int sim_prctl(int option, ...);

void *sim_malloc(size_t size);
void *sim_calloc(size_t count, size_t size);
void *sim_aligned_alloc(size_t alignment, size_t size);
void sim_free(void *memory);
char *sim_strdup(const char *text);
void *sim_mmap(void *at, size_t size, int protection, int flags, int fd, long offset);
int sim_munmap(void *memory, size_t size);
int sim_madvise(void *memory, size_t size, int advice);
void sim_abort(void) __attribute__((noreturn));

pid_t sim_getpid(void);
int sim_pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void));
int sim_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                       void *arg);
int sim_pthread_join(pthread_t thread, void **result);
int sim_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr);
int sim_pthread_mutex_destroy(pthread_mutex_t *mutex);
int sim_pthread_mutex_lock(pthread_mutex_t *mutex);
int sim_pthread_mutex_unlock(pthread_mutex_t *mutex);
int sim_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr);
int sim_pthread_cond_destroy(pthread_cond_t *cond);
int sim_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int sim_pthread_cond_broadcast(pthread_cond_t *cond);
int sim_pthread_once(pthread_once_t *once, void (*routine)(void));
int sim_pthread_key_create(pthread_key_t *key, void (*destructor)(void *));
int sim_pthread_key_delete(pthread_key_t key);
int sim_pthread_setspecific(pthread_key_t key, const void *value);
int sim_pthread_setcancelstate(int state, int *before);
int sim_pthread_sigmask(int how, const sigset_t *set, sigset_t *before);
void sim_pthread_exit(void *result) __attribute__((noreturn));

#endif

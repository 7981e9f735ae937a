// SPDX-License-Identifier: BSD-2-Clause
//
// A small C++17 wrapper, to be copied and fitted: durations are std::chrono's, tasks are
// std::function, handles clean up after themselves.
//
//   timer        owns a timer; its destructor stops it. Not from within one of its tasks, nor by
//                what a task owns, when that is destroyed on the timer's thread: it cannot wait for
//                itself. Before main returns: a static one runs tasks beside the destructors of
//                static objects.
//                As a member of a class it is the last one: it is destroyed first, and
//                what its tasks use is still there while it waits for them.
//   timeout      a handle to a task that runs once; the task outlives the handle.
//   periodic     owns a repeated task; its destructor waits for a run that is under way.
//
// All three destructors may wait for a task, or destroy what one has captured: hold no lock that
// those take.
//
// What a task submits once its timer's destructor has begun never runs: the handle is empty then,
// and the function is destroyed at once.
//
// An exception that leaves a task ends the program: there is no one to catch it.
#ifndef CPP17_HPP
#define CPP17_HPP

#include <hwt.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>

namespace hwt
{

using duration = std::chrono::nanoseconds;
using task = std::function<void()>;

inline void check(int result, const char *what)
{
    if (result < 0)
        throw std::system_error(-result, std::generic_category(), what);
}

// Any duration: what has passed is now, what has no room is never.
template <typename Rep, typename Period>
inline uint64_t nanoseconds(std::chrono::duration<Rep, Period> d)
{
    using seconds = std::chrono::duration<double>;

    if (d <= d.zero())
        return 0;
    if (seconds(d) >= seconds(duration::max()))
        return UINT64_MAX;
    return static_cast<uint64_t>(std::chrono::duration_cast<duration>(d).count());
}

struct drop {
    void operator()(hwt_timeout *timeout) const noexcept
    {
        hwt_timeout_unref(timeout);
    }
};

class timeout
{
  public:
    bool cancel() noexcept
    {
        return hwt_timeout_cancel(handle_.get());
    }
    template <typename Rep, typename Period>
    bool reschedule(std::chrono::duration<Rep, Period> delay) noexcept
    {
        return hwt_timeout_reschedule(handle_.get(), nanoseconds(delay));
    }
    bool expired() const noexcept
    {
        return hwt_timeout_is_expired(handle_.get());
    }

  private:
    friend class timer;
    explicit timeout(hwt_timeout *handle) noexcept : handle_(handle)
    {
    }
    std::unique_ptr<hwt_timeout, drop> handle_;
};

class periodic
{
  public:
    periodic(periodic &&) noexcept = default;
    periodic(const periodic &) = delete;
    periodic &operator=(const periodic &) = delete;
    periodic &operator=(periodic &&) = delete;

    // Not from within its own task: that cannot wait for itself.
    ~periodic()
    {
        if (handle_ && hwt_timeout_cancel_sync(handle_.get()) == -EDEADLK)
            std::terminate();
    }

  private:
    friend class timer;
    periodic(hwt_timeout *handle, std::unique_ptr<task> f) noexcept
        : task_(std::move(f)), handle_(handle)
    {
    }
    std::unique_ptr<task> task_;
    std::unique_ptr<hwt_timeout, drop> handle_;
};

class timer
{
  public:
    explicit timer(duration tick = std::chrono::milliseconds(1))
    {
        hwt_config config;

        hwt_config_init(&config);
        config.tick_ns = nanoseconds(tick);
        check(hwt_timer_create(&timer_, &config), "hwt_timer_create");
    }

    timer(timer &&other) noexcept : timer_(std::exchange(other.timer_, nullptr))
    {
    }
    timer(const timer &) = delete;
    timer &operator=(const timer &) = delete;
    timer &operator=(timer &&) = delete;

    // It waits for tasks, which may still use this timer.
    ~timer()
    {
        if (hwt_timer_destroy(timer_) == -EDEADLK)
            std::terminate();
    }

    // The timeout owns the function until it has ended and its handle is gone: it may be armed anew
    // while it runs, by its own handle.
    template <typename Rep, typename Period>
    timeout after(std::chrono::duration<Rep, Period> delay, task f)
    {
        auto owned = std::make_unique<task>(std::move(f));
        hwt_timeout *handle = nullptr;
        hwt_spec spec;

        hwt_spec_init(&spec);
        spec.task = [](hwt_timeout *, void *arg) noexcept { (*static_cast<task *>(arg))(); };
        spec.release = [](void *arg) noexcept { delete static_cast<task *>(arg); };
        spec.arg = owned.get();
        spec.delay_ns = nanoseconds(delay);
        if (submit(spec, &handle))
            owned.release();
        return timeout(handle);
    }

    template <typename Rep, typename Period>
    [[nodiscard]] periodic every(std::chrono::duration<Rep, Period> period, task f)
    {
        if (period <= period.zero())
            check(-EINVAL, "every: no period"); // 0 would be once
        auto owned = std::make_unique<task>(std::move(f));
        hwt_timeout *handle = nullptr;
        hwt_spec spec;

        hwt_spec_init(&spec);
        spec.task = [](hwt_timeout *, void *arg) noexcept { (*static_cast<task *>(arg))(); };
        spec.arg = owned.get();
        spec.delay_ns = spec.period_ns = nanoseconds(period);
        submit(spec, &handle);
        return periodic(handle, std::move(owned));
    }

    uint64_t pending() const noexcept
    {
        return hwt_timer_pending(timer_);
    }

  private:
    // False: this timer is being destroyed.
    bool submit(const hwt_spec &spec, hwt_timeout **handle)
    {
        int result = hwt_schedule(timer_, &spec, handle);

        if (result == -ESHUTDOWN)
            return false;
        check(result, "hwt_schedule");
        return true;
    }

    hwt_timer *timer_ = nullptr; // so when it was moved from
};

} // namespace hwt

#endif

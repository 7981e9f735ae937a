// SPDX-License-Identifier: BSD-2-Clause
//
// The C++17 wrapper of cpp17.hpp at work.
#include "cpp17.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

void must(bool ok, const char *what)
{
    if (ok)
        return;
    std::fprintf(stderr, "failed: %s\n", what);
    _exit(EXIT_FAILURE);
}

void runs_once_and_never_early(hwt::timer &timer)
{
    std::atomic<int> runs{0}, early{0};

    for (int i = 1; i <= 50; i++) {
        auto due = clock::now() + 2ms * i;

        timer.after(2ms * i, [&runs, &early, due] {
            early += clock::now() < due;
            runs++;
        });
    }
    while (runs < 50)
        std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(10ms);
    must(runs == 50 && early == 0, "each task runs once and never early (G1, G2)");
}

// What a task captured is freed when its timeout ends, whichever way.
void frees_what_it_captured()
{
    auto captured = std::make_shared<std::string>("captured");
    std::vector<hwt::timeout> handles;
    {
        hwt::timer timer;

        handles.push_back(timer.after(1h, [captured] { must(false, "not for an hour"); }));
        handles.push_back(timer.after(1h, [captured] { must(false, "not for an hour"); }));
        handles.push_back(timer.after(1h, [captured] { must(*captured == "captured", "intact"); }));
        must(captured.use_count() == 4, "three tasks own a copy");
        must(handles[0].cancel() && !handles[0].cancel(), "cancelled by exactly one call (G2)");
        must(handles[2].reschedule(1ms), "moved closer");
        while (!handles[2].expired())
            std::this_thread::sleep_for(1ms);
    }
    must(captured.use_count() == 4, "as long as there are handles (G9)");
    handles.clear();
    must(captured.use_count() == 1, "and no longer (G16)");
}

// As a retry does: the function that runs arms its own timeout anew, and lives on for that.
int retries_until_it_succeeds(hwt::timer &timer)
{
    struct attempt {
        std::unique_ptr<hwt::timeout> self;
        std::string peer = "a peer whose name is too long to be copied without memory";
        std::atomic<int> failures{0};
        std::atomic<bool> ready{false}, done{false};
    };
    auto a = std::make_shared<attempt>();

    a->self = std::make_unique<hwt::timeout>(timer.after(1ms, [a] {
        while (!a->ready) // until it can see its own handle
            std::this_thread::yield();
        if (++a->failures < 4)
            must(a->self->reschedule(1ms * a->failures.load()), "armed anew");
        else
            a->done = !a->peer.empty();
    }));
    a->ready = true;
    while (!a->done)
        std::this_thread::sleep_for(1ms);
    a->self.reset(); // or the function and its handle keep each other
    return a->failures;
}

int repeats_until_its_owner_goes(hwt::timer &timer)
{
    std::atomic<int> runs{0};
    {
        auto heartbeat = timer.every(5ms, [&runs] { runs++; });
        auto moved = std::move(heartbeat);

        while (runs < 10)
            std::this_thread::sleep_for(1ms);
    }
    int seen = runs;

    std::this_thread::sleep_for(25ms);
    must(runs == seen, "no run after the owner is gone");
    return seen;
}

// As a poll does: each run submits the next one, until the timer goes, whatever that one does just
// then.
int polls_until_its_timer_goes()
{
    std::atomic<int> runs{0};
    for (int i = 0; i < 20; i++) {
        int before = runs;
        std::function<void()> poll;
        hwt::timer timer; // the last one: it is destroyed first

        poll = [&] {
            runs++;
            std::this_thread::sleep_for(50us); // submits while the destructor is at work
            timer.after(0us, poll);
        };
        timer.after(0us, poll);
        while (runs == before)
            std::this_thread::sleep_for(100us);
    }
    return runs;
}

} // namespace

int main()
{
    alarm(20); // a task that never ran ends the program, too
    hwt::timer timer(500us);

    runs_once_and_never_early(timer);
    frees_what_it_captured();
    int repeats = repeats_until_its_owner_goes(timer), retries = retries_until_it_succeeds(timer);

    must(timer.pending() == 0, "nothing is left");
    must(polls_until_its_timer_goes() >= 20, "each ran");
    std::printf(
        "cpp17: 50 tasks ran once, one %d times until it succeeded, a periodic one %d times\n",
        retries, repeats);
    return 0;
}

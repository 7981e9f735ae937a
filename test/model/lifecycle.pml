/* SPDX-License-Identifier: BSD-2-Clause */
/* spin: -DMEMLIM=2000 -DCOLLAPSE */
/* pan: -m200000 */
/*
 * The life of one timeout, every interleaving of it: the state diagram and the ground rules of
 * src/timeout.h, on sequentially consistent memory and with a compare-and-swap loop as one step
 * (test/model/ends.cc has the memory orders, but only samples the interleavings).
 *
 * Two threads with a handle cancel it, wait for its run, or move its deadline: in the slot of the
 * lane it stays; earlier, out of the wheel's, they put it into the lane again; the worker marks its
 * slot and takes it from there, if it is not cancelled, or from the spill, files it, takes it out and runs it or hands it to an executor's
 * thread, once or periodically, re-armed by its task or not; then stop reclaims. Nothing polls:
 * whoever waits is blocked, so that a lost notice is a deadlock.
 *
 * By default four of the eight combinations of slot or spill, once or periodic, worker or executor;
 * `spin -a -DFULL -DUSER_OPS=2` has all of them, and two steps for one of the threads (minutes).
 */

#ifndef USER_OPS
#define USER_OPS 1
#endif
#ifndef PASSES
#define PASSES 3
#endif

#define PENDING    0
#define NUDGED     1
#define DISPATCHED 2
#define RUNNING    3
#define REARMED    4
#define LAST       5
#define EXPIRED    6
#define CANCELLED  7

#define UNMET  0
#define BUCKET 1
#define ADRIFT 2

/* the timeout */
byte code = PENDING;
byte deadline = 2; /* 1: due in the first pass; 2: after it */
byte refs = 3;
bool withdrawn, run_on, linked, freed;
bool periodic, executor;
/* the timer */
bool in_slot, met, marked, in_spill, in_wheel, notice, lanes_gone, over, stopping;
byte guests, jobs;
/* the worker's own */
byte place = UNMET, adrift, now = 1;
bool out, noticed, reclaiming, reclaimed; /* out: in the slot of what is with the executor */
/* the books */
byte ended;
bool running, no_more_runs;

#define touch()       assert(!freed)
#define touch_lanes() assert(!lanes_gone)

inline end()
{
    ended++;
    assert(ended == 1)
}

inline drop()
{
    atomic {
        touch();
        if
        :: refs == 1 || (refs == 2 && withdrawn) -> freed = true
        :: else -> refs--
        fi
    }
}

/* Of the lane: by anybody; of the wheel, too: by a canceller. */
inline take_slot(got)
{
    atomic {
        touch();
        touch_lanes();
        got = in_slot;
        in_slot = false
    }
}

#define lane_holds (in_slot && !marked)

/* The slot that it was submitted to: seen first, and emptied afterwards (C20). */
inline take_any_slot(got)
{
    if
    :: atomic { lane_holds && !met -> touch_lanes(); got = true };
        atomic {
            assert(in_slot);
            touch();
            touch_lanes();
            in_slot = false;
            marked = false
        }
    :: atomic { !lane_holds || met ->
            touch();
            touch_lanes();
            got = lane_holds || in_wheel;
            in_slot = in_slot && marked;
            in_wheel = false
        }
    fi
}

/* By a mover. */
inline take_wheel(got)
{
    atomic {
        touch();
        touch_lanes();
        got = in_wheel;
        in_wheel = false
    }
}

inline notify()
{
    d_step {
        touch();
        touch_lanes();
        assert(!linked);
        linked = true;
        notice = true
    }
}

/* ---- handles ---- */

inline cancel_pending(got)
{
    take_any_slot(got);
    if
    :: got -> d_step { touch(); withdrawn = true }
    :: else -> notify()
    fi
}

inline cancel(from, got)
{
    atomic {
        touch();
        from = CANCELLED;
        if
        :: code == PENDING -> code = CANCELLED; from = PENDING; end()
        :: else
        fi
    }
    if
    :: from == PENDING -> cancel_pending(got)
    :: else ->
        if
        :: code >= EXPIRED
        :: else ->
            guests++;
            atomic {
                touch();
                from = code;
                if
                :: from >= LAST
                :: from == RUNNING && !periodic -> code = LAST; from = LAST
                :: else -> code = CANCELLED; end()
                fi
            }
            if
            :: from == PENDING || from == DISPATCHED -> cancel_pending(got)
            :: from == NUDGED || from == RUNNING || from == REARMED -> touch_lanes()
            :: else
            fi;
            guests--
        fi
    fi;
    got = false
}

/* Its word is read again when it is in the slot; what that tells the lane is in model/wakeup.cc. */
inline put_again(from)
{
    place = UNMET;
    atomic {
        touch();
        from = code;
        if
        :: code == NUDGED -> code = PENDING
        :: else /* cancelled */
        fi
    }
    if
    :: from == NUDGED -> d_step { touch_lanes(); in_slot = true; met = true }
    :: else -> d_step { touch(); withdrawn = true }
    fi
}

inline move(to, from, got)
{
    if
    :: code == PENDING && to < deadline || code == NUDGED ->
        guests++;
        if
        :: code <= NUDGED -> d_step { touch_lanes(); got = lane_holds }
        :: else
        fi;
        atomic {
            touch();
            from = code;
            if
            :: from == PENDING && got -> deadline = to; from = EXPIRED /* in its slot */
            :: from == PENDING && !got && to < deadline -> code = NUDGED; deadline = to
            :: from == PENDING && !got && to >= deadline -> deadline = to; from = LAST
            :: from == NUDGED -> deadline = to
            :: else -> from = LAST
            fi;
            got = false
        }
        if
        :: from == EXPIRED ->
            atomic {
                touch(); touch_lanes(); /* the slot changed, the lane told; or it has left it */
                if
                :: !lane_holds && code == PENDING -> code = NUDGED; from = PENDING
                :: else -> from = LAST
                fi
            }
        :: else
        fi;
        if
        :: from == PENDING ->
            if
            :: !stopping -> take_wheel(got)
            :: stopping
            fi;
            if
            :: got -> put_again(from)
            :: else -> notify(); touch()
            fi;
            d_step { touch_lanes(); got = false } /* compared with the wake-up */
        :: from == NUDGED -> touch_lanes()
        :: else
        fi;
        guests--
    :: else ->
        atomic {
            touch();
            if
            :: code == PENDING && to >= deadline -> deadline = to
            :: else
            fi
        }
    fi
}

proctype user(byte ops)
{
    byte scratch;
    bool got;

    do
    :: ops > 0 -> move(1, scratch, got); ops--
    :: ops > 0 -> move(2, scratch, got); ops--
    :: ops > 0 ->
        cancel(scratch, got);
        ops = 0;
        if
        :: no_more_runs = true
        :: atomic { !run_on -> assert(!running); no_more_runs = true } /* cancel_sync */
        fi
    :: break
    od;
    drop()
}

/* ---- running ---- */

inline begin_run()
{
    assert(!running && !no_more_runs);
    running = true
}

inline task()
{
    if
    :: true
    :: atomic {
        touch();
        if
        :: code == RUNNING || code == REARMED -> code = REARMED; deadline = 2
        :: else
        fi
    }
    fi
}

inline finish(again, result)
{
    atomic {
        touch();
        running = false;
        if
        :: code == CANCELLED
        :: code == REARMED || (code == RUNNING && periodic) -> code = again
        :: else -> code = EXPIRED; end()
        fi;
        result = code
    }
    d_step { touch(); run_on = false }
}

proctype pool_thread()
{
    byte scratch;
    bool begun;

    do
    :: atomic { jobs > 0 -> jobs--; touch(); run_on = true };
        atomic {
            touch();
            begun = code == DISPATCHED;
            if
            :: begun -> code = RUNNING; begin_run()
            :: else
            fi
        }
        if
        :: begun -> task(); finish(NUDGED, scratch); notify(); touch()
        :: else -> d_step { touch(); run_on = false }
        fi;
        scratch = 0;
        begun = false;
        drop()
    :: over && jobs == 0 -> break
    od
}

/* ---- the worker ---- */

inline leave_adrift()
{
    d_step { touch(); place = ADRIFT; adrift++ }
}

inline file()
{
    if
    :: atomic { !reclaiming -> touch(); place = BUCKET; in_wheel = true; out = false }
    :: else ->
        atomic {
            touch();
            if
            :: code == PENDING || code == DISPATCHED ->
                code = CANCELLED;
                end();
                place = ADRIFT;
                assert(!linked);
                linked = true;
                reclaimed = true
            :: else -> leave_adrift()
            fi
        }
    fi
}

inline meet()
{
    if
    :: noticed -> drop()
    :: else ->
        if
        :: atomic { code == PENDING -> touch() }; file()
        :: else -> leave_adrift()
        fi
    fi
}

inline take_nudge(scratch)
{
    atomic {
        touch();
        scratch = (code == NUDGED -> 1 : 0);
        if
        :: code == NUDGED -> code = PENDING
        :: else
        fi
    }
}

/* In no slot: a reference is held while the slot is looked at again. */
inline receive(scratch, got)
{
    d_step { touch(); got = true };
    if
    :: place == UNMET -> take_slot(got)
    :: place == BUCKET -> d_step { assert(in_wheel); in_wheel = false }
    :: place == ADRIFT -> d_step { assert(adrift > 0); adrift-- }
    fi;
    if
    :: got -> place = ADRIFT; take_nudge(scratch)
    :: else ->
        refs++;
        take_nudge(scratch);
        take_slot(got);
        if
        :: scratch == 0 && !got -> noticed = true
        :: else
        fi;
        drop()
    fi;
    if
    :: scratch == 1 && got -> file()
    :: scratch == 0 && got -> drop()
    :: else
    fi;
    scratch = 0;
    got = false
}

inline take_notice(scratch, got)
{
    d_step { notice = false; linked = false };
    receive(scratch, got)
}

inline collect(scratch, got)
{
    if
    :: notice -> take_notice(scratch, got)
    :: !notice
    fi;
    if
    :: in_slot ->
        atomic { marked = in_slot && !met; got = in_slot && met; in_slot = marked };
        atomic {
            if
            :: marked ->
                got = code != CANCELLED;
                in_slot = !got;
                marked = false
            :: else /* it was emptied, or met before */
            fi
        }
        if
        :: got -> got = false; meet()
        :: else
        fi
    :: !in_slot || !reclaiming
    fi;
    if
    :: in_spill -> in_spill = false; meet()
    :: !in_spill || !reclaiming /* the spill of a lane that was passed already */
    fi
}

inline take_wheel_slot(got)
{
    d_step {
        got = in_wheel;
        in_wheel = false
    }
}

inline dispatch(scratch)
{
    d_step { touch(); refs++; place = BUCKET; in_wheel = true; out = true };
    if
    :: jobs++
    :: atomic { /* refused */
            touch();
            scratch = code;
            if
            :: code == DISPATCHED -> code = CANCELLED; end()
            :: else
            fi
        }
        if
        :: scratch == DISPATCHED -> d_step { assert(in_wheel); in_wheel = false }; drop()
        :: else
        fi;
        drop(); /* the job's */
        scratch = 0
    fi
}

inline run_due(scratch)
{
    d_step { touch(); run_on = run_on || !executor };
    atomic {
        scratch = code;
        if
        :: code == PENDING && deadline > now -> scratch = LAST
        :: code == PENDING && deadline <= now && executor -> code = DISPATCHED
        :: code == PENDING && deadline <= now && !executor -> code = RUNNING; begin_run()
        :: else
        fi
    }
    if
    :: scratch == PENDING && executor -> dispatch(scratch)
    :: scratch == PENDING && !executor ->
        place = ADRIFT;
        task();
        finish(PENDING, scratch);
        if
        :: scratch == PENDING -> file()
        :: else -> drop()
        fi
    :: scratch == LAST -> run_on = run_on && executor; file()
    :: else -> run_on = run_on && executor; leave_adrift()
    fi;
    scratch = 0
}

inline stop(scratch, got)
{
    stopping = true;
    reclaiming = true;
    do
    :: before = guests > 0;
        collect(scratch, got);
        quiet = !in_slot;
        take_wheel_slot(got);
        if
        :: got -> got = false; file()
        :: else
        fi;
        if
        :: quiet && !before && guests == 0 -> break
        :: else -> (notice || (in_slot && (met || code != CANCELLED)) || (!in_slot && guests == 0))
        fi
    od;
    do
    :: adrift == 0 && guests == 0 -> break
    :: notice -> take_notice(scratch, got)
    od;
    lanes_gone = true;
    if
    :: reclaimed -> linked = false; drop() /* by the caller of stop */
    :: else
    fi;
    over = true
}

proctype worker()
{
    byte passes, scratch;
    bool got, before, quiet;

    do
    :: passes < PASSES ->
        passes++;
        collect(scratch, got);
        if
        :: in_wheel && !out && deadline <= now ->
            take_wheel_slot(got);
            if
            :: got -> got = false; run_due(scratch)
            :: else
            fi
        :: else
        fi;
        now = 2
    :: break
    od;
    stop(scratch, got)
}

init
{
    atomic {
        if
        :: in_slot = true
        :: in_slot = true; periodic = true; executor = true
        :: in_spill = true; executor = true
        :: in_spill = true; periodic = true
#ifdef FULL
        :: in_slot = true; executor = true
        :: in_slot = true; periodic = true
        :: in_spill = true
        :: in_spill = true; periodic = true; executor = true
#endif
        fi;
        run user(USER_OPS);
        run user(1);
        run worker();
        if
        :: executor -> run pool_thread()
        :: else
        fi
    }
    /* everybody has come to his end */
    _nr_pr == 1;
    assert(ended == 1);
    assert(freed);
    assert(!running && !linked && adrift == 0)
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Go's own timers, asked what peers.c asks the others. Prints a JSON line for each figure, with the
 * values of all runs. Arguments: repeats, seconds of a window, 1 for quick.
 */
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const depth = 1024

var (
	repeats int
	seconds float64
	quick   bool
)

/* ---- figures ---- */

func report(scenario string, producers, count int, metric, unit string, values []float64) {
	list, _ := json.Marshal(values)
	fmt.Printf("{\"case\":%q,\"producers\":%d,\"count\":%d,\"metric\":%q,\"unit\":%q,\"values\":%s}\n",
		scenario, producers, count, metric, unit, list)
}

/* Each figure of a question over half as many runs as others have. */
func repeat(scenario string, producers, count int, metric, unit []string,
	once func(int) []float64) {
	values := make([][]float64, len(metric))
	for i := 0; i < (repeats+1)/2; i++ {
		for j, value := range once(count) {
			values[j] = append(values[j], value)
		}
	}
	for j := range metric {
		report(scenario, producers, count, metric[j], unit[j], values[j])
	}
}

func processCPU() int64 {
	var use syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &use)
	return use.Utime.Nano() + use.Stime.Nano()
}

func threadCPU() int64 {
	var now syscall.Timespec
	const clockThreadCPUTime = 3
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPUTime,
		uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func kilobytes(name string) float64 {
	text, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			n, _ := strconv.ParseFloat(fields[1], 64)
			return n
		}
	}
	return 0
}

func random(state *uint64, low, high time.Duration) time.Duration {
	x := *state
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*state = x
	return low + time.Duration((x*0x2545F4914F6CDD1D>>1)%uint64(high-low))
}

func nothing() {}

/* ---- schedule + cancel ---- */

type producer struct {
	pairs int64
	_     [120]byte
	seed  uint64
	ring  [depth]*time.Timer
}

func (p *producer) delay() time.Duration {
	return random(&p.seed, time.Second, 60*time.Second)
}

func afterFunc(p *producer, i int) {
	p.ring[i].Stop()
	p.ring[i] = time.AfterFunc(p.delay(), nothing)
}

func reset(p *producer, i int) {
	p.ring[i].Stop()
	p.ring[i].Reset(p.delay())
}

func (p *producer) work(stop *int32, done chan bool, one func(*producer, int)) {
	for i := range p.ring {
		p.ring[i] = time.AfterFunc(p.delay(), nothing)
	}
	for atomic.LoadInt32(stop) == 0 {
		for i := range p.ring {
			one(p, i)
		}
		atomic.AddInt64(&p.pairs, depth)
	}
	for _, timer := range p.ring {
		timer.Stop()
	}
	done <- true
}

func sum(producers []producer) (all int64) {
	for i := range producers {
		all += atomic.LoadInt64(&producers[i].pairs)
	}
	return
}

func window(n int, one func(*producer, int)) (cpu, wall float64) {
	var stop int32
	producers := make([]producer, n)
	done := make(chan bool)
	for i := range producers {
		producers[i].seed = uint64(i + 1)
		go producers[i].work(&stop, done, one)
	}
	time.Sleep(time.Duration(seconds * 0.2e9))
	pairs, used, start := sum(producers), processCPU(), time.Now()
	time.Sleep(time.Duration(seconds * 1e9))
	pairs = sum(producers) - pairs
	cpu = float64(processCPU()-used) / float64(pairs)
	wall = float64(time.Since(start).Nanoseconds()) * float64(n) / float64(pairs)
	atomic.StoreInt32(&stop, 1)
	for range producers {
		<-done
	}
	return
}

func pairs(scenario string, n, others int, one func(*producer, int)) {
	cpu, wall := make([]float64, repeats), make([]float64, repeats)
	for i := range cpu {
		cpu[i], wall[i] = window(n, one)
	}
	count := others
	if count == 0 {
		count = depth
	}
	report(scenario, n, count, "CPU a pair", "ns", cpu)
	report(scenario, n, count, "wall a pair", "ns", wall)
	report(scenario, n, count, "peak memory", "MB", []float64{kilobytes("VmHWM:") / 1024})
}

/* ---- schedule only ---- */

/* What lives in the heap; the process's size would count what former cases left behind. */
func heap() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

func populate(count int) []*time.Timer {
	seed := uint64(3)
	all := make([]*time.Timer, count) /* a timer without a reference would be collected */
	for i := range all {
		all[i] = time.AfterFunc(random(&seed, 600*time.Second, 3600*time.Second), nothing)
	}
	return all
}

func buildOnce(count int) []float64 {
	before, used, start := heap(), processCPU(), time.Now()
	all := populate(count)
	wall := time.Since(start)
	time.Sleep(time.Duration(count) * 500)
	cpu := processCPU() - used
	bytes := heap() - before
	for _, timer := range all {
		timer.Stop()
	}
	each := float64(count)
	return []float64{float64(cpu) / each, float64(wall.Nanoseconds()) / each, bytes / each}
}

func build(count int) {
	repeat("schedule only", 1, count, []string{"CPU in all", "wall each", "heap each"},
		[]string{"ns", "ns", "bytes"}, buildOnce)
}

/* ---- one million due within a second ---- */

type record struct {
	deadline time.Time
	late     time.Duration
}

func expireOnce(count int) []float64 {
	var fired int64
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	records := make([]record, count)
	seed := uint64(9)
	runtime.GC()
	all, mine := processCPU(), threadCPU()
	from := time.Now().Add(time.Duration(count)*1500 + time.Second/3)
	for i := range records {
		r := &records[i]
		r.deadline = from.Add(random(&seed, 0, time.Second))
		time.AfterFunc(time.Until(r.deadline), func() {
			r.late = time.Since(r.deadline)
			atomic.AddInt64(&fired, 1)
		})
	}
	mine = threadCPU() - mine
	for atomic.LoadInt64(&fired) < int64(count) {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	all = processCPU() - all
	late := make([]float64, count)
	early := 0.0
	for i := range records {
		late[i] = float64(records[i].late.Nanoseconds()) / 1e3
		if late[i] < 0 {
			late[i] = 0
			early++
		}
	}
	sort.Float64s(late)
	return []float64{float64(all-mine) / float64(count), early, late[count/2],
		late[int(float64(count)*0.99)], late[int(float64(count)*0.999)]}
}

func expire(count int) {
	repeat("within a second", 1, count,
		[]string{"CPU each", "early", "late p50", "late p99", "late p99.9"},
		[]string{"ns", "timeouts", "us", "us", "us"}, expireOnce)
}

/* ---- millions by two threads, none cancelled: due when ask_bulk's are ---- */

func bulkOnce(count int) []float64 {
	var fired int64
	least := time.Duration(count)*400 + time.Second
	done := make(chan bool)
	one := func() { atomic.AddInt64(&fired, 1) }
	runtime.GC()
	cpu, start := processCPU(), time.Now()
	for i := 1; i <= 2; i++ {
		go func(seed uint64) {
			for j := 0; j < count/2; j++ {
				time.AfterFunc(least+random(&seed, 0, 2*time.Second), one)
			}
			done <- true
		}(uint64(i))
	}
	<-done
	<-done
	wall, scheduled := time.Since(start), processCPU()
	for atomic.LoadInt64(&fired) < int64(count) {
		time.Sleep(50 * time.Millisecond)
	}
	each := float64(count)
	return []float64{float64(wall.Nanoseconds()) / each, float64(scheduled-cpu) / each,
		float64(processCPU()-cpu) / each}
}

func bulk(count int) {
	repeat("bulk", 2, count, []string{"wall to schedule", "CPU to schedule", "CPU of its life"},
		[]string{"ns", "ns", "ns"}, bulkOnce)
}

func main() {
	repeats, _ = strconv.Atoi(os.Args[1])
	seconds, _ = strconv.ParseFloat(os.Args[2], 64)
	quick = os.Args[3] == "1"
	pairs("pairs", 1, 0, afterFunc)
	pairs("pairs", 2, 0, afterFunc)
	pairs("pairs, one timer reset", 1, 0, reset)
	pairs("pairs, one timer reset", 2, 0, reset)
	expire(1000000)
	many := 5000000
	if quick {
		many = 1000000
	}
	build(many)
	bulk(many)
	others := populate(1000000)
	pairs("pairs beside others", 1, 1000000, afterFunc)
	runtime.KeepAlive(others)
}

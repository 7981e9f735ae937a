/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Netty's HashedWheelTimer, asked what peers.c asks the others. Prints a JSON line for each figure,
 * with the values of all runs. Arguments: repeats, seconds of a window, 1 for quick; for the
 * question of bench/inflight also: producers, timeouts that each has in flight.
 */
import com.sun.management.OperatingSystemMXBean;
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

public final class NettyPeer {
    private static final int DEPTH = 1024;
    private static final long SECOND = 1_000_000_000L;
    private static final TimerTask NOTHING = timeout -> { };
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private static int repeats;
    private static double seconds;
    private static boolean quick;

    /* ---- figures ---- */
    private static void report(String scenario, int producers, long count, String metric,
                               String unit, double[] values) {
        System.out.printf("{\"case\":\"%s\",\"producers\":%d,\"count\":%d,\"metric\":\"%s\","
            + "\"unit\":\"%s\",\"values\":%s}%n", scenario, producers, count, metric, unit,
            Arrays.toString(values).replace(" ", ""));
        System.out.flush();
    }

    private interface Question {
        double[] ask() throws Exception;
    }

    /* Once for nothing, then each of its figures over half as many runs as others have. */
    private static void repeat(String scenario, int producers, long count, String[] metric,
                               String[] unit, Question question) throws Exception {
        double[][] values = new double[metric.length][(repeats + 1) / 2];
        question.ask();
        for (int i = 0; i < values[0].length; i++) {
            double[] once = question.ask();
            for (int j = 0; j < metric.length; j++)
                values[j][i] = once[j];
        }
        for (int j = 0; j < metric.length; j++)
            report(scenario, producers, count, metric[j], unit[j], values[j]);
    }

    private static double megabytes(String name) throws IOException {
        for (String line : Files.readAllLines(Paths.get("/proc/self/status")))
            if (line.startsWith(name))
                return Double.parseDouble(line.replaceAll("[^0-9]", "")) / 1024;
        return 0;
    }

    private static long random(long[] state, long low, long high) {
        long x = state[0];
        x ^= x >>> 12;
        x ^= x << 25;
        x ^= x >>> 27;
        state[0] = x;
        return low + (x * 0x2545F4914F6CDD1DL >>> 1) % (high - low);
    }

    private static HashedWheelTimer timer() {
        HashedWheelTimer timer = new HashedWheelTimer(1, TimeUnit.MILLISECONDS);
        timer.start();
        return timer;
    }

    /* ---- schedule + cancel ---- */
    private static final class Producer extends Thread {
        private final HashedWheelTimer timer;
        private final Timeout[] ring;
        private final long[] seed;
        private final long least; /* of the delays */
        private int next;
        private final AtomicLong pairs = new AtomicLong();
        private volatile boolean stop;

        Producer(HashedWheelTimer timer, int number, int each, long least) {
            this.timer = timer;
            this.least = least;
            ring = new Timeout[each];
            seed = new long[] {number + 1};
        }

        private Timeout schedule() {
            return timer.newTimeout(NOTHING, random(seed, least, 60 * SECOND + 1),
                                    TimeUnit.NANOSECONDS);
        }

        private void batch() {
            for (int i = 0; i < DEPTH; i++) {
                ring[next].cancel();
                ring[next] = schedule();
                next = next + 1 < ring.length ? next + 1 : 0;
            }
        }

        @Override public void run() {
            for (int i = 0; i < ring.length; i++)
                ring[i] = schedule();
            while (!stop) {
                batch();
                pairs.lazySet(pairs.get() + DEPTH);
            }
            for (Timeout timeout : ring)
                timeout.cancel();
        }
    }

    private static long sum(Producer[] producers) {
        long all = 0;
        for (Producer producer : producers)
            all += producer.pairs.get();
        return all;
    }

    /* CPU ns and wall ns a pair. */
    private static double[] window(HashedWheelTimer timer, int n, double length)
            throws InterruptedException {
        Producer[] producers = new Producer[n];
        for (int i = 0; i < n; i++)
            (producers[i] = new Producer(timer, i, DEPTH, SECOND)).start();
        Thread.sleep((long) (length * 200));
        long pairs = sum(producers), cpu = SYSTEM.getProcessCpuTime(), wall = System.nanoTime();
        Thread.sleep((long) (length * 1000));
        pairs = sum(producers) - pairs;
        cpu = SYSTEM.getProcessCpuTime() - cpu;
        wall = System.nanoTime() - wall;
        for (Producer producer : producers)
            producer.stop = true;
        for (Producer producer : producers)
            producer.join();
        return new double[] {(double) cpu / pairs, (double) wall * n / pairs};
    }

    private static void pairs(String scenario, int producers, long others) throws Exception {
        HashedWheelTimer timer = timer();
        double[] cpu = new double[repeats], wall = new double[repeats];
        populate(timer, others);
        window(timer, producers, quick ? 1 : 3); /* the compiler's warm-up */
        for (int i = 0; i < repeats; i++) {
            double[] w = window(timer, producers, Math.max(seconds, 1));
            cpu[i] = w[0];
            wall[i] = w[1];
        }
        long count = others > 0 ? others : DEPTH;
        report(scenario, producers, count, "CPU a pair", "ns", cpu);
        report(scenario, producers, count, "wall a pair", "ns", wall);
        report(scenario, producers, count, "peak memory", "MB",
               new double[] {megabytes("VmHWM")});
        timer.stop();
    }

    /* ---- many in flight ---- */
    private static final long PERIOD = SECOND / 100;

    /* Schedules itself again; how late it was counts between begin and end. */
    private static final class Watch implements TimerTask {
        private final HashedWheelTimer timer;
        private final long[] late = new long[65536];
        private volatile long due = System.nanoTime() + PERIOD;
        private volatile boolean counts;
        private volatile int n;

        Watch(HashedWheelTimer timer) {
            this.timer = timer;
            schedule();
        }

        private void schedule() {
            timer.newTimeout(this, due - System.nanoTime(), TimeUnit.NANOSECONDS);
        }

        @Override public void run(Timeout timeout) {
            long now = System.nanoTime();
            if (counts && n < late.length)
                late[n++] = Math.max(0, now - due);
            due += PERIOD;
            schedule();
        }

        void begin() {
            n = 0;
            counts = true;
        }

        int runs() {
            return n;
        }

        /* With what is overdue, if it is by more than a period. */
        long[] end() {
            counts = false;
            long overdue = System.nanoTime() - due;
            int runs = n;
            long[] sorted = Arrays.copyOf(late, runs + (overdue > PERIOD ? 1 : 0));
            if (overdue > PERIOD)
                sorted[runs] = overdue;
            Arrays.sort(sorted);
            return sorted;
        }
    }

    /* The producers go on from window to window. */
    private static void inflight(int n, int each) throws Exception {
        String[] metric = {"CPU a pair", "wall a pair", "late p50", "late max", "runs"};
        String[] unit = {"ns", "ns", "us", "us", "times"};
        double[][] values = new double[metric.length][repeats];
        Producer[] producers = new Producer[n];
        for (int i = 0; i < n; i++)
            producers[i] = new Producer(null, i, each, 60 * SECOND);
        double before = heap();
        HashedWheelTimer timer = timer();
        Watch watch = new Watch(timer);
        for (int i = 0; i < n; i++)
            (producers[i] = new Producer(timer, i, each, 60 * SECOND)).start();
        while (sum(producers) < 2L * n * each)
            Thread.sleep(10);
        Thread.sleep(quick ? 1000 : 3000); /* the compiler's warm-up */
        for (int i = 0; i < repeats; i++) {
            watch.begin();
            long pairs = sum(producers), cpu = SYSTEM.getProcessCpuTime();
            long wall = System.nanoTime();
            Thread.sleep((long) (Math.max(seconds, quick ? 0.3 : 1) * 1000));
            pairs = sum(producers) - pairs;
            cpu = SYSTEM.getProcessCpuTime() - cpu;
            wall = System.nanoTime() - wall;
            long[] late = watch.end();
            values[0][i] = (double) cpu / pairs;
            values[1][i] = (double) wall * n / pairs;
            values[2][i] = late.length > 0 ? late[late.length / 2] / 1e3 : 0;
            values[3][i] = late.length > 0 ? late[late.length - 1] / 1e3 : 0;
            values[4][i] = watch.runs();
        }
        double after = heap(); /* with all that is in flight */
        for (int j = 0; j < metric.length; j++)
            report("in flight", n, (long) n * each, metric[j], unit[j], values[j]);
        report("in flight", n, (long) n * each, "peak memory", "MB",
               new double[] {megabytes("VmHWM")});
        report("in flight", n, (long) n * each, "heap each", "bytes",
               new double[] {(after - before) / n / each});
    }

    /* ---- schedule only ---- */
    /* What lives in the heap; the process's size is what the heap was given. */
    private static double heap() throws InterruptedException {
        System.gc();
        Thread.sleep(200); /* Netty's timer has a finalizer: it goes with the second round */
        System.gc();
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    private static void populate(HashedWheelTimer timer, long count) {
        long[] seed = {3};
        for (long i = 0; i < count; i++)
            timer.newTimeout(NOTHING, random(seed, 600 * SECOND, 3600 * SECOND),
                             TimeUnit.NANOSECONDS);
    }

    /* CPU ns and wall ns each, and bytes. A method of its own, so that nothing stays reachable. */
    private static double[] buildOnce(long count) throws Exception {
        double before = heap();
        HashedWheelTimer timer = timer();
        long start = System.nanoTime(), used = SYSTEM.getProcessCpuTime();
        populate(timer, count);
        double wall = System.nanoTime() - start;
        Thread.sleep(count / 1000000 * 500);
        double cpu = SYSTEM.getProcessCpuTime() - used;
        double bytes = heap() - before;
        timer.stop();
        return new double[] {cpu / count, wall / count, bytes / count};
    }

    private static void build(long count) throws Exception {
        repeat("schedule only", 1, count, new String[] {"CPU in all", "wall each", "heap each"},
               new String[] {"ns", "ns", "bytes"}, () -> buildOnce(count));
    }

    /* ---- one million due within a second ---- */
    private static final AtomicInteger fired = new AtomicInteger();

    private static final class Record implements TimerTask {
        long deadline, late;

        @Override public void run(Timeout timeout) {
            late = System.nanoTime() - deadline;
            fired.lazySet(fired.get() + 1);
        }
    }

    private static double[] expireOnce(int count) throws Exception {
        HashedWheelTimer timer = timer();
        Record[] records = new Record[count];
        long[] seed = {9};
        for (int i = 0; i < count; i++)
            records[i] = new Record();
        fired.set(0);
        System.gc();
        long all = SYSTEM.getProcessCpuTime();
        long mine = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        long from = System.nanoTime() + 1500L * count + SECOND / 3;
        for (Record record : records) {
            record.deadline = from + random(seed, 0, SECOND);
            timer.newTimeout(record, record.deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
        }
        mine = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - mine;
        while (fired.get() < count)
            Thread.sleep(10);
        Thread.sleep(20);
        all = SYSTEM.getProcessCpuTime() - all;
        timer.stop();
        long[] late = new long[count];
        double early = 0;
        for (int i = 0; i < count; i++) {
            early += records[i].late < 0 ? 1 : 0;
            late[i] = Math.max(0, records[i].late);
        }
        Arrays.sort(late);
        return new double[] {(double) (all - mine) / count, early, late[count / 2] / 1e3,
                             late[(int) (count * 0.99)] / 1e3, late[(int) (count * 0.999)] / 1e3};
    }

    private static void expire(int count) throws Exception {
        repeat("within a second", 1, count,
               new String[] {"CPU each", "early", "late p50", "late p99", "late p99.9"},
               new String[] {"ns", "timeouts", "us", "us", "us"}, () -> expireOnce(count));
    }

    /* ---- millions by two threads, none cancelled: due when ask_bulk's are ---- */
    private static double[] bulkOnce(int count) throws Exception {
        HashedWheelTimer timer = timer();
        TimerTask one = timeout -> fired.lazySet(fired.get() + 1);
        Thread[] threads = new Thread[2];
        long least = 400L * count + SECOND;
        fired.set(0);
        System.gc();
        long start = System.nanoTime(), used = SYSTEM.getProcessCpuTime();
        for (int i = 0; i < 2; i++) {
            long[] seed = {i + 1};
            threads[i] = new Thread(() -> {
                for (int j = 0; j < count / 2; j++)
                    timer.newTimeout(one, least + random(seed, 0, 2 * SECOND),
                                     TimeUnit.NANOSECONDS);
            });
            threads[i].start();
        }
        for (Thread thread : threads)
            thread.join();
        double wall = System.nanoTime() - start, scheduled = SYSTEM.getProcessCpuTime() - used;
        while (fired.get() < count)
            Thread.sleep(50);
        timer.stop();
        double life = SYSTEM.getProcessCpuTime() - used;
        return new double[] {wall / count, scheduled / count, life / count};
    }

    private static void bulk(int count) throws Exception {
        repeat("bulk", 2, count,
               new String[] {"wall to schedule", "CPU to schedule", "CPU of its life"},
               new String[] {"ns", "ns", "ns"}, () -> bulkOnce(count));
    }

    public static void main(String[] args) throws Exception {
        repeats = Integer.parseInt(args[0]);
        seconds = Double.parseDouble(args[1]);
        quick = "1".equals(args[2]);
        if (args.length > 3) {
            inflight(Integer.parseInt(args[3]), Integer.parseInt(args[4]));
            System.exit(0);
        }
        pairs("pairs", 1, 0);
        pairs("pairs", 2, 0);
        expire(1000000);
        int many = quick ? 1000000 : 5000000;
        build(many);
        bulk(many);
        pairs("pairs beside others", 1, 1000000);
        System.exit(0);
    }
}

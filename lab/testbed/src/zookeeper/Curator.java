import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryForever;

/**
 * Takes locks of Apache Curator as its standard input says, one command a line, and prints an event a line.
 *
 * <p>Arguments: the servers, and the session timeout in milliseconds. Each job has a thread and a session of its own.
 */
public final class Curator {
    private final String servers;
    private final int sessionMillis;
    private final CuratorFramework shared;
    private final Map<String, CountDownLatch> held = new ConcurrentHashMap<>();

    private Curator(String servers, int sessionMillis) {
        this.servers = servers;
        this.sessionMillis = sessionMillis;
        this.shared = connect();
    }

    public static void main(String[] args) throws Exception {
        Curator curator = new Curator(args[0], Integer.parseInt(args[1]));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            curator.obey(line.split(" "));
        }
        // The end of the input is the end of all jobs. Their sessions end later, as after a crash.
        Runtime.getRuntime().halt(0);
    }

    private void obey(String[] words) {
        String job = words[1];
        switch (words[0]) {
            case "mutex", "read", "write" -> start(job, () -> hold(job, words[0], words[2]));
            case "release" -> held.remove(job).countDown();
            case "revoke" -> start(job, () -> revoke(job, words[2]));
            case "cycles" -> start(job, () -> cycles(job, words[2], Integer.parseInt(words[3])));
            case "many" -> start(job, () -> many(job, words[2], Integer.parseInt(words[3])));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /** Holds a lock until the job is told to release it. */
    private void hold(String job, String kind, String path) throws Exception {
        try (CuratorFramework client = connect()) {
            InterProcessMutex mutex = mutex(client, kind, path);
            if (kind.equals("mutex")) {
                mutex.makeRevocable(lock -> System.out.println("asked " + job));
            }
            CountDownLatch released = new CountDownLatch(1);
            held.put(job, released);
            mutex.acquire();
            System.out.println("held " + job);
            released.await();
            // Before the release: afterwards, another may hold it, and say so first.
            System.out.println("releases " + job);
            mutex.release();
        }
        System.out.println("released " + job);
    }

    private static InterProcessMutex mutex(CuratorFramework client, String kind, String path) {
        return switch (kind) {
            case "read" -> new InterProcessReadWriteLock(client, path).readLock();
            case "write" -> new InterProcessReadWriteLock(client, path).writeLock();
            default -> new InterProcessMutex(client, path);
        };
    }

    /** Asks the holder of a mutex to release it. */
    private void revoke(String job, String path) throws Exception {
        String holder = new InterProcessMutex(shared, path).getParticipantNodes().iterator().next();
        Revoker.attemptRevoke(shared, holder);
        System.out.println("done " + job + " 0");
    }

    /** Takes and releases a mutex, again and again. */
    private void cycles(String job, String path, int count) throws Exception {
        try (CuratorFramework client = connect()) {
            InterProcessMutex mutex = new InterProcessMutex(client, path);
            client.blockUntilConnected();
            long started = System.nanoTime();
            for (int i = 0; i < count; i++) {
                mutex.acquire();
                mutex.release();
            }
            System.out.println("done " + job + " " + (System.nanoTime() - started));
        }
    }

    /** Takes many mutexes, one after the other, and keeps them. */
    private void many(String job, String path, int count) throws Exception {
        List<InterProcessMutex> mutexes = new ArrayList<>();
        shared.blockUntilConnected();
        long started = System.nanoTime();
        for (int i = 0; i < count; i++) {
            InterProcessMutex mutex = new InterProcessMutex(shared, path + "-" + i);
            mutex.acquire();
            mutexes.add(mutex);
        }
        System.out.println("done " + job + " " + (System.nanoTime() - started));
    }

    private CuratorFramework connect() {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(servers)
                .sessionTimeoutMs(sessionMillis)
                .retryPolicy(new RetryForever(20))
                // The servers do not tell the addresses of the others' proxies.
                .ensembleTracker(false)
                .build();
        client.start();
        return client;
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void start(String job, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                System.out.println("failed " + job + " " + error);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}

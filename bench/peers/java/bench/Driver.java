package bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.json.JSONObject;

/**
 * Driver of the papers' benchmark for systems whose own client is in Java: {@code Driver CLASS}. It follows the orders on its standard
 * input (bench/README.md).
 */
public final class Driver implements Peer.Receiver {
    private static final long FAREWELL_MS = 1_000;
    private final Peer peer;
    private JSONObject scenario;
    private List<Peer.Sender> senders = List.of();
    private Tally[] tallies = {};
    private final AtomicLong answered = new AtomicLong();
    private int size;

    private Driver(Peer peer) {
        this.peer = peer;
    }

    public static void main(String[] arguments) throws Exception {
        // Libraries print to the standard output, which is for answers only.
        PrintStream out = System.out;
        System.setOut(System.err);
        Peer peer = (Peer) Class.forName(arguments[0]).getDeclaredConstructor().newInstance();
        Driver driver = new Driver(peer);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject order = new JSONObject(line);
            if (order.getString("order").equals("stop")) {
                break;
            }
            JSONObject answer;
            try {
                answer = driver.follow(order);
            } catch (Exception | LinkageError error) {
                error.printStackTrace();
                answer = new JSONObject().put("answer", "error").put("text", error.toString());
            }
            out.println(answer);
            out.flush();
        }
        // Takes leave of the servers, if they listen. Then ends the process, whatever threads the libraries have left.
        Thread farewell = new Thread(driver::leave);
        farewell.setDaemon(true);
        farewell.start();
        farewell.join(FAREWELL_MS);
        Runtime.getRuntime().halt(0);
    }

    private void leave() {
        try {
            peer.leave();
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    @Override
    public void got(int receiver, byte[] content) {
        tallies[receiver].count(content, size);
    }

    @Override
    public void answered() {
        answered.incrementAndGet();
    }

    private JSONObject follow(JSONObject order) throws Exception {
        switch (order.getString("order")) {
            case "prepare":
                scenario = order.getJSONObject("scenario");
                size = scenario.getInt("size");
                tallies = new Tally[scenario.getInt("receivers")];
                Arrays.setAll(tallies, number -> new Tally());
                senders = peer.connect(order, this);
                return new JSONObject()
                        .put("answer", "prepared")
                        .put("here", peer.here())
                        .put("client", peer.client() + ", Java " + Runtime.version().feature());
            case "expect":
                answered.set(0);
                for (Tally tally : tallies) {
                    tally.begin(order.getInt("round"), scenario.getInt("senders"), order.getInt("messages"));
                }
                return new JSONObject().put("answer", "ready");
            case "run":
                return run(order);
            case "report":
                return report(order.getLong("expected"), order.getLong("quiet_ms"));
            default:
                return new JSONObject().put("answer", "ready");
        }
    }

    private boolean isStream() {
        return scenario.getString("kind").equals("stream");
    }

    /** The numbers of one sender. */
    private static final class Played {
        long sent;
        long answered;
        long firstNs;
        long lastNs;
        final Times times = new Times();
        Exception error;
    }

    private JSONObject run(JSONObject order) throws Exception {
        Played[] played = new Played[senders.size()];
        CountDownLatch done = new CountDownLatch(senders.size());
        for (int number = 0; number < played.length; number++) {
            Played own = played[number] = new Played();
            int sender = number;
            senders.get(number).play(() -> {
                try {
                    if (isStream()) {
                        stream(order, sender, own);
                    } else {
                        roundTrips(order, sender, own);
                    }
                } catch (Exception error) {
                    own.error = error;
                }
                done.countDown();
            });
        }
        done.await();
        Played all = new Played();
        all.firstNs = Long.MAX_VALUE;
        for (Played own : played) {
            if (own.error != null) {
                throw own.error;
            }
            all.sent += own.sent;
            all.answered += own.answered;
            all.firstNs = Math.min(all.firstNs, own.firstNs);
            all.lastNs = Math.max(all.lastNs, own.lastNs);
            all.times.add(own.times);
        }
        return new JSONObject()
                .put("answer", "done")
                .put("sent", all.sent)
                .put("answered", all.answered)
                .put("first_ns", all.firstNs)
                .put("last_ns", all.lastNs)
                .put("times", all.times.pairs())
                .put("mean_ns", all.times.mean());
    }

    private static void sleepUntil(long dueNs) {
        for (long left = dueNs - System.nanoTime(); left > 0; left = dueNs - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    private void stream(JSONObject order, int number, Played played) throws Exception {
        Peer.Sender sender = senders.get(number);
        long interval = order.getLong("interval_ns");
        long first = order.getLong("start_ns") + interval * number / senders.size();
        boolean isDue = order.optString("stamp").equals("due");
        int round = order.getInt("round");
        int messages = order.getInt("messages");
        sleepUntil(first);
        played.firstNs = System.nanoTime();
        for (int message = 0; message < messages; message++) {
            long due = first + interval * message;
            if (interval > 0 && System.nanoTime() < due) {
                sender.flush();
                sleepUntil(due);
            }
            // Some clients keep the array that they are given.
            byte[] content = Payload.filled(size);
            Payload.write(content, round, number, message, isDue ? due : System.nanoTime());
            sender.send(content);
            played.sent++;
        }
        sender.flush();
        played.lastNs = System.nanoTime();
    }

    private void roundTrips(JSONObject order, int number, Played played) throws Exception {
        Peer.Sender sender = senders.get(number);
        int messages = order.getInt("messages");
        sleepUntil(order.getLong("start_ns"));
        played.firstNs = System.nanoTime();
        for (int message = 0; message < messages; message++) {
            byte[] content = Payload.filled(size);
            byte[] text = String.format("%06x%06x%02x", message, number, order.getInt("round"))
                    .getBytes(StandardCharsets.US_ASCII);
            System.arraycopy(text, 0, content, 0, Math.min(text.length, size));
            long began = System.nanoTime();
            played.sent++;
            if (Arrays.equals(sender.ask(content), content)) {
                played.answered++;
                played.times.record(System.nanoTime() - began);
            }
        }
        played.lastNs = System.nanoTime();
    }

    private long soFar() {
        if (!isStream()) {
            return answered.get();
        }
        long sum = 0;
        for (Tally tally : tallies) {
            sum += tally.soFar();
        }
        return sum;
    }

    private JSONObject report(long expected, long quietMs) throws InterruptedException {
        long seen = soFar();
        long since = System.nanoTime();
        while (seen < expected && System.nanoTime() - since < quietMs * 1_000_000) {
            Thread.sleep(2);
            long now = soFar();
            if (now != seen) {
                seen = now;
                since = System.nanoTime();
            }
        }
        long duplicated = 0;
        long disordered = 0;
        long late = 0;
        long corrupt = 0;
        long lastNs = 0;
        Times times = new Times();
        for (Tally tally : tallies) {
            synchronized (tally) {
                duplicated += tally.duplicated;
                disordered += tally.disordered;
                late += tally.late;
                corrupt += tally.corrupt;
                lastNs = Math.max(lastNs, tally.lastNs);
                times.add(tally.times);
            }
        }
        return new JSONObject()
                .put("answer", "report")
                .put("received", soFar())
                .put("duplicated", duplicated)
                .put("disordered", disordered)
                .put("late", late)
                .put("corrupt", corrupt)
                .put("last_ns", lastNs)
                .put("times", times.pairs())
                .put("mean_ns", times.mean());
    }
}

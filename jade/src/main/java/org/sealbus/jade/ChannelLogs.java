package org.sealbus.jade;

import java.io.IOException;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.logging.Level;

/**
 * The logs of persistent channels, which nodes keep, through this container's own node; and filters, which that node evaluates for
 * this process.
 */
final class ChannelLogs {
    private static final int KEEP = 0x30;
    static final int KEEP_SIGNED = 0x31;
    private static final int MOST_FILTERS = 256;
    /** How long a node may take to keep an event, in nanoseconds. */
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(30);

    /**
     * The verdict of a filter on an event.
     *
     * @param problem why it is no filter, or cannot be evaluated for the event; null if it can
     */
    record Verdict(boolean passes, String problem) {}

    private final Membership membership;
    private final String node;
    private final BooleanSupplier isClosed;
    private final long origin = System.currentTimeMillis() / 1000 << 32 | Integer.toUnsignedLong(new SecureRandom().nextInt());
    private long sequence;
    /** The nodes that keep logs, as the container's own node named them last. */
    private volatile Set<String> nodes;

    ChannelLogs(Membership membership, BooleanSupplier isClosed) {
        this.membership = membership;
        this.isClosed = isClosed;
        node = Json.text(membership.welcome(), "node");
        nodes = Set.of(node);
    }

    /** This container's own node. */
    String node() {
        return node;
    }

    /** The nodes that keep logs of channels, as far as is known. */
    Set<String> nodes() {
        try {
            Set<String> named = new TreeSet<>(Set.of(node));
            Json.list(membership.ask(Map.of("ask", "nodes")), "nodes").forEach(one -> named.add((String) one));
            nodes = named;
        } catch (IOException away) {
            Mesh.LOG.log(Level.FINE, "the node does not say which nodes keep logs", away);
        }
        return nodes;
    }

    /** Asks the logs of a node. */
    Object ask(String of, Map<String, Object> request) throws IOException {
        return Json.member(membership.ask(Map.of("ask", "channel-log", "node", of, "request", request)), "log");
    }

    /** An event in the form in which nodes get it. */
    private static String frame(long origin, long sequence, Head head, byte[] body) {
        Frame.Body out = new Frame.Body().number(1, KEEP).number(8, origin).leb(sequence);
        return Base64.getEncoder().encodeToString(head.write(out).bytes(body).done());
    }

    /** Has the verdicts of filters on an event of an agent here; without an event ({@code head} is null), only of their form. */
    Map<String, Verdict> judge(String agent, Collection<String> filters, Head head, byte[] body) throws IOException {
        Map<String, Verdict> verdicts = new HashMap<>();
        List<String> left = new ArrayList<>(filters);
        while (!left.isEmpty()) {
            List<String> some = List.copyOf(left.subList(0, Math.min(left.size(), MOST_FILTERS)));
            Map<String, Object> request = new HashMap<>(Map.of("log", "judge", "agent", agent, "filters", some));
            if (head != null) {
                request.put("event", frame(0, 0, head, body));
            }
            List<?> answers = Json.list(ask(node, request), "verdicts");
            // Filters that cost much together are judged in several questions.
            int judged = Math.min(answers.size(), some.size());
            if (judged == 0) {
                throw new IOException("node " + node + " judges none of " + some.size() + " filters");
            }
            left.subList(0, judged).clear();
            for (int i = 0; i < judged; i++) {
                Object answer = answers.get(i);
                boolean passes = Boolean.TRUE.equals(Json.member(answer, "passes"));
                verdicts.put(some.get(i), new Verdict(passes, (String) Json.member(answer, "problem")));
            }
        }
        return verdicts;
    }

    /** Has an event of an agent here kept. One at a time, so that they stay in order. Returns its number in the log. */
    synchronized long keep(String agent, Head head, byte[] body) throws IOException {
        sequence++;
        List<?> events = List.of(Map.of("publisher", agent, "frame", frame(origin, sequence, head, body)));
        Map<String, Object> keep = Map.of("log", "keep", "events", events);
        Object answer = membership.askPatiently(Map.of("ask", "channel-log", "node", node, "request", keep), PATIENCE, isClosed);
        Object outcome = Json.list(Json.member(answer, "log"), "outcomes").get(0);
        if (Json.member(outcome, "number") instanceof Long number) {
            return number;
        }
        throw new Attachment.Refused(Json.member(outcome, "fault"));
    }
}

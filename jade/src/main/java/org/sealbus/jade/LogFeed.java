package org.sealbus.jade;

import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.logging.Level;

/**
 * Reads what nodes keep of persistent channels for a subscription that is durable or begins before now: one thread for each node.
 * An event of a durable subscription is handled when its agent has read it, and the node takes note of that.
 */
final class LogFeed {
    /** How long a node waits for events before it says that there are none, in milliseconds. */
    private static final long WAIT = 4_000;
    private static final long LOOK = 500;
    private static final long PAUSE = 250;
    private static final long REFUSED = 5_000;
    private static final long NOTE = 25;
    /** Most events of a node that wait for the agent. */
    private static final int MOST_EVENTS = 256;
    private static final int MOST_BYTES = 512 << 10;

    /** How far the log of a channel on one node was read. */
    private static final class Place {
        /** The next number to read. */
        private long next;
        /** Events that the agent has not read. */
        private final TreeSet<Long> unread = new TreeSet<>();
        /** All events before this number are handled, as the node knows. */
        private long noted;
        /** Events that were not handed out because their publisher was revoked, of which the log does not tell yet. */
        private long revoked;

        private long handled() {
            return unread.isEmpty() ? next : unread.first();
        }
    }

    private final Mesh mesh;
    private final ChannelLogs logs;
    private final ChannelSubscription subscription;
    private final SubscriptionOptions options;
    /** When the subscription was made, in its first life if it is durable, in microseconds since 1970. */
    private long began = System.currentTimeMillis() * 1000;
    private boolean resumes;
    /** By node and channel. The mesh guards it, as the following. */
    private final Map<String, Map<String, Place>> places = new HashMap<>();
    private boolean isNoting;
    private final Handover handover;

    LogFeed(Mesh mesh, ChannelLogs logs, ChannelSubscription subscription) {
        this.mesh = mesh;
        this.logs = logs;
        this.subscription = subscription;
        options = subscription.options();
        handover = new Handover(mesh);
    }

    /** Reads until the subscription ends. */
    void start() {
        Door.start("sealbus-logs", this::look);
    }

    private boolean isOpen() {
        return !mesh.isClosed() && mesh.channels.subscription(subscription.number()) == subscription;
    }

    /** Finds the nodes that keep logs, as they come. */
    private void look() {
        if (!options.durable().isEmpty() && !learnsItsAge()) {
            return;
        }
        while (true) {
            Set<String> nodes = logs.nodes();
            synchronized (mesh) {
                if (!isOpen()) {
                    return;
                }
                for (String node : nodes) {
                    places.computeIfAbsent(node, any -> {
                        Door.start("sealbus-log", () -> follow(node));
                        return new HashMap<>();
                    });
                }
            }
            Door.pause(LOOK);
        }
    }

    /** Asks since when the durable subscription exists. False: it has ended meanwhile. */
    private boolean learnsItsAge() {
        Map<String, Object> since = Map.of("log", "since", "agent", subscription.agent(), "durable", options.durable());
        while (true) {
            synchronized (mesh) {
                if (!isOpen()) {
                    return false;
                }
            }
            try {
                if (Json.member(logs.ask(logs.node(), since), "since") instanceof Long known) {
                    began = known;
                    resumes = true;
                }
                return true;
            } catch (IOException away) {
                Mesh.LOG.log(Level.FINE, "a durable subscription waits for its node", away);
                Door.pause(PAUSE);
            }
        }
    }

    /** Reads the logs of one node. */
    private void follow(String node) {
        boolean isFirst = true;
        boolean wasRefused = false;
        boolean isStalled = false;
        while (true) {
            Map<String, Object> question;
            if (isStalled) {
                Door.pause(PAUSE);
            }
            synchronized (mesh) {
                if (!isOpen()) {
                    return;
                }
                question = hasRoom(node) ? question(node, isFirst) : null;
            }
            if (question == null) {
                Door.pause(PAUSE);
                continue;
            }
            try {
                List<?> pieces = Json.list(logs.ask(node, Map.of("log", "read", "question", question)), "pieces");
                synchronized (mesh) {
                    if (!isOpen()) {
                        return;
                    }
                    pieces.forEach(piece -> take(node, piece));
                    noteLater(NOTE);
                    isStalled = pieces.stream().anyMatch(piece -> isBehind(node, piece));
                }
                isFirst = false;
                wasRefused = false;
            } catch (IOException | IllegalArgumentException failed) {
                boolean isRefused = !(failed instanceof IOException)
                        || failed instanceof Attachment.Refused refused && !refused.isPassing();
                if (isRefused && !wasRefused) {
                    Mesh.LOG.log(Level.WARNING, "{0} cannot read what {1} keeps of {2}: {3}", new Object[] {subscription.agent(),
                        node, subscription.pattern(), failed.getMessage()});
                }
                wasRefused = isRefused;
                Door.pause(isRefused ? REFUSED : PAUSE);
            }
        }
    }

    /** Whether not all of a piece was taken. */
    private boolean isBehind(String node, Object piece) {
        return places.get(node).get(Json.text(piece, "channel")).next < (Long) Json.member(piece, "next");
    }

    private boolean hasRoom(String node) {
        int unread = places.get(node).values().stream().mapToInt(place -> place.unread.size()).sum();
        return unread <= MOST_EVENTS / 2 && mesh.agents.hasRoom(subscription.agent());
    }

    private Map<String, Object> question(String node, boolean isFirst) {
        Map<String, Object> question = new LinkedHashMap<>();
        question.put("agent", subscription.agent());
        question.put("pattern", subscription.pattern());
        question.put("filter", options.filter());
        if (!options.durable().isEmpty()) {
            question.put("durable", options.durable());
        }
        question.put("start", options.start().write());
        question.put("began", began);
        question.put("resumes", resumes);
        if (!isFirst) {
            Map<String, Object> positions = new TreeMap<>();
            places.get(node).forEach((channel, place) -> positions.put(channel, place.next));
            question.put("positions", positions);
        }
        question.put("events", (long) MOST_EVENTS / 2);
        question.put("bytes", (long) MOST_BYTES);
        question.put("wait", WAIT);
        return question;
    }

    /** Takes what was read of one channel. */
    private void take(String node, Object piece) {
        String channel = Json.text(piece, "channel");
        Place place = places.get(node).computeIfAbsent(channel, any -> new Place());
        for (Object event : Json.list(piece, "events")) {
            long number = (Long) Json.member(event, "number");
            if (number >= place.next) {
                report("kept events were gone before they were read", channel, Json.member(event, "missed"));
                if (!give(place, number, event)) {
                    // It is read again when there is room.
                    place.next = number;
                    return;
                }
            }
        }
        place.next = Math.max(place.next, (Long) Json.member(piece, "next"));
        report("kept events were gone before they were read", channel, Json.member(piece, "missed"));
        report("the filter could not be evaluated for events", channel, Json.member(piece, "filter_errors"));
        report("kept events are not handed out, because an operator has revoked their publisher since", channel, place.revoked);
        place.revoked = 0;
        if (Json.member(piece, "damage") instanceof String damage) {
            Mesh.LOG.log(Level.SEVERE, "{0} waits before the damage of {1} on {2}: {3}", new Object[] {subscription.agent(), channel,
                node, damage});
        }
    }

    private void report(String what, String channel, Object count) {
        if (count instanceof Long number && number > 0) {
            Mesh.LOG.log(Level.WARNING, "{0}, {1}: {2} ({3})", new Object[] {subscription.agent(), channel, what, number});
        }
    }

    /** False: there is no room for an event that is not valid yet. */
    private boolean give(Place place, long number, Object stored) {
        try {
            ByteBuffer in = ByteBuffer.wrap(Base64.getDecoder().decode(Json.text(stored, "frame"))).order(ByteOrder.LITTLE_ENDIAN);
            boolean isSigned = in.get() == ChannelLogs.KEEP_SIGNED;
            in.getLong();
            Head.number(in);
            Head head = Head.read(in);
            if (isSigned) {
                // A proof for third parties. Here the node has seen the author's proof.
                long evidence = Head.number(in);
                in.position((int) Math.min(Integer.MAX_VALUE, in.position() + evidence));
            }
            byte[] body = Frame.rest(in);
            // Older nodes do not say when they kept it.
            long kept = Json.member(stored, "time") instanceof Long time ? time : head.published();
            if (isRevokedSince(kept, body)) {
                place.revoked++;
                return true;
            }
            Head known = Boolean.TRUE.equals(Json.member(stored, "again")) ? head.again() : head;
            place.unread.add(number);
            String refused = handover.hand(new Event(known, List.of(), body), null, subscription, hasRead -> {
                if (hasRead || mesh.channels.subscription(subscription.number()) == subscription) {
                    place.unread.remove(number);
                    noteLater(NOTE);
                }
            }, null, null);
            if (refused != null) {
                place.unread.remove(number);
            }
            if (Handover.OVER_LIMIT.equals(refused)) {
                return false;
            }
            if (refused != null) {
                Mesh.LOG.log(Level.WARNING, "a kept event on {0} is refused: {1}", new Object[] {head.channel(), refused});
            }
        } catch (BufferUnderflowException | IllegalArgumentException | BitEfficient.Malformed unfit) {
            Mesh.LOG.log(Level.WARNING, "a kept event cannot be read", unfit);
        }
        return true;
    }

    /** As for letters: nobody knows since when another party has had the key of an agent that an operator revoked. */
    private boolean isRevokedSince(long kept, byte[] body) throws BitEfficient.Malformed {
        String publisher = mesh.local(BitEfficient.sender(body));
        return publisher != null
                && mesh.trust.isRevokedSince(Identity.parse("spiffe://" + mesh.trust.platform() + "/agent/" + publisher), kept);
    }

    // ---- what was handled ----

    private void noteLater(long millis) {
        if (!isNoting && !options.durable().isEmpty()) {
            isNoting = true;
            mesh.askLater(this::note, millis);
        }
    }

    /** Tells the nodes what was handled. */
    private void note() {
        Map<String, Map<String, Long>> news = new HashMap<>();
        synchronized (mesh) {
            isNoting = false;
            places.forEach((node, channels) -> channels.forEach((channel, place) -> {
                if (place.handled() > place.noted) {
                    news.computeIfAbsent(node, any -> new TreeMap<>()).put(channel, place.handled());
                }
            }));
        }
        news.forEach((node, cursors) -> {
            try {
                logs.ask(node, Map.of("log", "settle", "agent", subscription.agent(), "durable", options.durable(),
                        "cursors", cursors));
                synchronized (mesh) {
                    cursors.forEach((channel, cursor) -> places.get(node).get(channel).noted = cursor);
                }
            } catch (IOException away) {
                Mesh.LOG.log(Level.FINE, "what a durable subscription has read is not noted yet", away);
                synchronized (mesh) {
                    // Once for all nodes that are away.
                    noteLater(PAUSE);
                }
            }
        });
    }
}

package org.sealbus.jade;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Map;

/**
 * The wishes of an agent for the channels that it subscribes to.
 *
 * @param filter   a CEL expression over each message (docs/channels.md); empty: everything
 * @param group    the queue group whose events the subscription shares; empty: none
 * @param prefetch events that a member of a group has at a time, from 1 to 1,024
 * @param answers  whether questions to everyone come too
 * @param durable  the name under which the subscription goes on after an absence; empty: none
 * @param start    where it begins in what nodes keep of persistent channels
 */
public record SubscriptionOptions(String filter, String group, int prefetch, boolean answers, String durable, Start start) {
    /** All events from now on. */
    public static final SubscriptionOptions EVENTS = new SubscriptionOptions("", "", 1, false, "", Start.NOW);

    /**
     * The first event of a subscription among those that are kept. A durable subscription that existed before goes on where it
     * stopped.
     *
     * @param kind {@code now}, {@code since}, {@code last} or {@code number}
     * @param value the milliseconds since 1970, the number of events, or the number of the event
     */
    public record Start(String kind, long value) {
        /** The next event. */
        public static final Start NOW = new Start("now", 0);

        /** The first one that was published at this time or later. */
        public static Start since(Instant time) {
            return new Start("since", time.toEpochMilli());
        }

        /** As many of the latest ones. */
        public static Start last(long count) {
            return new Start("last", count);
        }

        /** The event with this number in the log of each node. */
        public static Start number(long number) {
            return new Start("number", number);
        }

        /** As nodes read it. */
        Map<String, Object> write() {
            return switch (kind) {
                case "since" -> Map.of("from", kind, "time", value);
                case "last" -> Map.of("from", kind, "count", value);
                case "number" -> Map.of("from", kind, "number", value);
                default -> Map.of("from", kind);
            };
        }
    }

    /** The same with a filter. */
    public SubscriptionOptions filter(String expression) {
        return new SubscriptionOptions(expression, group, prefetch, answers, durable, start);
    }

    /** The same as a member of a group, with one event at a time. */
    public SubscriptionOptions group(String name) {
        return new SubscriptionOptions(filter, name, prefetch, answers, durable, start);
    }

    /** The same with so many events at a time. */
    public SubscriptionOptions prefetch(int events) {
        return new SubscriptionOptions(filter, group, events, answers, durable, start);
    }

    /** The same with questions. */
    public SubscriptionOptions answering() {
        return new SubscriptionOptions(filter, group, prefetch, true, durable, start);
    }

    /** The same under a durable name. */
    public SubscriptionOptions durable(String name) {
        return new SubscriptionOptions(filter, group, prefetch, answers, name, start);
    }

    /** The same from an event on. */
    public SubscriptionOptions start(Start first) {
        return new SubscriptionOptions(filter, group, prefetch, answers, durable, first);
    }

    /** Whether the events of persistent channels come from the logs of nodes. */
    boolean readsLogs() {
        return !durable.isEmpty() || !start.kind().equals("now");
    }

    /** The rules of {@code crates/channels/src/exchange}: {@code sharing.rs} and {@code subscriptions.rs}. */
    void check() {
        checkName(group, "a group");
        checkName(durable, "a durable subscription");
        if (!group.isEmpty() && readsLogs()) {
            throw new IllegalArgumentException("a subscription of the group " + group
                    + " cannot be durable, nor begin before now: it gets what is published while the group has members");
        }
        if (prefetch < 1 || prefetch > 1024) {
            throw new IllegalArgumentException("a member of a group has from 1 to 1024 events at a time, not " + prefetch);
        }
    }

    private static void checkName(String name, String what) {
        boolean isLong = name.getBytes(StandardCharsets.UTF_8).length > 512;
        if (isLong || name.chars().anyMatch(Character::isISOControl)) {
            throw new IllegalArgumentException(what + " has a name of at most 512 bytes, without control characters");
        }
    }
}

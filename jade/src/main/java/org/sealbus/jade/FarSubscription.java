package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;

/** A subscription that another process announced. The mesh guards it. */
final class FarSubscription {
    private static final int ANSWERS = 1;
    private static final int TAKES_EVENTS = 2;
    private static final int READS_LOGS = 4;
    private static final int PUSH_BACK = 0;
    private static final int LONGEST_FILTER = 2048;
    private static final int MOST_PREFETCHED = 1024;

    /** All by which a subscription is the same in the former place of its agent and in the new one. */
    record Same(String agent, String pattern, String filter, boolean takesEvents, boolean answers, boolean readsLogs) {}

    final int number;
    final String agent;
    /** The beginning of the certificate under which its agent announced it. */
    final long since;
    final String pattern;
    final String filter;
    final boolean answers;
    final boolean takesEvents;
    final boolean readsLogs;
    /** The group whose events it shares; empty: none. */
    final String group;
    final int prefetch;
    private final boolean pushesBack;
    /** Bytes that may be sent to it in all, and were sent. */
    private long limit;
    private long sent;
    /** Since when publishers wait for its credit, by {@link System#nanoTime()}; 0 if none does. */
    long stalledSince;
    /** Events that passed it by, and events for which its filter could not be evaluated, of which its process was not told. */
    long missed;
    long filterErrors;
    String filterProblem;

    /** Reads an announcement of an agent. */
    FarSubscription(String agent, long since, ByteBuffer in) {
        this.agent = agent;
        this.since = since;
        number = (int) Head.number(in);
        int flags = in.get();
        answers = (flags & ANSWERS) != 0;
        takesEvents = (flags & TAKES_EVENTS) != 0;
        readsLogs = (flags & READS_LOGS) != 0;
        pattern = Head.text(in);
        ChannelSubscription.check(pattern);
        filter = Head.text(in, LONGEST_FILTER);
        pushesBack = in.get() == PUSH_BACK;
        limit = Head.number(in);
        group = Head.text(in);
        prefetch = group.isEmpty() ? 0 : (int) Head.number(in);
        if (prefetch < 0 || prefetch > MOST_PREFETCHED) {
            throw new BufferUnderflowException();
        }
    }

    /** The announcement of a subscription here. */
    static byte[] announce(ChannelSubscription subscription, long limit) {
        SubscriptionOptions options = subscription.options();
        int flags = TAKES_EVENTS | (options.answers() ? ANSWERS : 0) | (options.readsLogs() ? READS_LOGS : 0);
        Frame.Body out = new Frame.Body().leb(subscription.number()).number(1, flags).name(subscription.pattern())
                .name(options.filter()).number(1, PUSH_BACK).leb(limit).name(options.group());
        return (options.group().isEmpty() ? out : out.leb(options.prefetch())).done();
    }

    boolean isInGroup() {
        return !group.isEmpty();
    }

    Same same() {
        return new Same(agent, pattern, filter, takesEvents, answers, readsLogs);
    }

    boolean hasCredit() {
        return !pushesBack || sent < limit;
    }

    void charge(long cost) {
        sent += cost;
    }

    void refund(long cost) {
        sent = Math.max(0, sent - cost);
    }

    /**
     * Raises the limit. The time that publishers wait begins anew, because the agent has taken an event. No event costs less than
     * an empty one, so a smaller raise counts only if publishers can go on.
     */
    void raise(long other) {
        long former = limit;
        limit = Math.max(limit, other);
        boolean isWorthAnEvent = limit - former >= Letter.cost(0);
        if (isWorthAnEvent || limit > former && hasCredit()) {
            stalledSince = 0;
        }
    }
}

package org.sealbus.jade;

import java.util.List;

/**
 * A message that an agent here puts on a channel.
 *
 * @param agent   local name of the publisher
 * @param head    what the frames say of it
 * @param body    the message in the bit-efficient encoding
 * @param receipt what the publisher waits for; null if it waits for nothing
 */
record Publication(String agent, Head head, byte[] body, Receipt receipt) {
    static final String NOT_TAKEN = "an agent that subscribes to the channel did not take it: it expired, was dropped, or the"
            + " subscription ended";

    long cost() {
        return Letter.cost(body.length);
    }

    boolean isBestEffort() {
        return head.qos().reliability == Qos.BEST_EFFORT;
    }

    boolean wantsAgent() {
        return head.qos().acknowledgement == Qos.ACK_AGENT;
    }

    /** Whether a subscription gets it from a log, and not from its publisher. */
    boolean isReadFromLog(boolean readsLogs) {
        return readsLogs && head.qos().isPersistent;
    }

    /** The same of which an agent may have had a copy. */
    Publication again() {
        return new Publication(agent, head.again(), body, receipt);
    }

    /** As it comes to a subscription of this process. */
    Event event() {
        return new Event(head, List.of(), body);
    }
}

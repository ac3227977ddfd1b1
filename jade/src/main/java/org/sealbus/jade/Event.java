package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * An event of a channel, a message to one agent there, or a question to everyone, as it comes in a frame.
 *
 * @param head    what it says of the message
 * @param targets the subscriptions here that it is for; none for all that match
 * @param body    the message in the bit-efficient encoding
 */
record Event(Head head, List<Integer> targets, byte[] body) {
    /** The most subscriptions of a process: a frame names as many. */
    static final int MOST_TARGETS = 1024;

    /** Reads what follows the stamp of the frame. */
    static Event read(ByteBuffer in) {
        Head head = Head.read(in);
        long count = Head.number(in);
        if (count < 0 || count > MOST_TARGETS) {
            throw new BufferUnderflowException();
        }
        List<Integer> targets = new ArrayList<>();
        for (long i = 0; i < count; i++) {
            targets.add((int) Head.number(in));
        }
        return new Event(head, targets, Frame.rest(in));
    }

    /** The parts of a frame behind its stamp. */
    static byte[] write(Head head, List<Integer> targets, byte[] body) {
        Frame.Body out = head.write(new Frame.Body()).leb(targets.size());
        targets.forEach(out::leb);
        return out.bytes(body).done();
    }

    /** Whether its process keeps it until it is acknowledged; else it may be lost. */
    boolean isKept() {
        return head.qos().reliability != Qos.BEST_EFFORT;
    }

    /** Whether its publisher waits until agents have read it. */
    boolean wantsAgent() {
        return head.qos().acknowledgement == Qos.ACK_AGENT;
    }
}

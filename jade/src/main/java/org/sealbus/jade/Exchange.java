package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;

/**
 * This process among those that publish on channels: it says that it has no subscription, so that no publisher waits for it
 * (the protocol: {@code crates/channels/src/frame}).
 */
final class Exchange {
    private static final int HELLO = 0x01;
    private static final int ACKNOWLEDGE = 0x02;
    private static final int KNOWN = 0x15;

    /** Grows with each life of the conversation. */
    private long epoch = System.currentTimeMillis();
    private long peerEpoch;
    private boolean hasToldAll;

    /** Both processes begin anew. */
    void reset() {
        epoch++;
        peerEpoch = 0;
        hasToldAll = false;
    }

    /** Takes a frame, and returns the frames to answer with. */
    List<byte[]> take(byte[] bytes) {
        List<byte[]> answers = new ArrayList<>();
        ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        try {
            int kind = in.get();
            if (kind == HELLO) {
                hello(in.getLong(), in.getLong(), answers);
                return answers;
            }
            if (kind == ACKNOWLEDGE) {
                return answers;
            }
            if (in.getLong() != session(peerEpoch, epoch)) {
                greet(answers);
                return answers;
            }
            long number = number(in);
            if (number > 0) {
                // Whatever it was, it is dealt with: this process has no subscription.
                Frame.Body answer = new Frame.Body().number(1, ACKNOWLEDGE).number(8, session(epoch, peerEpoch));
                answers.add(leb(leb(leb(leb(answer, 0), number), number), 1).done());
            }
        } catch (BufferUnderflowException cut) {
            Mesh.LOG.fine("a frame for channels was cut short");
        }
        return answers;
    }

    private void hello(long from, long to, List<byte[]> answers) {
        if (Long.compareUnsigned(from, peerEpoch) < 0) {
            greet(answers);
            return;
        }
        if (from != peerEpoch) {
            peerEpoch = from;
            hasToldAll = false;
        }
        if (Long.compareUnsigned(to, epoch) > 0) {
            epoch = to + 1;
            hasToldAll = false;
        }
        if (to != epoch) {
            greet(answers);
        }
        if (!hasToldAll) {
            hasToldAll = true;
            answers.add(leb(new Frame.Body().number(1, KNOWN).number(8, session(epoch, peerEpoch)), 1).done());
        }
    }

    private void greet(List<byte[]> answers) {
        answers.add(new Frame.Body().number(1, HELLO).number(8, epoch).number(8, peerEpoch).done());
    }

    /** The session of frames from the process of one epoch to that of another one. */
    private static long session(long from, long to) {
        return mix(mix(from + 0x9e37_79b9_7f4a_7c15L) ^ to);
    }

    /** The finisher of SplitMix64. */
    private static long mix(long value) {
        long once = (value ^ value >>> 30) * 0xbf58_476d_1ce4_e5b9L;
        long twice = (once ^ once >>> 27) * 0x94d0_49bb_1331_11ebL;
        return twice ^ twice >>> 31;
    }

    private static long number(ByteBuffer in) {
        long value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            byte next = in.get();
            value |= (long) (next & 0x7f) << shift;
            if (next >= 0) {
                return value;
            }
        }
        throw new BufferUnderflowException();
    }

    private static Frame.Body leb(Frame.Body out, long value) {
        long left = value;
        while (left > 0x7f) {
            out.number(1, left & 0x7f | 0x80);
            left >>>= 7;
        }
        return out.number(1, left);
    }
}

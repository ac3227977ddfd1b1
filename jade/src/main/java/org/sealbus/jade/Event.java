package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * An event of a channel, or a message to one agent there, as it comes in a frame (its form: {@code crates/channels/src/frame}).
 *
 * @param isMessage  whether it is for one agent
 * @param isKept     whether its process keeps it until it is acknowledged; else it may be lost
 * @param mayBeAgain whether an agent may have had it before
 * @param wantsAgent whether its publisher waits until agents have read it
 * @param channel    the channel
 * @param validFrom  when it may be handed out, in milliseconds since 1970
 * @param expiry     from when it is not handed out any more
 * @param receiver   the whole name of the receiver of a message
 * @param targets    the subscriptions here that it is for; none for all that match
 * @param body       the message in the bit-efficient encoding
 */
record Event(boolean isMessage, boolean isKept, boolean mayBeAgain, boolean wantsAgent, String channel, long validFrom,
        long expiry, String receiver, List<Integer> targets, byte[] body) {
    /** The most subscriptions of a process: a frame names as many. */
    static final int MOST_TARGETS = 1024;
    private static final int LONGEST_NAME = 512;

    /** Reads what follows the stamp of the frame; null for a question, which no subscription here answers. */
    static Event read(ByteBuffer in) {
        int flags = in.get();
        in.get();
        int wishes = in.get();
        String channel = text(in);
        number(in);
        number(in);
        long validFrom = (flags & 0x40) == 0 ? 0 : number(in);
        long expiry = (flags & 0x80) == 0 ? Long.MAX_VALUE : number(in);
        if ((wishes & 8) != 0) {
            number(in);
        }
        boolean isMessage = (flags & 3) == 1;
        if ((flags & 3) > 1) {
            return null;
        }
        String receiver = isMessage ? text(in) : null;
        long count = number(in);
        if (count < 0 || count > MOST_TARGETS) {
            throw new BufferUnderflowException();
        }
        List<Integer> targets = new ArrayList<>();
        for (long i = 0; i < count; i++) {
            targets.add((int) number(in));
        }
        return new Event(isMessage, (flags >> 2 & 3) != 0, (wishes & 16) != 0, (wishes & 7) == 2, channel, validFrom, expiry,
                receiver, targets, Frame.rest(in));
    }

    static long number(ByteBuffer in) {
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

    private static String text(ByteBuffer in) {
        long length = number(in);
        if (length < 0 || length > LONGEST_NAME) {
            throw new BufferUnderflowException();
        }
        byte[] bytes = new byte[(int) length];
        in.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}

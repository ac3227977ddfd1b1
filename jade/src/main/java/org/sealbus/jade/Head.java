package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * The head of a message in the frames of channels (its form: {@code crates/channels/src/frame}).
 *
 * @param mechanism  {@link #EVENT}, {@link #MESSAGE}, {@link #QUESTION} or {@link #ANSWER}
 * @param qos        its quality of service
 * @param channel    the channel
 * @param number     the position among the messages of its publisher's process on the channel
 * @param published  when it was published, in milliseconds since 1970
 * @param validFrom  when it may be handed out; 0: at once
 * @param expiry     from when it is not handed out any more; {@link Long#MAX_VALUE}: never
 * @param mayBeAgain whether an agent may have had it before
 * @param receiver   the whole name of the receiver of a message to one agent; else null
 * @param question   the number of a question, or of the question that an answer is for
 */
record Head(int mechanism, Qos qos, String channel, long number, long published, long validFrom, long expiry,
        boolean mayBeAgain, String receiver, long question) {
    static final int EVENT = 0;
    static final int MESSAGE = 1;
    static final int QUESTION = 2;
    static final int ANSWER = 3;
    private static final int LIFETIME = 8;
    private static final int AGAIN = 16;
    private static final int LONGEST_NAME = 512;

    /** The head of what is published now. */
    static Head of(int mechanism, Qos qos, String channel, long number, long published, long question) {
        long validFrom = qos.validFrom == null ? 0 : qos.validFrom.from(published);
        long expiry = qos.expiry == null ? Long.MAX_VALUE : qos.expiry.from(published);
        return new Head(mechanism, qos, channel, number, published, validFrom, expiry, false, null, question);
    }

    /** The head of an answer to this question. */
    Head answer(long now) {
        return new Head(ANSWER, qos, channel, number, now, 0, expiry, false, null, question);
    }

    /** The same of a message that an agent may have had before. */
    Head again() {
        return new Head(mechanism, qos, channel, number, published, validFrom, expiry, true, receiver, question);
    }

    boolean isExpired(long now) {
        return expiry <= now;
    }

    /** Whether nobody can ever get it. */
    boolean isNeverValid(long now) {
        return isExpired(now) || validFrom >= expiry;
    }

    static Head read(ByteBuffer in) {
        int flags = in.get();
        int ranks = in.get();
        int wishes = in.get();
        Qos qos = new Qos();
        qos.reliability = flags >> 2 & 3;
        qos.isOrdered = (flags & 0x10) != 0;
        qos.isPersistent = (flags & 0x20) != 0;
        qos.priority = ranks & 15;
        qos.level = (ranks >> 4 & 15) - 1;
        qos.acknowledgement = wishes & 7;
        String channel = text(in);
        long number = number(in);
        long published = number(in);
        long validFrom = (flags & 0x40) == 0 ? 0 : number(in);
        long expiry = (flags & 0x80) == 0 ? Long.MAX_VALUE : number(in);
        if ((wishes & LIFETIME) != 0) {
            qos.lifetime = number(in);
        }
        int mechanism = flags & 3;
        String receiver = mechanism == MESSAGE ? text(in) : null;
        long question = mechanism >= QUESTION ? number(in) : 0;
        return new Head(mechanism, qos, channel, number, published, validFrom, expiry, (wishes & AGAIN) != 0, receiver, question);
    }

    Frame.Body write(Frame.Body out) {
        boolean isHeldBack = validFrom > 0;
        boolean expires = expiry < Long.MAX_VALUE;
        boolean hasLifetime = qos.isPersistent && qos.lifetime >= 0;
        out.number(1, mechanism | qos.reliability << 2 | (qos.isOrdered ? 0x10 : 0) | (qos.isPersistent ? 0x20 : 0)
                | (isHeldBack ? 0x40 : 0) | (expires ? 0x80 : 0));
        out.number(1, qos.priority | qos.level + 1 << 4);
        out.number(1, qos.acknowledgement | (hasLifetime ? LIFETIME : 0) | (mayBeAgain ? AGAIN : 0));
        out.name(channel).leb(number).leb(published);
        if (isHeldBack) {
            out.leb(validFrom);
        }
        if (expires) {
            out.leb(expiry);
        }
        if (hasLifetime) {
            out.leb(qos.lifetime);
        }
        return mechanism == MESSAGE ? out.name(receiver) : mechanism >= QUESTION ? out.leb(question) : out;
    }

    /** A number of seven bits a byte, the least significant first. */
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

    /** A text behind its length in bytes. */
    static String text(ByteBuffer in) {
        return text(in, LONGEST_NAME);
    }

    static String text(ByteBuffer in, int longest) {
        long length = number(in);
        if (length < 0 || length > longest) {
            throw new BufferUnderflowException();
        }
        byte[] bytes = new byte[(int) length];
        in.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}

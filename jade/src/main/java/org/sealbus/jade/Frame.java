package org.sealbus.jade;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * A frame between two processes of Sealbus (sealbus-mesh/1): a header of 12 bytes, and a body. Numbers are little-endian.
 *
 * @param kind     one of the constants here
 * @param flags    of {@link #RETURNED} and {@link #UNREAD}: whether more of the message follows
 * @param sequence the low 32 bits of the number of a counted frame
 * @param body     the body
 */
record Frame(int kind, int flags, int sequence, byte[] body) {
    static final int HELLO = 1;
    static final int GOODBYE = 2;
    static final int BIND = 3;
    static final int ACKNOWLEDGE = 4;
    static final int PING = 5;
    static final int PONG = 6;
    static final int PROVE = 7;
    static final int DELEGATE = 8;
    static final int MESSAGE = 16;
    static final int BEGIN = 17;
    static final int CONTINUE = 18;
    static final int TARGET = 19;
    static final int ACCEPT = 20;
    static final int CREDIT = 21;
    static final int LEAVING = 22;
    static final int CLOSE_TARGET = 23;
    static final int TARGET_CLOSED = 24;
    static final int RETURNED = 25;
    static final int UNBIND = 26;
    static final int REFUSED = 27;
    static final int SIGN = 28;
    static final int UNREAD = 29;
    static final int ROW = 30;

    /** The longest piece of a message in one frame. */
    static final int LONGEST_PIECE = 64 << 10;
    static final int LONGEST_BODY = LONGEST_PIECE + 64;
    /** The longest body before the other process is known. */
    static final int LONGEST_FIRST_BODY = 1024;

    private static final byte[] PREFACE = {'S', 'E', 'A', 'L', 'B', 'U', 'S', 1};

    /** Whether the frame is one of those that survive a broken connection. */
    boolean isCounted() {
        return kind >= MESSAGE;
    }

    /** The body, to be read. */
    ByteBuffer in() {
        return little(ByteBuffer.wrap(body));
    }

    /** Reads the next frame. */
    static Frame read(InputStream in, int longestBody) throws IOException {
        ByteBuffer header = little(ByteBuffer.wrap(exactly(in, 12)));
        int length = header.getInt();
        int kind = header.get();
        int flags = header.get();
        header.getShort();
        if (length < 0 || length > longestBody) {
            throw new IOException("a frame of " + Integer.toUnsignedString(length) + " bytes");
        }
        return new Frame(kind, flags, header.getInt(), exactly(in, length));
    }

    /** The first bytes of each side. */
    static byte[] preface() {
        return PREFACE.clone();
    }

    /** Reads what each side begins with. */
    static void readPreface(InputStream in) throws IOException {
        if (!Arrays.equals(exactly(in, PREFACE.length), PREFACE)) {
            throw new IOException("the other end does not speak as a process of Sealbus");
        }
    }

    private static byte[] exactly(InputStream in, int length) throws IOException {
        byte[] bytes = in.readNBytes(length);
        if (bytes.length < length) {
            throw new EOFException("the connection ended");
        }
        return bytes;
    }

    private static ByteBuffer little(ByteBuffer bytes) {
        return bytes.order(ByteOrder.LITTLE_ENDIAN);
    }

    /** Writes a body. */
    static final class Body {
        private final ByteArrayOutputStream out = new ByteArrayOutputStream();

        Body number(int width, long value) {
            for (int i = 0; i < width; i++) {
                out.write((int) (value >> 8 * i));
            }
            return this;
        }

        Body u32(int value) {
            return number(4, value);
        }

        Body bytes(byte[] bytes) {
            out.writeBytes(bytes);
            return this;
        }

        Body text(String text) {
            return bytes(text.getBytes(StandardCharsets.UTF_8));
        }

        /** A number of seven bits a byte, the least significant first. */
        Body leb(long value) {
            long left = value;
            while ((left & ~0x7fL) != 0) {
                number(1, left & 0x7f | 0x80);
                left >>>= 7;
            }
            return number(1, left);
        }

        /** A text behind its length in bytes. */
        Body name(String text) {
            byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
            return leb(bytes.length).bytes(bytes);
        }

        byte[] done() {
            return out.toByteArray();
        }

        /** The bytes, which are then no longer in it. */
        byte[] take() {
            byte[] bytes = done();
            clear();
            return bytes;
        }

        int length() {
            return out.size();
        }

        void clear() {
            out.reset();
        }

        /** The frame with this body. */
        byte[] frame(int kind, int flags, long sequence) {
            byte[] body = done();
            return little(ByteBuffer.allocate(12 + body.length)).putInt(body.length).put((byte) kind).put((byte) flags)
                    .putShort((short) 0).putInt((int) sequence).put(body).array();
        }

        /** The frame with this body, if it is not counted. */
        byte[] frame(int kind) {
            return frame(kind, 0, 0);
        }
    }

    /**
     * The first frame of each side (its fields: {@code crates/mesh/src/frame/hello.rs}).
     *
     * @param resumed     from the accepting side: whether the session goes on
     * @param incarnation made anew at each start of the process
     * @param session     the session, or zeros
     * @param givenUp     the last session with the other process that was given up, or zeros
     * @param received    counted frames received in the session
     * @param connection  the number of the connection between the two
     * @param largest     the largest message taken
     * @param process     the process's identity
     * @param address     where it listens
     */
    record Hello(boolean resumed, byte[] incarnation, byte[] session, byte[] givenUp, long received, long connection,
            int largest, String process, String address) {
        static final int VERSION = 3;
        /** The level {@code auth}. */
        static final int LEVEL = 2;

        /** With the preface before it. */
        byte[] bytes() {
            byte[] name = process.getBytes(StandardCharsets.UTF_8);
            byte[] hello = new Body().number(2, VERSION).number(1, LEVEL).number(1, resumed ? 1 : 0).bytes(incarnation)
                    .bytes(session).bytes(givenUp).number(8, received).number(8, connection).u32(largest)
                    .number(2, name.length).bytes(name).text(address).frame(HELLO);
            return new Body().bytes(PREFACE).bytes(hello).done();
        }

        /** Reads what the other process says first. */
        static Hello read(InputStream in) throws IOException {
            readPreface(in);
            Frame frame = Frame.read(in, LONGEST_FIRST_BODY);
            ByteBuffer body = frame.in();
            try {
                if (frame.kind() == GOODBYE) {
                    throw new IOException("the other process refused the connection: " + goodbye(body));
                }
                if (frame.kind() != HELLO || body.getShort() != VERSION || body.get() != LEVEL) {
                    throw new IOException("the other process has another version or security level");
                }
                boolean resumed = body.get() != 0;
                byte[][] tokens = new byte[3][16];
                for (byte[] token : tokens) {
                    body.get(token);
                }
                long received = body.getLong();
                long connection = body.getLong();
                int largest = body.getInt();
                byte[] process = new byte[Short.toUnsignedInt(body.getShort())];
                body.get(process);
                return new Hello(resumed, tokens[0], tokens[1], tokens[2], received, connection, largest,
                        new String(process, StandardCharsets.UTF_8), text(body));
            } catch (BufferUnderflowException cut) {
                throw new IOException("the first frame is cut short", cut);
            }
        }
    }

    /** The text of a goodbye, from the rest of its frame. */
    static String goodbye(ByteBuffer body) {
        body.get();
        return text(body);
    }

    /** The rest of a body as text. */
    static String text(ByteBuffer body) {
        return new String(rest(body), StandardCharsets.UTF_8);
    }

    /** The rest of a body. */
    static byte[] rest(ByteBuffer body) {
        byte[] rest = new byte[body.remaining()];
        body.get(rest);
        return rest;
    }
}

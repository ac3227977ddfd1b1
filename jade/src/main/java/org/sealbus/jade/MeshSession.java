package org.sealbus.jade;

import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Objects;

/**
 * The session with one other process: its counted frames, which are taken once and in order over any number of connections, and what
 * the greetings say of it. The mesh guards it.
 */
final class MeshSession {
    /** Most bytes that are sent and not acknowledged. */
    static final long WINDOW = 8 << 20;
    /** Frames that are taken before they are acknowledged. */
    private static final int UNTOLD = 64;
    /** Most frames that are sent and not acknowledged, and most bytes of them, before the other process may send any more. */
    private static final int MOST_KEPT = 1 << 18;
    private static final long MOST_KEPT_BYTES = 4 * WINDOW;
    private static final byte[] NONE = new byte[16];

    /** A counted frame that was not acknowledged; the message that ends with it, if one does. */
    private record Counted(long sequence, byte[] bytes, Letter letter) {}

    private final Mesh mesh;
    private byte[] token = NONE;
    private byte[] incarnation = NONE;
    private byte[] givenUp = NONE;
    /** The other process has the session, too. */
    private boolean isConfirmed;
    private final Deque<Counted> kept = new ArrayDeque<>();
    private long keptBytes;
    private long next;
    private long acknowledged;
    private long received;
    private long told;
    private long lastNumber;
    private long peerNumber;

    MeshSession(Mesh mesh) {
        this.mesh = mesh;
    }

    // ---- greetings ----

    /** The first frame of this process on a connection that the other process opens. {@code resumed}: the session goes on. */
    Frame.Hello hello(boolean resumed) {
        return new Frame.Hello(resumed, mesh.incarnation, token, givenUp, received, lastNumber, Mesh.LARGEST_MESSAGE,
                mesh.own.toString(), mesh.address);
    }

    /** The first frame of this process on a connection that it opens. */
    Frame.Hello dial() {
        lastNumber++;
        return hello(false);
    }

    /**
     * Whether another connection is used than one that the other process opens. {@code isOursFirst}: this process opens one at the
     * same time, which is used then.
     */
    boolean isOutdone(Frame.Hello hello, boolean isOursFirst) {
        boolean isSame = isOfLife(hello);
        boolean isFirst = Arrays.equals(incarnation, NONE) || isSame;
        boolean isOutdated = isSame && hello.connection() <= peerNumber;
        boolean isOursUsed = isOursFirst && isFirst && hello.connection() <= lastNumber;
        return isOutdated || isOursUsed;
    }

    /** The two processes use the connection with this greeting of the other process. */
    void connected(Frame.Hello hello) {
        lastNumber = Math.max(lastNumber, hello.connection());
        peerNumber = hello.connection();
    }

    private boolean isOfLife(Frame.Hello hello) {
        return Arrays.equals(hello.incarnation(), incarnation);
    }

    /** Whether the other process has this session, and has lived since it began. */
    boolean isContinuedBy(Frame.Hello hello) {
        return Arrays.equals(hello.session(), token) && isOfLife(hello);
    }

    boolean hasBegun() {
        return !Arrays.equals(token, NONE);
    }

    /** Whether the other process may have taken frames of a session that it does not continue. */
    boolean mayHaveArrived(Frame.Hello hello) {
        boolean isUntouched = Arrays.equals(token, NONE)
                || !isConfirmed && isOfLife(hello) && !Arrays.equals(hello.givenUp(), token);
        return !isUntouched;
    }

    /** The session goes on. */
    void resume(Frame.Hello hello) {
        forget(hello.received());
        confirm();
        told = received;
    }

    /** A session begins. Frames that wait are its first. */
    void begin(byte[] made, Frame.Hello hello) {
        token = made;
        incarnation = hello.incarnation();
        isConfirmed = false;
        told = received;
    }

    void confirm() {
        isConfirmed = true;
    }

    // ---- frames ----

    boolean hasToSend() {
        return !kept.isEmpty();
    }

    /** The number of an agent's messages that are not acknowledged. */
    long letters(String agent) {
        return kept.stream().map(Counted::letter).filter(letter -> letter != null && agent.equals(letter.sender())).count();
    }

    boolean hasWindow() {
        return keptBytes < WINDOW;
    }

    /** Whether more is not acknowledged than the other process may cause. */
    boolean isFull() {
        return kept.size() > MOST_KEPT || keptBytes > MOST_KEPT_BYTES;
    }

    /** The bytes of a new frame. They are kept until the other process has acknowledged them. */
    byte[] count(int kind, int flags, Frame.Body body, Letter letter) {
        byte[] bytes = body.frame(kind, flags, next);
        kept.add(new Counted(next, bytes, letter));
        keptBytes += bytes.length;
        next++;
        return bytes;
    }

    /** The frames that were not acknowledged, in order. */
    List<byte[]> kept() {
        return kept.stream().map(Counted::bytes).toList();
    }

    /** The other process has taken this many frames. */
    void forget(long count) {
        if (count > next || count < acknowledged) {
            throw MeshLink.broken("frames were acknowledged that were not sent");
        }
        acknowledged = count;
        while (!kept.isEmpty() && kept.peek().sequence() < count) {
            keptBytes -= kept.poll().bytes().length;
        }
    }

    /** Counts a frame of the other process. False: it was taken before. */
    boolean take(Frame frame) {
        int ahead = frame.sequence() - (int) received;
        if (ahead > 0) {
            throw MeshLink.broken("a frame is missing");
        }
        if (ahead < 0) {
            return false;
        }
        received++;
        confirm();
        return true;
    }

    /** Whether the other process is to be told what was taken. */
    boolean isDue(boolean isNothingLeft) {
        return received > told && (isNothingLeft || received - told >= UNTOLD);
    }

    /** The body of the frame that tells it so. */
    Frame.Body acknowledgement() {
        told = received;
        return new Frame.Body().number(8, received);
    }

    /** The session is given up. Returns the messages that were not acknowledged. */
    List<Letter> giveUp() {
        List<Letter> lost = kept.stream().map(Counted::letter).filter(Objects::nonNull).toList();
        kept.clear();
        keptBytes = 0;
        givenUp = isConfirmed ? token : givenUp;
        token = NONE;
        isConfirmed = false;
        next = 0;
        acknowledged = 0;
        received = 0;
        told = 0;
        return lost;
    }
}

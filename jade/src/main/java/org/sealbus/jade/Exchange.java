package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;

/**
 * The conversation with one other process about channels (the protocol: {@code crates/channels/src/frame}): its lives, and its
 * frames, each once and in order. {@link Hearing} takes what agents there publish, {@link Speaking} sends what agents here do.
 * The mesh guards it.
 */
final class Exchange {
    static final int ANNOUNCE = 0x11;
    static final int WITHDRAW = 0x12;
    static final int CREDIT = 0x13;
    static final int TAKEN = 0x14;
    static final int VOID = 0x10;
    static final int FILTER_ERRORS = 0x16;
    static final int MISSED = 0x17;
    static final int EVENT = 0x20;
    static final int REPLY = 0x21;
    static final int NO_ANSWER = 0x22;
    private static final int REFUSAL = 0x23;
    static final int ABSENT = 0x24;
    private static final int HELLO = 0x01;
    private static final int ACKNOWLEDGE = 0x02;
    private static final int KNOWN = 0x15;
    private static final int LONGEST_TEXT = 1000;
    private static final long FIRST_GREETING = TimeUnit.MILLISECONDS.toNanos(200);
    private static final long LAST_GREETING = TimeUnit.SECONDS.toNanos(5);

    /** Sends frames to the bus of the other process: in the name of an agent here, or of this process (null). */
    interface Out {
        void send(String author, byte[] frame);

        /** Sends a frame, unless much waits. */
        void sendLosable(String author, byte[] frame);

        /** Sends the acknowledgement of all frames up to now. It takes the place of one that waits, unless frames wait behind that. */
        void acknowledge(byte[] frame);

        /** The frames that wait are of a life that is over. */
        void forget();
    }

    final Identity peer;
    private final Mesh mesh;
    private final Out out;
    /** The share of the other process in the log. */
    final LogShare log;
    private final Hearing hearing;
    private final Speaking speaking;
    /** Grows with each life of the conversation. */
    private long epoch = System.currentTimeMillis();
    private long peerEpoch;
    private boolean hasToldAll;
    /** The number of the last frame taken in the present life. */
    private long taken;
    /** Agents here publish, so what agents there subscribe to is wanted. */
    private boolean isWanted;
    /** The other process knows both epochs. */
    private boolean isHeard;
    private long greetAt;
    private long greetPause = FIRST_GREETING;
    private long corrected;

    Exchange(Mesh mesh, Identity peer, Out out, LogShare log) {
        this.mesh = mesh;
        this.peer = peer;
        this.out = out;
        this.log = log;
        hearing = new Hearing(mesh, this);
        speaking = new Speaking(mesh, this);
    }

    Hearing hearing() {
        return hearing;
    }

    Speaking speaking() {
        return speaking;
    }

    // ---- lives ----

    /** Both processes begin anew: the link between them was lost. */
    void reset(String why) {
        epoch++;
        peerEpoch = 0;
        forget(why);
    }

    private void forget(String why) {
        hasToldAll = false;
        isHeard = false;
        taken = 0;
        greetPause = FIRST_GREETING;
        greetAt = System.nanoTime();
        out.forget();
        hearing.forget();
        speaking.lose(why);
    }

    /** The other process is silent, or breaks the rules: it is greeted in a new life, and publishers do not wait for it. */
    void giveUp(String why) {
        Mesh.LOG.log(Level.WARNING, "{0} hears no events of this container: {1}", new Object[] {peer, why});
        epoch++;
        forget(why);
        speaking.excuse();
    }

    /** An agent here publishes. */
    void want() {
        if (!isWanted) {
            isWanted = true;
            greetAt = System.nanoTime();
            tick(greetAt);
        }
    }

    /** Time has passed. */
    void tick(long now) {
        if (isWanted && !isHeard && now - greetAt >= 0) {
            greet();
            greetAt = now + greetPause;
            greetPause = Math.min(2 * greetPause, LAST_GREETING);
        }
        speaking.tick(now);
    }

    private void hello(long from, long to) {
        if (Long.compareUnsigned(from, peerEpoch) < 0) {
            correct();
            return;
        }
        if (from != peerEpoch) {
            boolean wasKnown = peerEpoch != 0;
            peerEpoch = from;
            if (wasKnown) {
                forget("its process was started anew, or has given this container up");
            } else {
                // Publishers may have waited for it before it could be reached.
                speaking.beginAnew();
            }
        }
        if (Long.compareUnsigned(to, epoch) > 0) {
            epoch = to + 1;
            forget("its process knows a later life of this container");
        }
        if (to == epoch) {
            isHeard = true;
        } else {
            greet();
        }
        if (!hasToldAll) {
            hasToldAll = true;
            mesh.channels.subscriptions().forEach(hearing::announce);
            tell(null, KNOWN, new byte[0]);
        }
    }

    private void greet() {
        out.send(null, new Frame.Body().number(1, HELLO).number(8, epoch).number(8, peerEpoch).done());
    }

    /** The other process speaks as in another life. It is told the present one, at a limited rate. */
    private void correct() {
        long now = System.nanoTime();
        if (now - corrected >= FIRST_GREETING || corrected == 0) {
            corrected = now;
            greet();
        }
    }

    /** Whether publishers need not wait for what agents there subscribe to. */
    boolean isReady() {
        return !isWanted || speaking.isReady();
    }

    long peerEpoch() {
        return peerEpoch;
    }

    boolean hasToldAll() {
        return hasToldAll;
    }

    /** The present life, in the numbers of frames to the other process. */
    long session() {
        return session(epoch, peerEpoch);
    }

    // ---- frames out ----

    /** Sends a frame of the present life, with the next number. It is kept until it is acknowledged. */
    Speaking.Kept tell(String author, int kind, byte[] fields) {
        long number = speaking.next();
        byte[] frame = frame(kind, number, fields);
        Speaking.Kept kept = speaking.keep(number, author, frame);
        out.send(author, frame);
        return kept;
    }

    /** Refuses a frame of the other process, for one of {@link MeshLink#REFUSALS}. */
    void refuse(long number, String reason) {
        tell(null, REFUSAL, new Frame.Body().leb(number).number(1, MeshLink.REFUSALS.indexOf(reason)).name(reason).done());
    }

    /** Sends a frame that may be lost. */
    void send(String author, int kind, byte[] fields) {
        out.sendLosable(author, frame(kind, 0, fields));
    }

    /** Sends a kept frame again. */
    void repeat(Speaking.Kept kept) {
        out.send(kept.isVoid ? null : kept.author, kept.bytes);
    }

    byte[] frame(int kind, long number, byte[] fields) {
        return new Frame.Body().number(1, kind).number(8, session()).leb(number).bytes(fields).done();
    }

    // ---- frames in ----

    /** Takes a frame. {@code author}: the agent that proved that it wrote the frame; null if the process did. */
    void take(byte[] bytes, Trust.Peer author) {
        ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        try {
            int kind = in.get();
            if (kind == HELLO) {
                hello(in.getLong(), in.getLong());
                return;
            }
            if (peerEpoch == 0 || in.getLong() != session(peerEpoch, epoch)) {
                correct();
                return;
            }
            isHeard = true;
            long number = Head.number(in);
            if (kind == ACKNOWLEDGE) {
                speaking.acknowledged(Head.number(in), Head.number(in), Head.number(in), taken);
                return;
            }
            if (number == 0 || number == taken + 1) {
                taken = Math.max(taken, number);
                handle(kind, number, in, author);
            }
            if (number > 0) {
                // An event that waits in JADE's queue is the agent's, so all that was taken counts as read, too.
                Frame.Body answer = new Frame.Body().number(1, ACKNOWLEDGE).number(8, session());
                out.acknowledge(answer.leb(0).leb(taken).leb(taken).leb(speaking.next() - 1).done());
            }
        } catch (BufferUnderflowException | IllegalArgumentException unfit) {
            log.warn("a frame for channels of {0} cannot be read", peer);
        }
    }

    private void handle(int kind, long number, ByteBuffer in, Trust.Peer author) {
        switch (kind) {
            case VOID -> hearing.widenAll();
            case ANNOUNCE -> speaking.announced(author, in, number);
            case WITHDRAW -> speaking.withdrawn((int) Head.number(in), Head.number(in));
            case CREDIT -> speaking.credited((int) Head.number(in), Head.number(in));
            case KNOWN -> speaking.known();
            case TAKEN -> speaking.taken(Head.number(in), true);
            case EVENT -> {
                Event event = Event.read(in);
                if (number > 0 || !event.isKept()) {
                    hearing.event(event, number, author);
                }
            }
            case REPLY -> mesh.channels.questions.answered(this, number, author, Head.read(in), (int) Head.number(in),
                    Frame.rest(in));
            case NO_ANSWER -> {
                long question = Head.number(in);
                mesh.channels.questions.declined(this, (int) Head.number(in), question);
            }
            case REFUSAL -> {
                long refused = Head.number(in);
                in.get();
                speaking.refused(refused, Head.text(in, LONGEST_TEXT));
            }
            case ABSENT -> speaking.absent(Head.number(in));
            case MISSED, FILTER_ERRORS -> {
                int subscription = (int) Head.number(in);
                long count = Head.number(in);
                hearing.passedBy(subscription, count, kind == MISSED ? null : Head.text(in, LONGEST_TEXT));
            }
            default -> Mesh.LOG.log(Level.FINE, "a frame for channels of kind {0}", kind);
        }
    }

    /** A frame came back from the other process, which does not accept its writer. */
    void returned(byte[] bytes, String why) {
        ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        try {
            if (in.get() == HELLO) {
                // It takes no frames at all. If that changes, it greets.
                isWanted = false;
                speaking.excuse();
            } else if (in.getLong() == session()) {
                speaking.returned(Head.number(in), why);
            }
        } catch (BufferUnderflowException impossible) {
            Mesh.LOG.log(Level.FINE, "a frame came back that was not sent", impossible);
        }
    }

    // ---- numbers ----

    /** The session of frames from the process of one epoch to that of another one. */
    static long session(long from, long to) {
        return mix(mix(from + 0x9e37_79b9_7f4a_7c15L) ^ to);
    }

    /** The finisher of SplitMix64. */
    private static long mix(long value) {
        long once = (value ^ value >>> 30) * 0xbf58_476d_1ce4_e5b9L;
        long twice = (once ^ once >>> 27) * 0x94d0_49bb_1331_11ebL;
        return twice ^ twice >>> 31;
    }
}

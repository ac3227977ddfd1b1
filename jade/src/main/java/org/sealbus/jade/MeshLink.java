package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.cert.CertificateException;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The link to one other process, over any number of connections: it greets the process on each, and hands on what comes. Its
 * {@link MeshSession} counts the frames, {@link MeshOutward} knows the agents there, and {@link MeshInward} those here. The mesh
 * guards it.
 */
final class MeshLink {
    /** Why a message comes back, beside the reasons for refusals. */
    static final int NOT_HERE = 1;
    static final int FIRST_REFUSAL = 2;
    /** After this long a process that says nothing is asked whether it is there, and its connection ends, in nanoseconds. */
    private static final long KEEP_ALIVE = TimeUnit.SECONDS.toNanos(10);
    private static final long SILENCE = TimeUnit.SECONDS.toNanos(30);
    static final List<String> REFUSALS = List.of("forged-sender", "not-proved", "unknown-issuer", "revoked", "expired",
            "wrong-identity", "level-mismatch", "not-permitted", "too-large", "malformed", "over-limit",
            "not-sealed", "not-opened", "not-logged");

    final Identity peer;
    final LogShare log = new LogShare();
    String address;
    boolean isDialling;
    long neededSince;
    private final Mesh mesh;
    private final MeshSession session;
    private final MeshOutward outward;
    private final MeshInward inward;
    private final ToBus toBus;
    private final Exchange exchange;
    private MeshConnection connection;

    MeshLink(Mesh mesh, Identity peer) {
        this.mesh = mesh;
        this.peer = peer;
        session = new MeshSession(mesh);
        outward = new MeshOutward(mesh, this);
        inward = new MeshInward(mesh, this);
        toBus = new ToBus(mesh, this);
        exchange = new Exchange(mesh, peer, toBus, log);
    }

    /** A breach of the protocol. The connection ends. */
    static final class Broken extends IllegalStateException {
        private Broken(String rule) {
            super(rule);
        }
    }

    static Broken broken(String rule) {
        return new Broken(rule);
    }

    MeshOutward outward() {
        return outward;
    }

    MeshInward inward() {
        return inward;
    }

    /** The conversation about channels. */
    Exchange exchange() {
        return exchange;
    }

    // ---- connections ----

    boolean isConnected() {
        return connection != null;
    }

    boolean isConnectedBy(MeshConnection one) {
        return connection == one;
    }

    boolean hasToSend() {
        return session.hasToSend();
    }

    boolean hasWindow() {
        return session.hasWindow();
    }

    /** The number of messages to the other process that an agent waits for: its own, its frames for channels, and unread ones. */
    long letters(String agent) {
        Route bus = outward.bus();
        return session.letters(agent) + inward.unread(agent) + (bus == null ? 0 : bus.letters(agent));
    }

    /** The first frame of this process on a connection that it opens. */
    Frame.Hello dial() {
        return session.dial();
    }

    /** The other process has answered. False: its answer does not fit. */
    boolean answered(Frame.Hello answer, MeshConnection made) {
        if (answer.resumed()) {
            if (!session.isContinuedBy(answer)) {
                return false;
            }
            session.resume(answer);
        } else {
            beginAnew(answer.session(), answer);
            session.confirm();
        }
        session.connected(answer);
        begin(made, null);
        return true;
    }

    /** The other process has opened a connection. False: it is not wanted. */
    boolean accept(Frame.Hello hello, MeshConnection made) {
        // Both dial at once: the connection of the smaller name is used.
        boolean isOursFirst = isDialling && mesh.own.compareTo(peer) < 0;
        if (session.isOutdone(hello, isOursFirst)) {
            byte[] replaced = new Frame.Body().number(1, 1).text("another connection is used").frame(Frame.GOODBYE);
            made.put(new Frame.Body().bytes(Frame.preface()).bytes(replaced).done());
            made.begin();
            made.end();
            return false;
        }
        session.connected(hello);
        boolean isResumed = session.hasBegun() && session.isContinuedBy(hello);
        if (isResumed) {
            session.resume(hello);
        } else {
            beginAnew(Mesh.token(), hello);
        }
        begin(made, session.hello(isResumed));
        return true;
    }

    private void beginAnew(byte[] token, Frame.Hello hello) {
        if (session.mayHaveArrived(hello)) {
            mesh.lose(this, "its process has started anew");
        }
        session.begin(token, hello);
    }

    private void begin(MeshConnection made, Frame.Hello first) {
        if (connection != null) {
            goodbye(1, "there is a newer connection");
        }
        connection = made;
        inward.unbindAll();
        if (first != null) {
            made.put(first.bytes());
        }
        outward.proveAll();
        inward.proveAll();
        session.kept().forEach(made::put);
        made.begin();
        pump();
    }

    /** Sends what waits for room in the window. */
    private void pump() {
        inward.giveBackUnread();
        outward.pumpAll();
    }

    /** The connection is gone. Frames on their way may or may not have arrived. */
    void disconnected() {
        if (connection != null) {
            connection.close();
            connection = null;
        }
    }

    /** Time has passed. A cut between two machines ends no connection by itself. */
    void look(long now) {
        long silent = connection == null ? 0 : now - connection.heard();
        if (silent > SILENCE) {
            disconnected();
            mesh.port.need(this, 0);
        } else if (silent > KEEP_ALIVE) {
            control(new Frame.Body().frame(Frame.PING));
        }
    }

    private void goodbye(int reason, String why) {
        connection.put(new Frame.Body().number(1, reason).text(why).frame(Frame.GOODBYE));
        connection.end();
        connection = null;
    }

    void shutDown() {
        if (connection != null) {
            goodbye(0, "this process ends");
        }
    }

    /** Gives the session up: what was not acknowledged may be lost. */
    void lose(String why) {
        disconnected();
        List<Letter> lost = session.giveUp();
        outward.clear();
        inward.clear();
        toBus.clear();
        exchange.reset(why);
        for (Letter letter : lost) {
            if (!letter.receiver().isEmpty()) {
                mesh.agents.undelivered(letter, "it was sent and may not have arrived: " + why);
            }
        }
    }

    // ---- frames out ----

    /** Writes a frame of this connection only. */
    void control(byte[] frame) {
        if (connection != null) {
            connection.put(frame);
        }
    }

    /** Sends a counted frame, over this connection or the next one. */
    void send(int kind, int flags, Frame.Body body, Letter letter) {
        byte[] bytes = session.count(kind, flags, body, letter);
        if (connection != null) {
            connection.put(bytes);
        } else {
            mesh.port.need(this, 0);
        }
    }

    void send(int kind, Frame.Body body) {
        send(kind, 0, body, null);
    }

    /** Tells the other process what was taken. */
    void acknowledge(boolean isNothingLeft) {
        if (connection != null && session.isDue(isNothingLeft)) {
            control(session.acknowledgement().frame(Frame.ACKNOWLEDGE));
        }
    }

    /** The proof of an agent here on this connection; null if there is no connection, or the agent has no certificate. */
    byte[] proofOf(String agent) {
        Credential credential = mesh.membership.credential(agent);
        if (connection == null || credential == null) {
            return null;
        }
        try {
            return connection.binding().prove(credential);
        } catch (GeneralSecurityException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** Verifies a proof of an agent of the other process on this connection. */
    Trust.Peer verify(ByteBuffer proof) throws GeneralSecurityException {
        return connection.binding().verify(proof, mesh.trust);
    }

    /** An agent here shows a new certificate. */
    void prove(String agent) {
        outward.prove(agent);
        inward.prove(agent);
    }

    /** Checks all that was proved, after a change of the deny lists. */
    void check() throws CertificateException {
        if (connection != null) {
            mesh.trust.check(connection.peer());
        }
        inward.check();
        outward.check();
    }

    // ---- frames in ----

    /** Takes a frame of the other process. */
    void take(Frame frame) {
        // An acknowledgement makes room.
        boolean isAnswered = frame.isCounted() || frame.kind() == Frame.BIND;
        if (isAnswered && session.isFull()) {
            throw broken("answers are not acknowledged");
        }
        if (toBus.isOverfull()) {
            toBus.giveUp();
            return;
        }
        try {
            if (!frame.isCounted()) {
                takeControl(frame);
            } else if (session.take(frame)) {
                takeCounted(frame);
            }
        } catch (BufferUnderflowException cut) {
            throw broken("a frame is cut short");
        }
    }

    private void takeControl(Frame frame) {
        ByteBuffer body = frame.in();
        switch (frame.kind()) {
            case Frame.ACKNOWLEDGE -> {
                session.confirm();
                boolean wasFull = !hasWindow();
                session.forget(body.getLong());
                if (wasFull) {
                    pump();
                }
            }
            case Frame.BIND -> inward.bound(body.getInt(), body);
            case Frame.PROVE -> outward.proved(body.getInt(), body);
            case Frame.PING -> control(new Frame.Body().frame(Frame.PONG));
            // A proof is for others, as SIGN is.
            case Frame.PONG, Frame.DELEGATE -> {}
            case Frame.GOODBYE -> {
                boolean isShutDown = body.get() == 0;
                String why = Frame.text(body);
                disconnected();
                if (isShutDown) {
                    mesh.gone(peer, "its process has ended: " + why);
                } else {
                    mesh.port.need(this, 0);
                }
            }
            default -> throw broken("a frame of kind " + frame.kind());
        }
    }

    private void takeCounted(Frame frame) {
        ByteBuffer body = frame.in();
        switch (frame.kind()) {
            case Frame.MESSAGE -> inward.message(body.getInt(), body.getInt(), body);
            case Frame.ROW -> inward.row(body.getInt(), body.getInt(), body);
            case Frame.BEGIN -> inward.begin(body.getInt(), body.getInt(), body.getInt(), Frame.rest(body));
            case Frame.CONTINUE -> inward.goOn(body.getInt(), Frame.rest(body));
            case Frame.TARGET -> inward.open(body.getInt(), Frame.text(body));
            case Frame.ACCEPT, Frame.CREDIT -> outward.credited(body.getInt(), body.getLong());
            case Frame.LEAVING -> {
                Route route = outward.route(body.getInt());
                if (route != null) {
                    outward.left(route, body.get());
                }
            }
            case Frame.CLOSE_TARGET -> inward.close(body.getInt());
            case Frame.TARGET_CLOSED -> outward.closed(body.getInt());
            case Frame.RETURNED -> outward.returned(body.getInt(), body.getInt(), body.get(), frame.flags() != 0, Frame.rest(body));
            case Frame.UNREAD -> outward.leftUnread(body.getInt(), body.getInt(), frame.flags() != 0, Frame.rest(body));
            case Frame.UNBIND -> inward.unbound(body.getInt());
            // A proof for third parties. Here the connection proves the author.
            case Frame.SIGN -> {}
            case Frame.REFUSED -> {
                body.getInt();
                body.get();
                log.warn("{0} refuses an agent of this container: {1}", peer, Frame.text(body));
            }
            default -> throw broken("a frame of kind " + frame.kind());
        }
    }
}

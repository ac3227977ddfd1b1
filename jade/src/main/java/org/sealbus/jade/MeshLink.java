package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.cert.CertificateException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.logging.Level;

/**
 * The link to one other process, over any number of connections: the session with its counted frames, which are taken once and
 * in order, and the agents at both ends. The mesh guards it.
 */
final class MeshLink {
    /** Most bytes that are sent and not acknowledged. */
    private static final long WINDOW = 8 << 20;
    /** Bytes that a sender may send to an agent here before the agent has taken them. */
    private static final long CREDIT = 256 << 10;
    /** Frames that are taken before they are acknowledged. */
    private static final int UNTOLD = 64;
    /** Most agents of the other process, and most agents here that it writes to. */
    private static final int MOST_AGENTS = 65_536;
    /** Most frames that are sent and not acknowledged, and most bytes of them, before the other process may send any more. */
    private static final int MOST_KEPT = 1 << 18;
    private static final long MOST_KEPT_BYTES = 4 * WINDOW;
    /** Most frames that wait for the bus of the other process, and most bytes of them: several of the longest messages fit. */
    private static final int MOST_WAITING = 1 << 17;
    private static final long MOST_WAITING_BYTES = 8 * WINDOW;
    /** Frames that may be lost are lost while so many frames wait. */
    private static final int MOST_LOSABLE = 4096;
    /** The longest row of messages, and most bytes that their beginnings have together: as much as a process of Sealbus writes. */
    private static final int LONGEST_ROW = 8 << 10;
    private static final int MOST_REPEATED = 256 * LONGEST_ROW;
    /** The longest reason that the other process is told, in characters. */
    private static final int LONGEST_WHY = 1000;
    /** The longest name of an agent, in bytes. */
    private static final int LONGEST_NAME = 512;
    /** Most long messages that arrive at the same time. */
    private static final int MOST_PARTIAL = 4;
    /** Routes that are remembered after they were closed. */
    private static final int MOST_FORMER = 256;
    private static final int PROCESS_SENDER = -1;
    private static final byte[] NONE = new byte[16];
    private static final long PAUSE = 50;

    /** Why a message comes back, beside the reasons for refusals. */
    private static final int NOT_HERE = 1;
    private static final int FIRST_REFUSAL = 2;
    static final List<String> REFUSALS = List.of("forged-sender", "not-proved", "unknown-issuer", "revoked", "expired",
            "wrong-identity", "level-mismatch", "not-permitted", "too-large", "malformed", "over-limit",
            "not-sealed", "not-opened", "not-logged");

    /** A counted frame that was not acknowledged; the message that ends with it, if one does. */
    private record Counted(long sequence, byte[] bytes, Letter letter) {}

    /** An agent of the other process, as it proved itself; null if its proof was refused. */
    private record Sender(Trust.Peer peer) {}

    /** An agent here that the other process writes to; the bus of this process if the name is empty. */
    private static final class Target {
        final String agent;
        boolean isOpen;
        long limit;
        long received;
        int sender;
        int total;
        Frame.Body partial;
        /** Whether its agent is looked at again soon. */
        boolean isLooking;

        Target(String agent) {
            this.agent = agent;
        }
    }

    final Identity peer;
    String address;
    boolean isDialling;
    long neededSince;
    private final Mesh mesh;
    private final Exchange exchange;
    private final LogShare log = new LogShare();
    private MeshConnection connection;

    private byte[] session = NONE;
    private byte[] incarnation = NONE;
    private byte[] givenUp = NONE;
    private boolean isConfirmed;
    private final Deque<Counted> kept = new ArrayDeque<>();
    private long keptBytes;
    private long next;
    private long acknowledged;
    private long received;
    private long told;
    private long lastNumber;
    private long peerNumber;

    /** The other process's agents that messages from here go to; free places are null. */
    private final List<Route> routes = new ArrayList<>();
    /** The messages of routes that were closed, by their numbers: their receivers may have some of them unread. */
    private final Map<Integer, Route.Memory> former = new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Integer, Route.Memory> eldest) {
            return size() > MOST_FORMER;
        }
    };
    /** Pieces of a message that one of these receivers left unread. */
    private final Frame.Body unread = new Frame.Body();
    /** Routes that were opened in this session. */
    private int opened;
    /** Agents here that send over the link. An agent keeps its handle. */
    private final List<String> bound = new ArrayList<>();
    private final Map<Integer, Sender> senders = new HashMap<>();
    private final Map<Integer, Target> targets = new HashMap<>();
    /** The acknowledgement for the bus of the other process that was made last. */
    private Letter acknowledgement;
    /** More waits for the bus of the other process than it may make this process keep. */
    private boolean isOverfull;

    MeshLink(Mesh mesh, Identity peer) {
        this.mesh = mesh;
        this.peer = peer;
        exchange = new Exchange(mesh, peer, new ToProcess());
    }

    /** A breach of the protocol. The connection ends. */
    private static IllegalStateException broken(String rule) {
        return new IllegalStateException(rule);
    }

    // ---- connections ----

    boolean isConnected() {
        return connection != null;
    }

    boolean isConnectedBy(MeshConnection one) {
        return connection == one;
    }

    boolean hasToSend() {
        return !kept.isEmpty();
    }

    boolean hasWindow() {
        return keptBytes < WINDOW;
    }

    private Frame.Hello hello(boolean resumed, long number) {
        return new Frame.Hello(resumed, mesh.incarnation, session, givenUp, received, number, Mesh.LARGEST_MESSAGE,
                mesh.own.toString(), mesh.address);
    }

    /** The first frame of this process on a connection that it opens. */
    Frame.Hello dial() {
        lastNumber++;
        return hello(false, lastNumber);
    }

    /** The other process has answered. False: its answer does not fit. */
    boolean answered(Frame.Hello answer, MeshConnection made) {
        if (answer.resumed()) {
            if (!Arrays.equals(answer.session(), session) || !Arrays.equals(answer.incarnation(), incarnation)) {
                return false;
            }
            forget(answer.received());
            told = received;
        } else {
            if (mayHaveArrived(answer)) {
                mesh.lose(this, "its process has started anew");
            }
            session = answer.session();
            incarnation = answer.incarnation();
        }
        isConfirmed = true;
        lastNumber = Math.max(lastNumber, answer.connection());
        peerNumber = answer.connection();
        begin(made, null);
        return true;
    }

    /** The other process has opened a connection. False: it is not wanted. */
    boolean accept(Frame.Hello hello, MeshConnection made) {
        boolean isSame = Arrays.equals(hello.incarnation(), incarnation);
        boolean isFirst = Arrays.equals(incarnation, NONE) || isSame;
        boolean isOutdated = isSame && hello.connection() <= peerNumber;
        // Both dial at once: the connection of the smaller name is used.
        boolean isOursUsed = isDialling && isFirst && mesh.own.compareTo(peer) < 0 && hello.connection() <= lastNumber;
        if (isOutdated || isOursUsed) {
            byte[] replaced = new Frame.Body().number(1, 1).text("another connection is used").frame(Frame.GOODBYE);
            made.put(new Frame.Body().bytes(Frame.preface()).bytes(replaced).done());
            made.begin();
            made.end();
            return false;
        }
        lastNumber = Math.max(lastNumber, hello.connection());
        peerNumber = hello.connection();
        boolean isResumed = !Arrays.equals(session, NONE) && isSame && Arrays.equals(hello.session(), session);
        if (isResumed) {
            forget(hello.received());
            isConfirmed = true;
        } else {
            if (mayHaveArrived(hello)) {
                mesh.lose(this, "its process has started anew");
            }
            session = Mesh.token();
            incarnation = hello.incarnation();
            isConfirmed = false;
        }
        told = received;
        begin(made, hello(isResumed, lastNumber));
        return true;
    }

    /** Whether the other process may have taken frames of a session that it does not continue. */
    private boolean mayHaveArrived(Frame.Hello hello) {
        boolean isUntouched = Arrays.equals(session, NONE)
                || !isConfirmed && Arrays.equals(hello.incarnation(), incarnation) && !Arrays.equals(hello.givenUp(), session);
        return !isUntouched;
    }

    private void begin(MeshConnection made, Frame.Hello first) {
        if (connection != null) {
            goodbye(1, "there is a newer connection");
        }
        connection = made;
        // Every agent proves itself again.
        senders.clear();
        if (first != null) {
            made.put(first.bytes());
        }
        for (String agent : bound) {
            bind(agent);
        }
        targets.forEach((handle, target) -> proveTarget(handle, target));
        for (Counted frame : kept) {
            made.put(frame.bytes());
        }
        made.begin();
        pumpAll();
    }

    /** The connection is gone. Frames on their way may or may not have arrived. */
    void disconnected() {
        if (connection != null) {
            connection.close();
            connection = null;
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
        List<Counted> lost = new ArrayList<>(kept);
        kept.clear();
        keptBytes = 0;
        givenUp = isConfirmed ? session : givenUp;
        session = NONE;
        isConfirmed = false;
        next = 0;
        acknowledged = 0;
        received = 0;
        told = 0;
        routes.clear();
        former.clear();
        unread.clear();
        opened = 0;
        bound.clear();
        senders.clear();
        targets.clear();
        acknowledgement = null;
        isOverfull = false;
        exchange.reset(why);
        for (Counted frame : lost) {
            if (frame.letter() != null && !frame.letter().receiver().isEmpty()) {
                mesh.agents.undelivered(frame.letter(), "it was sent and may not have arrived: " + why);
            }
        }
    }

    // ---- frames out ----

    /** Writes a frame of this connection only. */
    private void control(byte[] frame) {
        if (connection != null) {
            connection.put(frame);
        }
    }

    /** Sends a counted frame, over this connection or the next one. */
    private void send(int kind, int flags, Frame.Body body, Letter letter) {
        byte[] bytes = body.frame(kind, flags, next);
        kept.add(new Counted(next, bytes, letter));
        keptBytes += bytes.length;
        next++;
        if (connection != null) {
            connection.put(bytes);
        } else {
            mesh.need(this, 0);
        }
    }

    private void send(int kind, Frame.Body body) {
        send(kind, 0, body, null);
    }

    /** The other process has taken this many frames. */
    private void forget(long count) {
        if (count > next || count < acknowledged) {
            throw broken("frames were acknowledged that were not sent");
        }
        acknowledged = count;
        while (!kept.isEmpty() && kept.peek().sequence() < count) {
            keptBytes -= kept.poll().bytes().length;
        }
    }

    /** Tells the other process what was taken. */
    void acknowledge(boolean isNothingLeft) {
        if (connection != null && received > told && (isNothingLeft || received - told >= UNTOLD)) {
            told = received;
            control(new Frame.Body().number(8, received).frame(Frame.ACKNOWLEDGE));
        }
    }

    /** Asks whether the receiver of a route is there. */
    void open(Route route) {
        int handle = routes.indexOf(null);
        if (handle < 0) {
            handle = routes.size();
            routes.add(route);
        } else {
            routes.set(handle, route);
        }
        route.link = this;
        route.handle = handle;
        route.number = ++opened;
        send(Frame.TARGET, new Frame.Body().u32(handle).text(route.receiver));
    }

    /** Sends a message, in pieces if it is long. The credit of the route was checked. */
    void send(Route route, Letter letter) {
        int sender = letter.sender() == null ? PROCESS_SENDER : handleOf(letter.sender());
        byte[] payload = letter.payload();
        route.sent += letter.cost();
        if (!route.receiver.isEmpty()) {
            route.memory.add(letter);
        }
        if (payload.length <= Frame.LONGEST_PIECE) {
            send(Frame.MESSAGE, 0, new Frame.Body().u32(sender).u32(route.handle).bytes(payload), letter);
            return;
        }
        for (int at = 0; at < payload.length; at += Frame.LONGEST_PIECE) {
            int end = Math.min(payload.length, at + Frame.LONGEST_PIECE);
            byte[] piece = Arrays.copyOfRange(payload, at, end);
            Letter ended = end == payload.length ? letter : null;
            if (at == 0) {
                send(Frame.BEGIN, 0, new Frame.Body().u32(sender).u32(route.handle).u32(payload.length).bytes(piece), ended);
            } else {
                send(Frame.CONTINUE, 0, new Frame.Body().u32(route.handle).bytes(piece), ended);
            }
        }
    }

    private int handleOf(String agent) {
        if (!bound.contains(agent)) {
            bound.add(agent);
            bind(agent);
        }
        return bound.indexOf(agent);
    }

    private void bind(String agent) {
        byte[] proof = proofOf(agent);
        if (proof != null) {
            control(new Frame.Body().u32(bound.indexOf(agent)).bytes(proof).frame(Frame.BIND));
        }
    }

    private byte[] proofOf(String agent) {
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

    private void proveTarget(int handle, Target target) {
        byte[] proof = target.isOpen && !target.agent.isEmpty() ? proofOf(target.agent) : null;
        if (proof != null) {
            control(new Frame.Body().u32(handle).bytes(proof).frame(Frame.PROVE));
        }
    }

    /** An agent here shows a new certificate. */
    void prove(String agent) {
        if (bound.contains(agent)) {
            bind(agent);
        }
        targets.forEach((handle, target) -> {
            if (target.agent.equals(agent)) {
                proveTarget(handle, target);
            }
        });
    }

    /** Sends no more to the receiver of a route. Messages that it did not get come back. */
    void startClosing(Route route) {
        if (route.state == Route.State.OPENING || route.state == Route.State.OPEN) {
            route.state = Route.State.CLOSING;
            send(Frame.CLOSE_TARGET, new Frame.Body().u32(route.handle));
        }
    }

    private void pumpAll() {
        for (Route route : new ArrayList<>(routes)) {
            if (route != null) {
                mesh.pump(route);
            }
        }
    }

    // ---- frames in ----

    /** Takes a frame of the other process. */
    void take(Frame frame) {
        // An acknowledgement makes room.
        boolean isAnswered = frame.isCounted() || frame.kind() == Frame.BIND;
        if (isAnswered && (kept.size() > MOST_KEPT || keptBytes > MOST_KEPT_BYTES)) {
            throw broken("answers are not acknowledged");
        }
        if (isOverfull) {
            giveUp();
            return;
        }
        try {
            if (!frame.isCounted()) {
                takeControl(frame);
                return;
            }
            int ahead = frame.sequence() - (int) received;
            if (ahead > 0) {
                throw broken("a frame is missing");
            }
            if (ahead == 0) {
                received++;
                isConfirmed = true;
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
                isConfirmed = true;
                boolean wasFull = !hasWindow();
                forget(body.getLong());
                if (wasFull) {
                    pumpAll();
                }
            }
            case Frame.BIND -> bound(body.getInt(), body);
            case Frame.PROVE -> proved(body.getInt(), body);
            case Frame.PING -> control(new Frame.Body().frame(Frame.PONG));
            // A proof is for others, as SIGN is.
            case Frame.PONG, Frame.DELEGATE -> {}
            case Frame.GOODBYE -> {
                boolean isShutDown = body.get(body.position()) == 0;
                String why = Frame.goodbye(body);
                disconnected();
                if (isShutDown) {
                    mesh.lose(this, "its process has ended: " + why);
                } else {
                    mesh.need(this, 0);
                }
            }
            default -> throw broken("a frame of kind " + frame.kind());
        }
    }

    private void bound(int handle, ByteBuffer proof) {
        if (handle < 0 || handle >= MOST_AGENTS) {
            throw broken("a handle beyond the limit of agents");
        }
        try {
            Trust.Peer agent = connection.binding().verify(proof, mesh.trust);
            Sender known = senders.put(handle, new Sender(agent));
            if (known != null && known.peer() != null && !known.peer().identity().equals(agent.identity())) {
                throw broken("the handle of an agent is bound to another one");
            }
        } catch (GeneralSecurityException refused) {
            refuse(handle, refused.getMessage());
        }
    }

    private void refuse(int handle, String why) {
        String told = why.substring(0, Math.min(why.length(), LONGEST_WHY));
        log.warn("an agent of {0} is refused: {1}", peer, told);
        senders.put(handle, new Sender(null));
        send(Frame.REFUSED, new Frame.Body().u32(handle).number(1, REFUSALS.indexOf("not-proved")).text(told));
    }

    private Route route(int handle) {
        return handle >= 0 && handle < routes.size() ? routes.get(handle) : null;
    }

    private void proved(int handle, ByteBuffer proof) {
        Route route = route(handle);
        if (route == null) {
            return;
        }
        try {
            Trust.Peer agent = connection.binding().verify(proof, mesh.trust);
            if (!agent.identity().name().equals(mesh.local(route.receiver))) {
                throw new CertificateException(agent.identity() + " answered where " + route.receiver + " was expected");
            }
            route.proved = agent;
        } catch (GeneralSecurityException refused) {
            log.warn("a receiver is not proved: {0}", refused.getMessage());
        }
    }

    private void takeCounted(Frame frame) {
        ByteBuffer body = frame.in();
        switch (frame.kind()) {
            case Frame.MESSAGE -> {
                int sender = body.getInt();
                int handle = body.getInt();
                Target target = target(handle, body.remaining());
                deliver(handle, target, sender, Frame.rest(body));
            }
            case Frame.ROW -> row(body.getInt(), body.getInt(), body);
            case Frame.BEGIN -> begin(body.getInt(), body.getInt(), body.getInt(), Frame.rest(body));
            case Frame.CONTINUE -> goOn(body.getInt(), Frame.rest(body));
            case Frame.TARGET -> openTarget(body.getInt(), Frame.text(body));
            case Frame.ACCEPT, Frame.CREDIT -> credited(body.getInt(), body.getLong());
            case Frame.LEAVING -> {
                Route route = route(body.getInt());
                if (route != null) {
                    left(route, body.get());
                }
            }
            case Frame.CLOSE_TARGET -> {
                int handle = body.getInt();
                targets.remove(handle);
                send(Frame.TARGET_CLOSED, new Frame.Body().u32(handle));
            }
            case Frame.TARGET_CLOSED -> {
                int handle = body.getInt();
                Route route = route(handle);
                if (route != null && route.state == Route.State.CLOSING) {
                    routes.set(handle, null);
                    if (!route.receiver.isEmpty()) {
                        former.put(route.number, route.memory);
                        mesh.closed(route);
                    }
                }
            }
            case Frame.RETURNED -> returned(body.getInt(), body.getInt(), body.get(), frame.flags() != 0, Frame.rest(body));
            case Frame.UNREAD -> leftUnread(body.getInt(), body.getInt(), frame.flags() != 0, Frame.rest(body));
            case Frame.UNBIND -> senders.remove(body.getInt());
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

    private void left(Route route, int why) {
        route.deniedBy = why == NOT_HERE ? peer : null;
        startClosing(route);
    }

    private void credited(int handle, long limit) {
        Route route = route(handle);
        if (route == null || route.state == Route.State.CLOSING) {
            return;
        }
        boolean isProcess = route.receiver.isEmpty();
        if (route.proved == null && !isProcess) {
            left(route, NOT_HERE);
            return;
        }
        route.state = Route.State.OPEN;
        route.deniedBy = null;
        route.missedSince = 0;
        route.limit = Math.max(route.limit, limit);
        mesh.pump(route);
    }

    private void returned(int handle, int sender, int why, boolean hasMore, byte[] piece) {
        Route route = route(handle);
        if (route == null) {
            return;
        }
        route.piece.bytes(piece);
        if (route.piece.length() > Mesh.LARGEST_MESSAGE) {
            throw broken("a message came back that was not sent");
        }
        if (hasMore) {
            return;
        }
        byte[] payload = route.piece.take();
        if (route.receiver.isEmpty()) {
            exchange.returned(payload, why < FIRST_REFUSAL ? "its process has no bus" : "its process refused it: " + refusal(why));
            return;
        }
        if (sender < 0 || sender >= bound.size()) {
            return;
        }
        Letter letter = new Letter(bound.get(sender), route.receiver, payload);
        boolean wasSent = route.memory.has(letter);
        if (!wasSent && !route.memory.mayHaveHad()) {
            neverSent(letter);
        } else if (!wasSent) {
            mesh.agents.undelivered(letter, "it came back long after it was sent");
        } else if (why >= FIRST_REFUSAL) {
            mesh.agents.undelivered(letter, "the receiver's process refused it: " + refusal(why));
        } else {
            left(route, why);
            route.returned.add(letter);
        }
    }

    /** The receiver of a route that was closed has ended, and has not read this message. */
    private void leftUnread(int number, int sender, boolean hasMore, byte[] piece) {
        unread.bytes(piece);
        if (unread.length() > Mesh.LARGEST_MESSAGE) {
            throw broken("a message came back that was not sent");
        }
        if (hasMore) {
            return;
        }
        byte[] payload = unread.take();
        Route.Memory memory = former.get(number);
        if (memory == null || sender < 0 || sender >= bound.size()) {
            return;
        }
        Letter letter = new Letter(bound.get(sender), memory.receiver, payload);
        if (memory.has(letter) || memory.mayHaveHad()) {
            mesh.agents.undelivered(letter, "the receiver has ended and did not read it");
        } else {
            neverSent(letter);
        }
    }

    private void neverSent(Letter letter) {
        log.warn("{0} gives back a message of {1} to {2} that it was not given", peer, letter.sender(), letter.receiver());
    }

    private static String refusal(int why) {
        int reason = why - FIRST_REFUSAL;
        return reason < REFUSALS.size() ? REFUSALS.get(reason) : "unknown";
    }

    // ---- agents here ----

    private void openTarget(int handle, String name) {
        if (handle < 0 || handle >= MOST_AGENTS || targets.containsKey(handle)) {
            throw broken("a target's handle is used twice, or is beyond the limit");
        }
        if (name.length() > LONGEST_NAME) {
            throw broken("a target's name is too long");
        }
        String agent = name.isEmpty() ? "" : mesh.local(name);
        boolean isHere = name.isEmpty() || agent != null && mesh.isPresent(agent);
        if (isHere && targets.values().stream().anyMatch(other -> other.isOpen && other.agent.equals(agent))) {
            throw broken("a target is opened twice");
        }
        Target target = new Target(isHere ? agent : "?");
        targets.put(handle, target);
        target.isOpen = isHere;
        if (target.isOpen) {
            target.limit = agent.isEmpty() || mesh.agents.hasRoom(agent) ? CREDIT : 0;
            proveTarget(handle, target);
            send(Frame.ACCEPT, new Frame.Body().u32(handle).number(8, target.limit));
            widen(handle, target);
        } else {
            send(Frame.LEAVING, new Frame.Body().u32(handle).number(1, NOT_HERE));
        }
    }

    /** An agent here is gone. */
    void left(String agent) {
        targets.forEach((handle, target) -> {
            if (target.isOpen && target.agent.equals(agent)) {
                target.isOpen = false;
                send(Frame.LEAVING, new Frame.Body().u32(handle).number(1, NOT_HERE));
            }
        });
    }

    /** The target of a message of this length, which counts against its credit. */
    private Target target(int handle, int length) {
        Target target = targets.get(handle);
        if (target == null) {
            throw broken("a message to a target that was not opened");
        }
        if (target.received >= target.limit) {
            throw broken("more is sent to a target than it allowed");
        }
        target.received += Letter.cost(length);
        return target;
    }

    /**
     * Messages in a row (their form: {@code crates/mesh/src/frame/row.rs}). Their beginning travels once, so they are longer than
     * their frame. All of them are looked at before one is taken, and each counts against the credit before it takes memory.
     */
    private void row(int sender, int handle, ByteBuffer body) {
        int end = body.limit() - 2 * Short.BYTES;
        if (end < body.position()) {
            throw new BufferUnderflowException();
        }
        if (end - body.position() > LONGEST_ROW) {
            throw broken("a row that is too long");
        }
        byte[] first = new byte[Short.toUnsignedInt(body.getShort(end))];
        int beginning = Short.toUnsignedInt(body.getShort(end + Short.BYTES));
        body.limit(end).get(first);
        if (beginning > first.length) {
            throw broken("messages that begin with more than there is");
        }
        if ((long) beginning * (1 + countRests(body.slice().order(body.order()))) > MOST_REPEATED) {
            throw broken("messages in a row that are too long together");
        }
        deliver(handle, target(handle, first.length), sender, first);
        while (body.hasRemaining()) {
            int length = Short.toUnsignedInt(body.getShort());
            Target target = target(handle, beginning + length);
            byte[] message = Arrays.copyOf(first, beginning + length);
            body.get(message, beginning, length);
            deliver(handle, target, sender, message);
        }
    }

    /** The messages of a row behind the first one. */
    private static int countRests(ByteBuffer rests) {
        int count = 0;
        while (rests.hasRemaining()) {
            int length = Short.toUnsignedInt(rests.getShort());
            if (length > rests.remaining()) {
                throw new BufferUnderflowException();
            }
            rests.position(rests.position() + length);
            count++;
        }
        return count;
    }

    private void begin(int sender, int handle, int total, byte[] piece) {
        long partial = targets.values().stream().filter(target -> target.partial != null).count();
        if (total > Mesh.LARGEST_MESSAGE || piece.length >= total || partial >= MOST_PARTIAL) {
            throw broken("a long message of a length that is not allowed, or too many of them");
        }
        Target target = target(handle, total);
        if (target.partial != null) {
            throw broken("a long message within another one");
        }
        target.sender = sender;
        target.total = total;
        target.partial = new Frame.Body().bytes(piece);
    }

    private void goOn(int handle, byte[] piece) {
        Target target = targets.get(handle);
        if (target == null || target.partial == null || piece.length == 0) {
            throw broken("a piece of no message");
        }
        int length = target.partial.bytes(piece).length();
        if (length > target.total) {
            throw broken("more pieces than the message has");
        }
        if (length == target.total) {
            byte[] payload = target.partial.done();
            target.partial = null;
            deliver(handle, target, target.sender, payload);
        }
    }

    /** The checks, then the agent. */
    private void deliver(int handle, Target target, int senderHandle, byte[] payload) {
        if (!target.isOpen) {
            giveBack(handle, senderHandle, NOT_HERE, payload);
            return;
        }
        if (target.agent.isEmpty()) {
            Sender author = senders.get(senderHandle);
            exchange.take(payload, author == null ? null : author.peer());
            widen(handle, target);
            return;
        }
        Sender sender = senders.get(senderHandle);
        String refused = null;
        try {
            if (sender == null || sender.peer() == null) {
                refused = "not-proved";
            } else {
                mesh.trust.check(sender.peer());
                String proved = sender.peer().identity().name() + "@" + mesh.trust.platform();
                if (!mesh.agents.deliver(target.agent, proved, payload)) {
                    giveBack(handle, senderHandle, NOT_HERE, payload);
                }
            }
        } catch (CertificateException denied) {
            refused = "revoked";
        } catch (Mesh.Refused why) {
            log.warn("a message is refused: {0}", why.getMessage());
            refused = why.reason;
        } catch (BitEfficient.Malformed malformed) {
            log.warn("a message is refused: {0}", malformed.getMessage());
            refused = "malformed";
        }
        if (refused != null) {
            giveBack(handle, senderHandle, FIRST_REFUSAL + REFUSALS.indexOf(refused), payload);
        }
        widen(handle, target);
    }

    private void giveBack(int handle, int sender, int why, byte[] payload) {
        int at = 0;
        do {
            int end = Math.min(payload.length, at + Frame.LONGEST_PIECE);
            boolean hasMore = end < payload.length;
            send(Frame.RETURNED, hasMore ? 1 : 0, new Frame.Body().u32(handle).u32(sender).number(1, why)
                    .bytes(Arrays.copyOfRange(payload, at, end)), null);
            at = end;
        } while (at < payload.length);
    }

    /** Gives a target more credit, once its agent has taken what came. */
    private void widen(int handle, Target target) {
        boolean isDue = targets.get(handle) == target && target.isOpen && target.limit - target.received <= CREDIT / 2;
        if (!isDue || target.isLooking) {
            return;
        }
        if (!target.agent.isEmpty() && !mesh.agents.hasRoom(target.agent)) {
            target.isLooking = true;
            mesh.laterGuarded(() -> {
                target.isLooking = false;
                widen(handle, target);
            }, PAUSE);
            return;
        }
        target.limit = target.received + CREDIT;
        send(Frame.CREDIT, new Frame.Body().u32(handle).number(8, target.limit));
    }

    /** The conversation about channels. */
    Exchange exchange() {
        return exchange;
    }

    /** The way to the bus of the other process; null if there is none yet. */
    private Route bus() {
        Route bus = null;
        for (Route route : routes) {
            if (route != null && route.receiver.isEmpty()) {
                bus = route;
            }
        }
        return bus;
    }

    /** Frames for the bus of the other process, which gives credit for them. */
    private final class ToProcess implements Exchange.Out {
        @Override
        public void send(String author, byte[] frame) {
            put(new Letter(author, "", frame));
        }

        @Override
        public void sendLosable(String author, byte[] frame) {
            Route bus = bus();
            if (bus == null || bus.waiting.size() < MOST_LOSABLE && bus.queued < WINDOW) {
                put(new Letter(author, "", frame));
            }
        }

        @Override
        public void acknowledge(byte[] frame) {
            Route bus = bus();
            if (acknowledgement != null && bus != null && bus.waiting.peekLast() == acknowledgement) {
                bus.removeLast();
            }
            acknowledgement = new Letter(null, "", frame);
            put(acknowledgement);
        }

        @Override
        public void forget() {
            Route bus = bus();
            if (bus != null) {
                bus.clear();
            }
        }

        private void put(Letter letter) {
            Route bus = bus();
            if (bus == null) {
                bus = new Route("");
                mesh.open(bus, MeshLink.this);
            }
            bus.add(letter);
            mesh.pump(bus);
            boolean isTooMuch = bus.waiting.size() > MOST_WAITING || bus.queued > MOST_WAITING_BYTES;
            if (isTooMuch && !isOverfull) {
                isOverfull = true;
                // Not at once: the caller may be in the midst of a frame.
                mesh.laterGuarded(() -> {
                    if (isOverfull) {
                        giveUp();
                    }
                }, 0);
            }
        }
    }

    /** The other process makes this one answer on and on, and takes none of the answers. The session goes with all that is kept. */
    private void giveUp() {
        log.warn("{0} makes this container keep too much for it: its session ends", peer);
        mesh.lose(this, "its process made this container keep too much for it");
    }

    // ---- trust ----

    /** Checks all that was proved, after a change of the deny lists. */
    void check() throws CertificateException {
        if (connection != null) {
            mesh.trust.check(connection.peer());
        }
        for (Map.Entry<Integer, Sender> entry : List.copyOf(senders.entrySet())) {
            try {
                if (entry.getValue().peer() != null) {
                    mesh.trust.check(entry.getValue().peer());
                }
            } catch (CertificateException over) {
                refuse(entry.getKey(), over.getMessage());
            }
        }
        for (Route route : new ArrayList<>(routes)) {
            try {
                if (route != null && route.proved != null) {
                    mesh.trust.check(route.proved);
                }
            } catch (CertificateException over) {
                left(route, NOT_HERE);
            }
        }
    }
}

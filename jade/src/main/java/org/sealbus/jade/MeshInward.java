package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.cert.CertificateException;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Messages over a link to agents here: who wrote them, and how much each agent here takes. The mesh guards it. */
final class MeshInward {
    /** Bytes that a sender may send to an agent here before the agent has taken them. */
    private static final long CREDIT = 256 << 10;
    /** Most agents of the other process, and most agents here that it writes to. */
    private static final int MOST_AGENTS = 65_536;
    /** The longest row of messages, and most bytes that their beginnings have together: as much as a process of Sealbus writes. */
    private static final int LONGEST_ROW = 8 << 10;
    private static final int MOST_REPEATED = 256 * LONGEST_ROW;
    /** The longest reason that the other process is told, in characters. */
    private static final int LONGEST_WHY = 1000;
    /** The longest name of an agent, in bytes. */
    private static final int LONGEST_NAME = 512;
    /** Most long messages that arrive at the same time. */
    private static final int MOST_PARTIAL = 4;
    private static final long PAUSE = 50;

    /**
     * An agent of the other process.
     *
     * @param agent the agent to which the handle belongs; null if it never proved itself
     * @param peer  as it proved itself on this connection; null if it has not, or its proof was refused
     */
    private record Sender(Identity agent, Trust.Peer peer) {}

    /** An agent here that the other process writes to; the bus of this process if the name is empty. */
    private static final class Target {
        final String agent;
        /** Which of the session's targets it is, from 1. */
        final int number;
        boolean isOpen;
        long limit;
        long received;
        int sender;
        int total;
        Frame.Body partial;
        /** Whether its agent is looked at again soon. */
        boolean isLooking;

        Target(String agent, int number) {
            this.agent = agent;
            this.number = number;
        }
    }

    /**
     * A message that an agent here has got.
     *
     * @param session the session in which it came
     * @param author  the agent that wrote it
     */
    private record Delivered(int session, int handle, Target target, int sender, Identity author, byte[] payload) {}

    private final Mesh mesh;
    private final MeshLink link;
    private final Map<Integer, Sender> senders = new HashMap<>();
    private final Map<Integer, Target> targets = new HashMap<>();
    /** Messages that agents here have left unread. They go back as the window allows it. */
    private final Deque<Delivered> unread = new ArrayDeque<>();
    /** The number of the session, and the targets that were opened in it. */
    private int session;
    private int opened;

    MeshInward(Mesh mesh, MeshLink link) {
        this.mesh = mesh;
        this.link = link;
    }

    /** The session is given up. */
    void clear() {
        senders.clear();
        targets.clear();
        unread.clear();
        session++;
        opened = 0;
    }

    // ---- the other process's agents ----

    /** An agent of the other process proves itself. */
    void bound(int handle, ByteBuffer proof) {
        if (handle < 0 || handle >= MOST_AGENTS) {
            throw MeshLink.broken("a handle beyond the limit of agents");
        }
        try {
            Trust.Peer peer = link.verify(proof);
            Identity known = agentOf(handle);
            if (known != null && !known.equals(peer.identity())) {
                throw MeshLink.broken("the handle of an agent is bound to another one");
            }
            senders.put(handle, new Sender(peer.identity(), peer));
        } catch (GeneralSecurityException refused) {
            refuse(handle, refused.getMessage());
        }
    }

    /** The agent of a handle; null if there is none. */
    private Identity agentOf(int handle) {
        Sender sender = senders.get(handle);
        return sender == null ? null : sender.agent();
    }

    private void refuse(int handle, String why) {
        String told = why.substring(0, Math.min(why.length(), LONGEST_WHY));
        link.log.warn("an agent of {0} is refused: {1}", link.peer, told);
        senders.put(handle, new Sender(agentOf(handle), null));
        link.send(Frame.REFUSED, new Frame.Body().u32(handle).number(1, MeshLink.REFUSALS.indexOf("not-proved")).text(told));
    }

    void unbound(int handle) {
        senders.remove(handle);
    }

    /** Every agent of the other process proves itself again on a new connection. */
    void unbindAll() {
        senders.replaceAll((handle, sender) -> new Sender(sender.agent(), null));
    }

    /** Checks the agents that proved themselves, after a change of the deny lists. */
    void check() {
        for (Map.Entry<Integer, Sender> entry : List.copyOf(senders.entrySet())) {
            try {
                if (entry.getValue().peer() != null) {
                    mesh.trust.check(entry.getValue().peer());
                }
            } catch (CertificateException over) {
                refuse(entry.getKey(), over.getMessage());
            }
        }
    }

    // ---- agents here ----

    /** The other process asks whether an agent is here. */
    void open(int handle, String name) {
        if (handle < 0 || handle >= MOST_AGENTS || targets.containsKey(handle)) {
            throw MeshLink.broken("a target's handle is used twice, or is beyond the limit");
        }
        if (name.length() > LONGEST_NAME) {
            throw MeshLink.broken("a target's name is too long");
        }
        String agent = name.isEmpty() ? "" : mesh.local(name);
        boolean isHere = name.isEmpty() || agent != null && mesh.isPresent(agent);
        if (isHere && targets.values().stream().anyMatch(other -> other.isOpen && other.agent.equals(agent))) {
            throw MeshLink.broken("a target is opened twice");
        }
        opened++;
        Target target = new Target(isHere ? agent : "?", opened);
        targets.put(handle, target);
        target.isOpen = isHere;
        if (target.isOpen) {
            target.limit = agent.isEmpty() || mesh.agents.hasRoom(agent) ? CREDIT : 0;
            proveTarget(handle, target);
            link.send(Frame.ACCEPT, new Frame.Body().u32(handle).number(8, target.limit));
            widen(handle, target);
        } else {
            link.send(Frame.LEAVING, new Frame.Body().u32(handle).number(1, MeshLink.NOT_HERE));
        }
    }

    /** The other process sends no more to an agent here. */
    void close(int handle) {
        targets.remove(handle);
        link.send(Frame.TARGET_CLOSED, new Frame.Body().u32(handle));
    }

    /** An agent here is gone. */
    void left(String agent) {
        targets.forEach((handle, target) -> {
            if (target.isOpen && target.agent.equals(agent)) {
                target.isOpen = false;
                link.send(Frame.LEAVING, new Frame.Body().u32(handle).number(1, MeshLink.NOT_HERE));
            }
        });
    }

    private void proveTarget(int handle, Target target) {
        byte[] proof = target.isOpen && !target.agent.isEmpty() ? link.proofOf(target.agent) : null;
        if (proof != null) {
            link.control(new Frame.Body().u32(handle).bytes(proof).frame(Frame.PROVE));
        }
    }

    /** An agent here shows a new certificate. */
    void prove(String agent) {
        targets.forEach((handle, target) -> {
            if (target.agent.equals(agent)) {
                proveTarget(handle, target);
            }
        });
    }

    /** All agents here that the other process writes to prove themselves on a new connection. */
    void proveAll() {
        targets.forEach(this::proveTarget);
    }

    // ---- messages ----

    /** The target of a message of this length, which counts against its credit. */
    private Target target(int handle, int length) {
        Target target = targets.get(handle);
        if (target == null) {
            throw MeshLink.broken("a message to a target that was not opened");
        }
        if (target.received >= target.limit) {
            throw MeshLink.broken("more is sent to a target than it allowed");
        }
        target.received += Letter.cost(length);
        return target;
    }

    /** A message in one frame. */
    void message(int sender, int handle, ByteBuffer body) {
        Target target = target(handle, body.remaining());
        deliver(handle, target, sender, Frame.rest(body));
    }

    /**
     * Messages in a row (their form: {@code crates/mesh/src/frame/row.rs}). Their beginning travels once, so they are longer than
     * their frame. All of them are looked at before one is taken, and each counts against the credit before it takes memory.
     */
    void row(int sender, int handle, ByteBuffer body) {
        int end = body.limit() - 2 * Short.BYTES;
        if (end < body.position()) {
            throw new BufferUnderflowException();
        }
        if (end - body.position() > LONGEST_ROW) {
            throw MeshLink.broken("a row that is too long");
        }
        byte[] first = new byte[Short.toUnsignedInt(body.getShort(end))];
        int beginning = Short.toUnsignedInt(body.getShort(end + Short.BYTES));
        body.limit(end).get(first);
        if (beginning > first.length) {
            throw MeshLink.broken("messages that begin with more than there is");
        }
        if ((long) beginning * (1 + countRests(body.slice().order(body.order()))) > MOST_REPEATED) {
            throw MeshLink.broken("messages in a row that are too long together");
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

    /** The first piece of a long message. */
    void begin(int sender, int handle, int total, byte[] piece) {
        long partial = targets.values().stream().filter(target -> target.partial != null).count();
        if (total > Mesh.LARGEST_MESSAGE || piece.length >= total || partial >= MOST_PARTIAL) {
            throw MeshLink.broken("a long message of a length that is not allowed, or too many of them");
        }
        Target target = target(handle, total);
        if (target.partial != null) {
            throw MeshLink.broken("a long message within another one");
        }
        target.sender = sender;
        target.total = total;
        target.partial = new Frame.Body().bytes(piece);
    }

    /** A further piece. */
    void goOn(int handle, byte[] piece) {
        Target target = targets.get(handle);
        if (target == null || target.partial == null || piece.length == 0) {
            throw MeshLink.broken("a piece of no message");
        }
        int length = target.partial.bytes(piece).length();
        if (length > target.total) {
            throw MeshLink.broken("more pieces than the message has");
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
            giveBack(handle, senderHandle, MeshLink.NOT_HERE, payload);
            return;
        }
        if (target.agent.isEmpty()) {
            Sender author = senders.get(senderHandle);
            link.exchange().take(payload, author == null ? null : author.peer());
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
                Delivered message = new Delivered(session, handle, target, senderHandle, sender.agent(), payload);
                String proved = mesh.whole(sender.agent().name());
                if (!mesh.agents.deliver(target.agent, proved, payload, () -> leftUnread(message))) {
                    giveBack(handle, senderHandle, MeshLink.NOT_HERE, payload);
                }
            }
        } catch (CertificateException denied) {
            refused = "revoked";
        } catch (Mesh.Refused why) {
            link.log.warn("a message is refused: {0}", why.getMessage());
            refused = why.reason;
        } catch (BitEfficient.Malformed malformed) {
            link.log.warn("a message is refused: {0}", malformed.getMessage());
            refused = "malformed";
        }
        if (refused != null) {
            giveBack(handle, senderHandle, MeshLink.FIRST_REFUSAL + MeshLink.REFUSALS.indexOf(refused), payload);
        }
        widen(handle, target);
    }

    private void giveBack(int handle, int sender, int why, byte[] payload) {
        sendInPieces(Frame.RETURNED, new Frame.Body().u32(handle).u32(sender).number(1, why).done(), payload, null);
    }

    private void sendInPieces(int kind, byte[] head, byte[] payload, Letter letter) {
        int at = 0;
        do {
            int end = Math.min(payload.length, at + Frame.LONGEST_PIECE);
            boolean hasMore = end < payload.length;
            Frame.Body piece = new Frame.Body().bytes(head).bytes(Arrays.copyOfRange(payload, at, end));
            link.send(kind, hasMore ? 1 : 0, piece, letter);
            at = end;
        } while (at < payload.length);
    }

    /** An agent here has ended and has not read a message. With the session, the other process has forgotten the message. */
    private void leftUnread(Delivered message) {
        synchronized (mesh) {
            if (message.session() == session) {
                unread.add(message);
                giveBackUnread();
            }
        }
    }

    /** Sends back what agents here have left unread, as far as the window allows it. The other process tells the authors. */
    void giveBackUnread() {
        while (!unread.isEmpty() && link.hasWindow()) {
            Delivered message = unread.poll();
            // An author that has left since hears of nothing.
            if (message.author().equals(agentOf(message.sender()))) {
                Target target = message.target();
                boolean isKnown = targets.get(message.handle()) == target;
                Frame.Body head = new Frame.Body().u32(isKnown ? message.handle() : target.number).u32(message.sender());
                if (isKnown) {
                    head.number(1, MeshLink.NOT_HERE);
                }
                // The letter is for nobody. The agent that ends waits for it.
                sendInPieces(isKnown ? Frame.RETURNED : Frame.UNREAD, head.done(), message.payload(),
                        new Letter(target.agent, "", new byte[0]));
            }
        }
    }

    /** The number of messages that an agent has left unread and that have not gone back yet. */
    long unread(String agent) {
        return unread.stream().filter(message -> message.target().agent.equals(agent)).count();
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
        link.send(Frame.CREDIT, new Frame.Body().u32(handle).number(8, target.limit));
    }
}

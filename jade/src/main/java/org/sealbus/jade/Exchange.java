package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.logging.Level;

/**
 * This process among those that publish on channels: it tells one other process of the subscriptions of agents here, and takes the
 * events that the agents there publish (the protocol: {@code crates/channels/src/frame}). The mesh guards it.
 */
final class Exchange {
    private static final int HELLO = 0x01;
    private static final int ACKNOWLEDGE = 0x02;
    private static final int ANNOUNCE = 0x11;
    private static final int WITHDRAW = 0x12;
    private static final int CREDIT_FRAME = 0x13;
    private static final int TAKEN = 0x14;
    private static final int KNOWN = 0x15;
    private static final int EVENT = 0x20;
    private static final int REFUSAL = 0x23;
    private static final int ABSENT = 0x24;
    private static final int TAKES_EVENTS = 2;
    private static final int PUSH_BACK = 0;
    /** Bytes that the other process may send to a subscription before its agent has room for more. */
    private static final long CREDIT = 256 << 10;
    /** Most bytes of events of the other process that are not valid yet. */
    private static final long MOST_HELD = 8 << 20;
    private static final long PAUSE = 50;

    /** Sends frames to the bus of the other process: in the name of an agent here, or of this process (null). */
    interface Out {
        void send(String author, byte[] frame);
    }

    /** The bytes that the other process has sent to a subscription here, and may send. */
    private static final class Account {
        long limit;
        long received;
        /** Bytes of events that are not valid yet. */
        long held;
        boolean isLooking;
    }

    private final Mesh mesh;
    private final Out out;
    /** Grows with each life of the conversation. */
    private long epoch = System.currentTimeMillis();
    private long peerEpoch;
    private boolean hasToldAll;
    /** The number of the last frame sent, and taken, in the present life. */
    private long sent;
    private long taken;
    private final Map<Integer, Account> accounts = new HashMap<>();
    /** Bytes of events that are not valid yet, in all lives. */
    private long held;

    Exchange(Mesh mesh, Out out) {
        this.mesh = mesh;
        this.out = out;
    }

    /** Both processes begin anew. */
    void reset() {
        epoch++;
        peerEpoch = 0;
        forget();
    }

    private void forget() {
        hasToldAll = false;
        sent = 0;
        taken = 0;
        accounts.clear();
    }

    /** Takes a frame. {@code author}: the agent that proved that it wrote the frame; null if the process did. */
    void take(byte[] bytes, Trust.Peer author) {
        ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        try {
            int kind = in.get();
            if (kind == HELLO) {
                hello(in.getLong(), in.getLong());
                return;
            }
            if (kind == ACKNOWLEDGE) {
                return;
            }
            if (in.getLong() != session(peerEpoch, epoch)) {
                greet();
                return;
            }
            long number = Event.number(in);
            if (number == 0 || number == taken + 1) {
                taken = Math.max(taken, number);
                handle(kind, number, in, author);
            }
            if (number > 0) {
                // An event that waits in JADE's queue is the agent's, so all that was taken counts as read, too.
                Frame.Body answer = new Frame.Body().number(1, ACKNOWLEDGE).number(8, session(epoch, peerEpoch));
                out.send(null, leb(leb(leb(leb(answer, 0), taken), taken), sent).done());
            }
        } catch (BufferUnderflowException cut) {
            Mesh.LOG.fine("a frame for channels was cut short");
        }
    }

    private void hello(long from, long to) {
        if (Long.compareUnsigned(from, peerEpoch) < 0) {
            greet();
            return;
        }
        if (from != peerEpoch) {
            peerEpoch = from;
            forget();
        }
        if (Long.compareUnsigned(to, epoch) > 0) {
            epoch = to + 1;
            forget();
        }
        if (to != epoch) {
            greet();
        }
        if (!hasToldAll) {
            hasToldAll = true;
            mesh.subscriptions().forEach(this::announce);
            tell(null, KNOWN, new Frame.Body());
        }
    }

    private void greet() {
        out.send(null, new Frame.Body().number(1, HELLO).number(8, epoch).number(8, peerEpoch).done());
    }

    /** Sends a frame of the present life, with the next number. */
    private void tell(String author, int kind, Frame.Body fields) {
        sent++;
        Frame.Body frame = new Frame.Body().number(1, kind).number(8, session(epoch, peerEpoch));
        out.send(author, leb(frame, sent).bytes(fields.done()).done());
    }

    // ---- subscriptions ----

    /** There is a subscription. */
    void announce(ChannelSubscription subscription) {
        if (hasToldAll) {
            // A process that begins anew gets no credit beyond the room of the agent.
            Account account = new Account();
            account.limit = mesh.agents.hasRoom(subscription.agent()) ? CREDIT : 0;
            accounts.put(subscription.number(), account);
            Frame.Body fields = leb(new Frame.Body(), subscription.number()).number(1, TAKES_EVENTS);
            text(text(fields, subscription.pattern()), "").number(1, PUSH_BACK);
            tell(subscription.agent(), ANNOUNCE, text(leb(fields, account.limit), ""));
            widen(subscription.number());
        }
    }

    /** A subscription has ended. */
    void withdraw(ChannelSubscription subscription) {
        if (accounts.remove(subscription.number()) != null) {
            tell(null, WITHDRAW, leb(leb(new Frame.Body(), subscription.number()), 0));
        }
    }

    /** Gives a subscription more credit, once its agent has room. */
    private void widen(int number) {
        Account account = accounts.get(number);
        ChannelSubscription subscription = mesh.subscription(number);
        long limit = account == null ? 0 : account.received + CREDIT - account.held;
        if (subscription == null || account == null || account.isLooking || limit - account.limit < CREDIT / 2) {
            return;
        }
        if (!mesh.agents.hasRoom(subscription.agent())) {
            account.isLooking = true;
            later(() -> {
                account.isLooking = false;
                if (accounts.get(number) == account) {
                    widen(number);
                }
            }, PAUSE);
            return;
        }
        account.limit = limit;
        tell(null, CREDIT_FRAME, leb(leb(new Frame.Body(), number), limit));
    }

    private void later(Runnable work, long millis) {
        mesh.later(() -> {
            synchronized (mesh) {
                work.run();
            }
        }, millis);
    }

    // ---- events ----

    private void handle(int kind, long number, ByteBuffer in, Trust.Peer author) {
        switch (kind) {
            case EVENT -> {
                Event event = Event.read(in);
                if (event != null && (number > 0 || !event.isKept())) {
                    event(event, number, author);
                }
            }
            case REFUSAL -> {
                Event.number(in);
                in.get();
                Event.number(in);
                Mesh.LOG.log(Level.WARNING, "a subscription of an agent here is not accepted: {0}", Frame.text(in));
            }
            default -> Mesh.LOG.log(Level.FINE, "a frame for channels of kind {0}", kind);
        }
    }

    private void event(Event event, long number, Trust.Peer author) {
        long cost = Letter.cost(event.body().length);
        String refused = author == null ? "not-proved" : null;
        if (refused == null && !mesh.may(author.identity().name(), "publish", event.channel())) {
            refused = "not-permitted";
        }
        try {
            if (refused == null) {
                mesh.trust.check(author);
            }
        } catch (CertificateException denied) {
            refused = "revoked";
        }
        List<ChannelSubscription> chosen = new ArrayList<>();
        for (ChannelSubscription subscription : targets(event)) {
            Account account = accounts.get(subscription.number());
            if (event.isKept()) {
                if (account.received >= account.limit) {
                    refused = "over-limit";
                }
                account.received += cost;
            }
            if (isFor(event, subscription)) {
                chosen.add(subscription);
            }
        }
        if (refused == null && (chosen.isEmpty() || event.expiry() <= System.currentTimeMillis())) {
            if (number > 0 && (event.isMessage() || event.wantsAgent())) {
                tell(null, ABSENT, leb(new Frame.Body(), number));
            }
        } else if (refused == null) {
            Unread unread = number > 0 && event.wantsAgent() ? new Unread(number, chosen.size()) : null;
            for (ChannelSubscription subscription : chosen) {
                refused = handOver(event, cost, subscription, author, unread);
                if (refused != null) {
                    break;
                }
            }
        }
        if (refused != null) {
            Mesh.LOG.log(Level.WARNING, "an event on {0} is refused: {1}", new Object[] {event.channel(), refused});
            if (number > 0) {
                tell(null, REFUSAL, text(leb(new Frame.Body(), number).number(1, MeshLink.REFUSALS.indexOf(refused)), refused));
            }
        }
        targets(event).forEach(subscription -> widen(subscription.number()));
    }

    /** The subscriptions that an event is sent to: those that it names; if it names none, all that it is for. */
    private List<ChannelSubscription> targets(Event event) {
        List<ChannelSubscription> told = mesh.subscriptions().stream().filter(one -> accounts.containsKey(one.number())).toList();
        boolean isForAll = event.targets().isEmpty();
        return told.stream().filter(one -> isForAll ? isFor(event, one) : event.targets().contains(one.number())).toList();
    }

    private boolean isFor(Event event, ChannelSubscription subscription) {
        return mesh.may(subscription.agent(), "subscribe", event.channel())
                && ChannelSubscription.matches(subscription.pattern(), event.channel())
                && (!event.isMessage() || subscription.agent().equals(mesh.local(event.receiver())));
    }

    /** Gives an event to an agent, at once or when it is valid. Returns why it is refused, or null. */
    private String handOver(Event event, long cost, ChannelSubscription subscription, Trust.Peer author, Unread unread) {
        long early = event.validFrom() - System.currentTimeMillis();
        if (early <= 0) {
            return give(event, subscription, author, unread);
        }
        Account account = accounts.get(subscription.number());
        // An event that its process does not keep costs no credit, and may be lost.
        if (event.isKept()) {
            if (held + cost > MOST_HELD) {
                return "over-limit";
            }
            held += cost;
            account.held += cost;
            later(() -> {
                held -= cost;
                account.held -= cost;
                if (mesh.subscription(subscription.number()) == subscription) {
                    give(event, subscription, author, unread);
                    if (accounts.get(subscription.number()) == account) {
                        widen(subscription.number());
                    }
                } else if (unread != null) {
                    unread.settle(false);
                }
            }, early);
        }
        return null;
    }

    private String give(Event event, ChannelSubscription subscription, Trust.Peer author, Unread unread) {
        boolean isOver = event.expiry() <= System.currentTimeMillis();
        if (isOver || !event.isKept() && !mesh.agents.hasRoom(subscription.agent())) {
            if (unread != null) {
                unread.settle(false);
            }
            return null;
        }
        Map<String, String> facts = new LinkedHashMap<>();
        facts.put(SealbusHelper.CHANNEL, event.channel());
        if (event.mayBeAgain()) {
            facts.put(Post.AGAIN, "true");
        }
        if (unread != null) {
            facts.put(SealbusHelper.EVENT, mesh.unread(subscription.agent(), unread::settle));
        }
        try {
            String proved = author.identity().name() + "@" + mesh.trust.platform();
            mesh.agents.deliver(subscription.agent(), proved, event.body(), facts);
            return null;
        } catch (Mesh.ForgedSender forged) {
            return "forged-sender";
        } catch (BitEfficient.Malformed malformed) {
            return "malformed";
        }
    }

    /** An event whose publisher waits until all agents here have read it. */
    private final class Unread {
        private final long life = session(epoch, peerEpoch);
        private final long number;
        private int left;
        private boolean isTaken = true;

        Unread(long number, int left) {
            this.number = number;
            this.left = left;
        }

        /** One of the agents has read it, or will not. */
        void settle(boolean hasRead) {
            left--;
            isTaken &= hasRead;
            if (left == 0 && life == session(epoch, peerEpoch)) {
                tell(null, isTaken ? TAKEN : ABSENT, leb(new Frame.Body(), number));
            }
        }
    }

    // ---- numbers ----

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

    private static Frame.Body text(Frame.Body out, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return leb(out, bytes.length).bytes(bytes);
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

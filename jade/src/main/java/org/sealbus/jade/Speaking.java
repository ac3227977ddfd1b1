package org.sealbus.jade;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;

/**
 * Agents here publish, to one other process: the subscriptions there, the frames that are not acknowledged, and what becomes of
 * them. The mesh guards it.
 */
final class Speaking {
    /** Most frames and bytes that are not acknowledged, before publishers wait; and of events that agents there have not read. */
    private static final int MOST_FRAMES = 16_384;
    private static final long MOST_BYTES = 8 << 20;
    /** How much more of the answers to frames of the other process is kept. */
    private static final int OVERFULL = 4;
    /** How long a process may not acknowledge, and how long publishers wait for it, in nanoseconds. */
    static final long PATIENCE = TimeUnit.SECONDS.toNanos(30);
    /** The pause after which publishers wait again for a process that has not announced itself in time, in nanoseconds. */
    private static final long PAUSE = 10 * PATIENCE;
    /** The pause until frames are sent again of which one came back, in milliseconds: they often come back one by one. */
    private static final long AGAIN = 50;
    private static final long SECOND = TimeUnit.SECONDS.toNanos(1);
    private static final String GONE = "the receiver is gone";

    /** A frame that is not acknowledged yet, or whose event agents have not read yet. */
    static final class Kept {
        final long number;
        final String author;
        byte[] bytes;
        /** Null of a frame that brings nothing of an agent. */
        Publication publication;
        Group.Share share;
        /** The subscriptions that it is for. */
        List<FarSubscription> targets = List.of();
        boolean isSettled;
        /** It came back. The process itself sends a void in its place. */
        boolean isVoid;

        Kept(long number, String author, byte[] bytes) {
            this.number = number;
            this.author = author;
            this.bytes = bytes;
        }

        /** Whether its publisher gets it back if an agent does not take it. */
        private boolean isReturnable() {
            return publication != null && share == null && !publication.wantsAgent()
                    && publication.head().mechanism() == Head.EVENT;
        }
    }

    /** Whether publishers wait for the announcements of the other process. */
    static final class Introduction {
        private boolean isKnown;
        private boolean isExcused;
        /**
         * Since when publishers wait, by {@link System#nanoTime()}; 0 if none does. The announcements end it, and a new life does
         * so only long after the time has passed.
         */
        private long awaitedSince;

        boolean isReady() {
            return isKnown || isExcused;
        }

        void excuse() {
            isExcused = true;
        }

        void known() {
            isKnown = true;
            awaitedSince = 0;
        }

        /** Publishers wait. Whether they have waited long enough. */
        boolean isOverdue(long now) {
            if (awaitedSince == 0) {
                awaitedSince = now;
            }
            return now - awaitedSince >= PATIENCE;
        }

        /**
         * A new life begins: the process announces its subscriptions, and publishers wait for that. A process that only greets, and
         * announces nothing within the time, stays excused for a while: else each greeting would hold them up again.
         */
        void beginAnew(long now) {
            isKnown = false;
            if (now - awaitedSince >= PATIENCE + PAUSE) {
                awaitedSince = 0;
            }
            isExcused &= awaitedSince != 0 && isOverdue(now);
        }
    }

    private final Mesh mesh;
    private final Exchange exchange;
    private final Introduction introduction = new Introduction();
    private final Map<Integer, FarSubscription> subscriptions = new HashMap<>();
    private final Deque<Kept> kept = new ArrayDeque<>();
    private long keptBytes;
    private final Deque<Kept> unread = new ArrayDeque<>();
    private long unreadBytes;
    /** Acknowledged frames whose agents have yet to take them, or to handle them. */
    private final Map<Long, Kept> untaken = new HashMap<>();
    private long acknowledged;
    /** The first of the frames that are soon sent again; 0: none are. */
    private long againFrom;
    /** When the last frame was acknowledged, or one first waited for that again. */
    private long progress;
    private long toldAt;

    Speaking(Mesh mesh, Exchange exchange) {
        this.mesh = mesh;
        this.exchange = exchange;
    }

    // ---- the other process ----

    /** Whether publishers need not wait for its announcements. */
    boolean isReady() {
        return introduction.isReady();
    }

    void excuse() {
        introduction.excuse();
        mesh.notifyAll();
    }

    /** Publishers wait for its announcements. Whether they have waited long enough; then they wait no more. */
    boolean isOverdue(long now) {
        boolean isOverdue = introduction.isOverdue(now);
        if (isOverdue) {
            excuse();
        }
        return isOverdue;
    }

    void known() {
        introduction.known();
        mesh.notifyAll();
    }

    /** The process greets in a new life. */
    void beginAnew() {
        introduction.beginAnew(System.nanoTime());
    }

    /** Time has passed. */
    void tick(long now) {
        if (!kept.isEmpty() && now - progress > PATIENCE) {
            exchange.giveUp("it has acknowledged nothing for 30 s");
        } else if (now - toldAt > SECOND) {
            toldAt = now;
            subscriptions.values().forEach(this::tellFilterErrors);
            boolean isStalled = subscriptions.values().stream().anyMatch(one -> !one.hasCredit());
            if (isStalled && kept.isEmpty()) {
                // It asks for credit, and shows whether the process is there.
                exchange.tell(null, Exchange.VOID, new byte[0]);
            }
        }
    }

    // ---- subscriptions there ----

    Iterable<FarSubscription> subscriptions() {
        return List.copyOf(subscriptions.values());
    }

    void announced(Trust.Peer author, ByteBuffer in, long frame) {
        String refused = author == null ? "not-proved" : null;
        if (refused == null) {
            FarSubscription made = new FarSubscription(author.identity().name(), author.notBefore(), in);
            withdrawn(made.number, 0);
            if (subscriptions.size() >= MOST_FRAMES) {
                refused = "over-limit";
            } else {
                subscriptions.put(made.number, made);
                mesh.channels.groups.joined(exchange, made);
            }
        }
        if (refused != null) {
            exchange.refuse(frame, refused);
        }
        mesh.notifyAll();
    }

    /** A subscription there has ended. {@code movedBefore}: its agent has moved, and takes no frames from this one on; or 0. */
    void withdrawn(int number, long movedBefore) {
        FarSubscription gone = subscriptions.remove(number);
        if (gone == null) {
            return;
        }
        mesh.channels.groups.left(exchange, gone);
        mesh.channels.questions.silent(exchange, number);
        if (movedBefore > 0) {
            List.copyOf(kept).stream()
                    .filter(one -> one.number >= movedBefore && one.isReturnable() && one.targets.contains(gone))
                    .forEach(one -> giveBack(one, GONE));
        }
        mesh.notifyAll();
    }

    void credited(int number, long limit) {
        FarSubscription subscription = subscriptions.get(number);
        if (subscription == null) {
            return;
        }
        subscription.raise(limit);
        if (subscription.missed > 0) {
            exchange.tell(null, Exchange.MISSED, new Frame.Body().leb(number).leb(subscription.missed).done());
            subscription.missed = 0;
        }
        mesh.channels.groups.serve();
        mesh.notifyAll();
    }

    private void tellFilterErrors(FarSubscription subscription) {
        if (subscription.filterErrors > 0) {
            exchange.tell(null, Exchange.FILTER_ERRORS, new Frame.Body().leb(subscription.number)
                    .leb(subscription.filterErrors).name(subscription.filterProblem).done());
            subscription.filterErrors = 0;
        }
    }

    // ---- frames out ----

    /** The number of the next frame. */
    long next() {
        return acknowledged + kept.size() + 1;
    }

    Kept keep(long number, String author, byte[] frame) {
        Kept made = new Kept(number, author, frame);
        if (kept.isEmpty()) {
            progress = System.nanoTime();
        }
        kept.add(made);
        keptBytes += frame.length;
        if (kept.size() > OVERFULL * MOST_FRAMES) {
            // Not at once: the caller is in the midst of a frame.
            mesh.laterGuarded(() -> {
                if (kept.size() > OVERFULL * MOST_FRAMES) {
                    exchange.giveUp("it asks on and on, and acknowledges none of the answers");
                }
            }, 0);
        }
        return made;
    }

    /** Whether publishers have to wait. */
    boolean isFull() {
        return kept.size() >= MOST_FRAMES || keptBytes >= MOST_BYTES;
    }

    /** Sends a message to subscriptions there. */
    void send(Publication publication, List<FarSubscription> targets) {
        for (int at = 0; at < targets.size(); at += Event.MOST_TARGETS) {
            List<FarSubscription> named = targets.subList(at, Math.min(targets.size(), at + Event.MOST_TARGETS));
            byte[] fields = Event.write(publication.head(), named.stream().map(one -> one.number).toList(), publication.body());
            if (publication.isBestEffort()) {
                exchange.send(publication.agent(), Exchange.EVENT, fields);
                continue;
            }
            named.forEach(one -> one.charge(publication.cost()));
            Kept sent = exchange.tell(publication.agent(), Exchange.EVENT, fields);
            sent.publication = publication;
            sent.targets = List.copyOf(named);
            if (publication.receipt() != null) {
                publication.receipt().expect();
            }
        }
    }

    /** Sends the event of a group to a member. */
    void give(Group.Share share, FarSubscription member) {
        Publication publication = share.held().publication;
        member.charge(publication.cost());
        Kept sent = exchange.tell(publication.agent(), Exchange.EVENT,
                Event.write(publication.head(), List.of(member.number), publication.body()));
        sent.publication = publication;
        sent.targets = List.of(member);
        sent.share = share;
    }

    // ---- what becomes of frames ----

    /** The process has taken all frames up to one, and its agents have read those up to another one. */
    void acknowledged(long upto, long read, long after, long taken) {
        if (after > taken) {
            return;
        }
        if (upto >= next()) {
            throw new IllegalArgumentException("frames were acknowledged that were not sent");
        }
        while (!unread.isEmpty() && unread.peek().number <= read) {
            unreadBytes -= unread.poll().bytes.length;
        }
        while (acknowledged < upto) {
            Kept one = kept.poll();
            keptBytes -= one.bytes.length;
            acknowledged++;
            progress = System.nanoTime();
            if (!one.isSettled) {
                arrived(one, read);
            }
        }
        mesh.notifyAll();
    }

    private void arrived(Kept one, long read) {
        Receipt receipt = one.publication == null ? null : one.publication.receipt();
        if (one.share != null) {
            untaken.put(one.number, one);
            one.share.arrived();
            return;
        }
        if (receipt != null && one.publication.wantsAgent()) {
            untaken.put(one.number, one);
            return;
        }
        if (receipt != null) {
            receipt.acknowledge();
        }
        if (one.isReturnable() && one.number > read) {
            unread.add(one);
            unreadBytes += one.bytes.length;
            while (unread.size() > MOST_FRAMES || unreadBytes > MOST_BYTES) {
                unreadBytes -= unread.poll().bytes.length;
            }
        }
    }

    private Kept find(long number) {
        Kept found = kept.stream().filter(one -> one.number == number).findFirst().orElse(null);
        return found != null ? found : unread.stream().filter(one -> one.number == number).findFirst().orElse(null);
    }

    /** The agents there have taken an event or have handled it; or they will not. */
    void taken(long number, boolean isTaken) {
        Kept one = untaken.remove(number);
        if (one == null) {
            one = find(number);
            if (one == null || one.isSettled || one.publication == null) {
                return;
            }
            boolean isAwaited = one.share != null || one.publication.wantsAgent();
            one.isSettled = isAwaited;
            if (!isAwaited) {
                return;
            }
        }
        if (one.share != null) {
            one.share.ended(isTaken);
        } else if (isTaken) {
            one.publication.receipt().acknowledge();
        } else {
            one.publication.receipt().fail(Publication.NOT_TAKEN);
        }
        mesh.notifyAll();
    }

    /** Nobody there takes an event. */
    void absent(long number) {
        Kept one = untaken.containsKey(number) ? null : find(number);
        if (one != null && one.isReturnable()) {
            giveBack(one, GONE);
        } else {
            taken(number, false);
        }
    }

    /** The process refuses a frame. */
    void refused(long number, String why) {
        Kept one = find(number);
        if (one != null) {
            giveBack(one, exchange.peer + " refused it: " + why);
        }
    }

    private void giveBack(Kept one, String why) {
        if (!one.isSettled) {
            one.isSettled = true;
            report(one, why);
            mesh.notifyAll();
        }
    }

    /** Tells whoever waits for a frame, or wrote it, that it was lost. */
    private void report(Kept one, String why) {
        if (one.share != null) {
            one.share.returned(why);
            return;
        }
        if (one.publication == null) {
            if (one.author != null) {
                Mesh.LOG.log(Level.WARNING, "{0}: what {1} tells of its channels is not accepted: {2}",
                        new Object[] {exchange.peer, one.author, why});
            }
            return;
        }
        if (one.publication.receipt() != null) {
            one.publication.receipt().fail(why);
        }
        if (one.publication.head().mechanism() == Head.QUESTION) {
            long question = one.publication.head().question();
            one.targets.forEach(target -> mesh.channels.questions.declined(exchange, target.number, question));
        } else {
            mesh.channels.failed(one.publication, why);
        }
    }

    /** A frame came back: a void takes its place, and all later ones are sent again. */
    void returned(long number, String why) {
        for (Kept one : List.copyOf(kept)) {
            if (one.number == number) {
                one.targets.forEach(target -> target.refund(one.publication.cost()));
                keptBytes -= one.bytes.length;
                one.bytes = exchange.frame(Exchange.VOID, number, new byte[0]);
                one.isVoid = true;
                keptBytes += one.bytes.length;
                giveBack(one, why);
                if (againFrom == 0) {
                    mesh.laterGuarded(this::repeat, AGAIN);
                }
                againFrom = againFrom == 0 ? number : Math.min(againFrom, number);
            }
        }
    }

    private void repeat() {
        long from = againFrom;
        againFrom = 0;
        if (from > 0) {
            List.copyOf(kept).stream().filter(one -> one.number >= from).forEach(exchange::repeat);
        }
    }

    /** The present life is over: what was not taken may be lost, and subscriptions are announced again. */
    void lose(String why) {
        List<Kept> lost = new ArrayList<>(unread);
        lost.addAll(kept);
        List<Kept> waited = List.copyOf(untaken.values());
        kept.clear();
        keptBytes = 0;
        unread.clear();
        unreadBytes = 0;
        untaken.clear();
        acknowledged = 0;
        againFrom = 0;
        beginAnew();
        subscriptions.clear();
        mesh.channels.groups.lost(exchange);
        lost.stream().filter(one -> !one.isSettled && one.share == null && one.publication != null)
                .forEach(one -> report(one, "it was sent and may not have arrived: " + why));
        waited.stream().filter(one -> one.share == null)
                .forEach(one -> one.publication.receipt().fail("it was not said whether it was taken: " + why));
        mesh.channels.questions.silent(exchange);
        mesh.notifyAll();
    }
}

package org.sealbus.jade;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;

/**
 * A queue group, as the publishers of this process know it: its members, and the events that are held until a member has
 * handled them (docs/channels.md). The mesh guards it.
 */
final class Group {
    private static final int MOST_EVENTS = 16_384;
    private static final long MOST_BYTES = 8 << 20;
    /** How often an event comes back before it is given up. An event that ends each agent that takes it must not end all. */
    private static final int MOST_TRIES = 8;
    /** Most events that are looked at for one that a free member may have. */
    private static final int MOST_PARKED = 64;
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(30);

    /** The name of a group, and the pattern and filter of its members. */
    record Key(String name, String pattern, String filter) {}

    /** The subscription of a member: of another process, or of this one. */
    static final class Member {
        /** Null of an agent here. */
        final Exchange exchange;
        final FarSubscription far;
        final ChannelSubscription near;
        private final Set<Share> has = new HashSet<>();
        private long turn;

        Member(Exchange exchange, FarSubscription far, ChannelSubscription near) {
            this.exchange = exchange;
            this.far = far;
            this.near = near;
        }

        String agent() {
            return far == null ? near.agent() : far.agent;
        }

        private boolean isFree() {
            return has.size() < (far == null ? near.options().prefetch() : far.prefetch) && (far == null || far.hasCredit());
        }
    }

    /** An event that is held until a member has handled it. */
    static final class Held {
        Publication publication;
        private final long number;
        private int tries;
        private Member refusedBy;
        private String reason;
        private long strandedSince;

        Held(Publication publication, long number) {
            this.publication = publication;
            this.number = number;
        }
    }

    /** An event in the hands of a member. */
    final class Share {
        private final Held held;
        private final Member member;

        Share(Held held, Member member) {
            this.held = held;
            this.member = member;
        }

        Held held() {
            return held;
        }

        /** The member's process has the event. */
        void arrived() {
            Receipt receipt = held.publication.receipt();
            if (receipt != null && !held.publication.wantsAgent()) {
                receipt.acknowledge();
                held.publication = new Publication(held.publication.agent(), held.publication.head(), held.publication.body(), null);
            }
        }

        /** The member has handled the event, or does not take it. */
        void ended(boolean isHandled) {
            if (member.has.remove(this)) {
                if (isHandled) {
                    end(held, null);
                } else {
                    takeBack(held, member, false, null);
                }
                groups.serve(Group.this);
            }
        }

        /** The event did not come to the member. */
        void returned(String why) {
            if (member.has.remove(this)) {
                takeBack(held, member, false, why);
                groups.serve(Group.this);
            }
        }
    }

    final Key key;
    private final Mesh mesh;
    private final Groups groups;
    private final List<Member> members = new ArrayList<>();
    /** Events that came back go first; else by priority, and by their age. */
    private final TreeSet<Held> waiting = new TreeSet<>(Comparator.comparingInt((Held held) -> held.tries > 0 ? 0 : 1)
            .thenComparingInt(held -> -held.publication.head().qos().priority).thenComparingLong(held -> held.number));
    private int events;
    private long bytes;
    private long turns;
    private long emptySince;
    /** When the group is looked at again, in milliseconds since 1970; 0: at no certain time. */
    private long wakesAt;
    /** Since when publishers wait for room, by {@link System#nanoTime()}; 0 if none does. */
    long stalledSince;

    Group(Mesh mesh, Groups groups, Key key) {
        this.mesh = mesh;
        this.groups = groups;
        this.key = key;
    }

    boolean isOver() {
        return members.isEmpty() && events == 0;
    }

    boolean hasRoom(long cost) {
        return events == 0 || events < MOST_EVENTS && bytes + cost <= MOST_BYTES;
    }

    /** Whether events on a channel are for it: a member may read the channel, or one may come back. */
    boolean takes(String channel) {
        return ChannelSubscription.matches(key.pattern(), channel)
                && (members.isEmpty() || members.stream().anyMatch(one -> mesh.may(one.agent(), "subscribe", channel)));
    }

    // ---- members ----

    void join(Member member) {
        members.add(member);
        emptySince = 0;
    }

    /** Members are gone. They may have had their events, so those are marked. */
    void leave(List<Member> gone) {
        members.removeAll(gone);
        for (Member member : gone) {
            List<Share> had = List.copyOf(member.has);
            member.has.clear();
            had.forEach(share -> takeBack(share.held, null, true, null));
        }
    }

    List<Member> members() {
        return List.copyOf(members);
    }

    /** The member that gets an event which nobody holds; null if there is none. */
    Member draw(String channel) {
        Member chosen = members.stream().filter(one -> mesh.may(one.agent(), "subscribe", channel))
                .min(Comparator.comparingInt((Member one) -> one.has.size()).thenComparingLong(one -> one.turn)).orElse(null);
        if (chosen != null) {
            turns++;
            chosen.turn = turns;
        }
        return chosen;
    }

    // ---- events ----

    void hold(Publication publication, long number) {
        events++;
        bytes += publication.cost();
        waiting.add(new Held(publication, number));
    }

    /** The time has come that {@link #serve} named. */
    void awake() {
        wakesAt = 0;
    }

    /**
     * Gives events to members that are free. Returns when to look again, in milliseconds since 1970; 0 for no time, and if it was
     * said before.
     */
    long serve() {
        long now = System.currentTimeMillis();
        long next = 0;
        int parked = 0;
        for (Held held : List.copyOf(waiting)) {
            Head head = held.publication.head();
            boolean isLater = head.validFrom() > now;
            if (head.isExpired(now)) {
                waiting.remove(held);
                end(held, Publication.NOT_TAKEN);
            } else if (isLater) {
                next = next == 0 ? head.validFrom() : Math.min(next, head.validFrom());
            } else {
                Member member = choose(held);
                if (member != null) {
                    waiting.remove(held);
                    give(held, member);
                } else {
                    parked++;
                }
            }
            if (parked >= MOST_PARKED || members.stream().noneMatch(Member::isFree)) {
                break;
            }
        }
        if (next == 0 || wakesAt != 0 && wakesAt <= next) {
            return 0;
        }
        wakesAt = next;
        return next;
    }

    private boolean suits(Held held, Member member) {
        return held.refusedBy != member && mesh.may(member.agent(), "subscribe", held.publication.head().channel());
    }

    private Member choose(Held held) {
        return members.stream().filter(one -> one.isFree() && suits(held, one))
                .min(Comparator.comparingInt((Member one) -> one.has.size()).thenComparingLong(one -> one.turn)).orElse(null);
    }

    private void give(Held held, Member member) {
        turns++;
        member.turn = turns;
        held.strandedSince = 0;
        Share share = new Share(held, member);
        member.has.add(share);
        if (member.exchange != null) {
            member.exchange.speaking().give(share, member.far);
            return;
        }
        share.arrived();
        String refused = mesh.channels.handover.hand(held.publication.event(), mesh.whole(held.publication.agent()), member.near,
                share::ended, null, null);
        if (refused != null) {
            // Not at once: events are being given.
            mesh.laterGuarded(() -> share.returned(refused), 0);
        }
    }

    private void takeBack(Held held, Member refusedBy, boolean mayBeAgain, String why) {
        held.tries++;
        held.refusedBy = refusedBy;
        held.reason = why == null ? held.reason : why;
        if (mayBeAgain) {
            held.publication = held.publication.again();
        }
        if (held.tries < MOST_TRIES) {
            waiting.add(held);
        } else {
            giveUp(held);
        }
    }

    /** An event is over: handled, or expired for a reason. */
    private void end(Held held, String expired) {
        events--;
        bytes -= held.publication.cost();
        stalledSince = 0;
        Receipt receipt = held.publication.receipt();
        if (receipt != null && expired == null) {
            receipt.acknowledge();
        } else if (receipt != null) {
            receipt.fail(expired);
        }
        mesh.notifyAll();
    }

    private void giveUp(Held held) {
        String why = held.reason == null ? notHandled() : held.reason;
        mesh.channels.failed(held.publication, why);
        end(held, why);
    }

    String notHandled() {
        return "no member of the group " + key.name() + " handled it: none came, none took anything for long, or each ended that"
                + " had it";
    }

    /** Gives up the events that no member may have for long. */
    void care(long now) {
        if (members.isEmpty() && emptySince == 0) {
            emptySince = now;
        }
        boolean isDeserted = members.isEmpty() && now - emptySince > PATIENCE;
        for (Held held : List.copyOf(waiting)) {
            boolean isStranded = members.stream().noneMatch(one -> suits(held, one));
            held.strandedSince = !isStranded ? 0 : held.strandedSince == 0 ? now : held.strandedSince;
            if (isDeserted || isStranded && !members.isEmpty() && now - held.strandedSince > PATIENCE) {
                waiting.remove(held);
                giveUp(held);
            }
        }
    }
}

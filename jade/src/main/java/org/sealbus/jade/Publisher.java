package org.sealbus.jade;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;

/**
 * Agents here put events and questions on channels. It chooses the subscriptions that get them, waits for those that have no
 * room, and for what acknowledges them. Filters are evaluated by the node.
 */
final class Publisher {
    /** How long the first event that may be lost waits for the announcements of other processes, in nanoseconds. */
    private static final long INTRODUCTION = TimeUnit.SECONDS.toNanos(1);
    private static final int MOST_CHANNELS = 65_536;
    /** The most bytes of a frame beside the message. */
    private static final int MOST_HEAD = 16 << 10;

    /** The receivers of what is published, and those that it passes by because they took nothing for too long. */
    static final class Chosen {
        final List<ChannelSubscription> here = new ArrayList<>();
        final Map<Exchange, List<FarSubscription>> there = new LinkedHashMap<>();
        final List<Group> groups = new ArrayList<>();
        final List<ChannelSubscription> passedHere = new ArrayList<>();
        final List<FarSubscription> passedThere = new ArrayList<>();
        final List<Group> passedGroups = new ArrayList<>();
    }

    /** The node's verdicts of filters on one event. */
    private static final class Sieve {
        final Map<String, ChannelLogs.Verdict> verdicts = new HashMap<>();
        final Set<String> unjudged = new HashSet<>();

        boolean passes(String filter) {
            ChannelLogs.Verdict verdict = filter.isEmpty() ? new ChannelLogs.Verdict(true, null) : verdicts.get(filter);
            if (verdict == null) {
                unjudged.add(filter);
                return false;
            }
            return verdict.passes();
        }

        String problem(String filter) {
            ChannelLogs.Verdict verdict = verdicts.get(filter);
            return verdict == null ? null : verdict.problem();
        }
    }

    private final Mesh mesh;
    private final ChannelLogs logs;
    private final Map<String, Long> numbers = new HashMap<>();
    private long lowestNumber;
    private boolean wasIntroduced;

    Publisher(Mesh mesh, ChannelLogs logs) {
        this.mesh = mesh;
        this.logs = logs;
    }

    /** Publishes an event of an agent here. */
    SealbusHelper.Reach publish(String agent, String channel, Qos qos, byte[] body) throws SealbusHelper.NotPublished {
        check(agent, channel, qos, body);
        long now = System.currentTimeMillis();
        Head head = Head.of(Head.EVENT, qos, channel, qos.isPersistent ? 0 : number(channel), now, 0);
        checkValidity(head);
        if (!qos.isPersistent) {
            return put(head, agent, body, 0);
        }
        long kept;
        try {
            kept = logs.keep(agent, head, body);
        } catch (IOException refused) {
            throw new SealbusHelper.NotPublished("the event is not kept: " + refused.getMessage());
        }
        // The log is a disk.
        Qos rest = qos.acknowledgement > Qos.ACK_AGENT ? qos.unacknowledged() : qos;
        try {
            return put(Head.of(Head.EVENT, rest, channel, kept, now, 0), agent, body, kept);
        } catch (SealbusHelper.NotPublished late) {
            throw new SealbusHelper.NotPublished("it is in the log as number " + kept
                    + ", and was not given to all that listen now: " + late.getMessage());
        }
    }

    /** Asks everyone on a channel. Returns when all have answered or will not, at the deadline, or after enough answers. */
    Questions.Asking ask(String agent, String channel, Qos qos, byte[] body, long millis, int wanted)
            throws SealbusHelper.NotPublished {
        check(agent, channel, qos, body);
        long now = System.currentTimeMillis();
        // Nobody needs to see it after the answers are due. The answers say who has it.
        Qos until = qos.unacknowledged().until(now + millis, now);
        until.isPersistent = false;
        Head head;
        synchronized (mesh) {
            head = Head.of(Head.QUESTION, until, channel, number(channel), now, mesh.channels.questions.next());
        }
        checkValidity(head);
        Publication question = new Publication(agent, head, body, null);
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        try {
            Questions.Asking asking = putQuestion(question, wanted);
            synchronized (mesh) {
                while (!asking.isOver() && System.nanoTime() < end && !mesh.isClosed()) {
                    pause(end);
                }
                return asking;
            }
        } finally {
            synchronized (mesh) {
                mesh.channels.questions.end(head.question());
            }
        }
    }

    private static void checkValidity(Head head) throws SealbusHelper.NotPublished {
        if (head.isNeverValid(System.currentTimeMillis())) {
            throw new SealbusHelper.NotPublished("it has expired already, or expires before it is valid");
        }
    }

    private void check(String agent, String channel, Qos qos, byte[] body) throws SealbusHelper.NotPublished {
        if (channel.contains("*")) {
            throw new IllegalArgumentException(channel + " is no channel: a channel is a path without *");
        }
        ChannelSubscription.check(channel);
        synchronized (mesh) {
            String obstacle = qos.obstacle(mesh.qos(channel));
            if (obstacle != null) {
                throw new SealbusHelper.NotPublished(obstacle);
            }
            checkMay(agent, channel);
        }
        checkLength(body);
    }

    /** Checks that a message fits into a frame that other processes take. */
    void checkLength(byte[] body) throws SealbusHelper.NotPublished {
        int most = Math.max(mesh.largest - MOST_HEAD, mesh.largest / 2);
        if (body.length > most) {
            throw new SealbusHelper.NotPublished("a message of " + body.length + " bytes; at most " + most + " are sent");
        }
    }

    private void checkMay(String agent, String channel) throws SealbusHelper.NotPublished {
        if (mesh.isClosed() || !mesh.isPresent(agent)) {
            throw new SealbusHelper.NotPublished(agent + " has no name on the Sealbus platform now");
        }
        if (!mesh.may(agent, "publish", channel)) {
            throw new SealbusHelper.NotPublished("the policy does not let " + agent + " publish on " + channel);
        }
    }

    /** The position of the next event of this process on a channel. */
    private long number(String channel) {
        synchronized (mesh) {
            if (numbers.size() >= MOST_CHANNELS) {
                lowestNumber = numbers.values().stream().mapToLong(Long::longValue).max().orElse(0);
                numbers.clear();
            }
            return numbers.merge(channel, lowestNumber + 1, (before, first) -> before + 1);
        }
    }

    // ---- events ----

    private SealbusHelper.Reach put(Head head, String agent, byte[] body, long kept) throws SealbusHelper.NotPublished {
        boolean isAwaited = head.qos().acknowledgement != Qos.NO_ACK;
        Publication publication = new Publication(agent, head, body, isAwaited ? new Receipt() : null);
        Sieve sieve = new Sieve();
        while (true) {
            synchronized (mesh) {
                Chosen chosen = choose(publication, sieve);
                if (sieve.unjudged.isEmpty()) {
                    SealbusHelper.Reach reach = send(publication, chosen, sieve, kept);
                    if (publication.receipt() != null) {
                        await(publication.receipt());
                    }
                    return reach;
                }
            }
            judge(publication, sieve);
        }
    }

    private void judge(Publication publication, Sieve sieve) throws SealbusHelper.NotPublished {
        try {
            sieve.verdicts.putAll(logs.judge(publication.agent(), sieve.unjudged, publication.head(), publication.body()));
            sieve.unjudged.clear();
        } catch (IOException | IllegalArgumentException failed) {
            throw new SealbusHelper.NotPublished("the node does not say which filters it passes: " + failed.getMessage());
        }
    }

    /** The receivers, all of which have room. Waits for that, unless filters are to be judged first. */
    private Chosen choose(Publication publication, Sieve sieve) throws SealbusHelper.NotPublished {
        mesh.channels.takeInterest();
        introduce(publication);
        while (true) {
            checkMay(publication.agent(), publication.head().channel());
            checkValidity(publication.head());
            Chosen chosen = chooseNow(publication, sieve);
            if (!sieve.unjudged.isEmpty() || hasRoom(publication, chosen, System.nanoTime())) {
                return chosen;
            }
            pause(System.nanoTime() + Speaking.PATIENCE);
        }
    }

    /** Waits until every process has announced its subscriptions; for what may be lost, a little the first time. */
    private void introduce(Publication publication) throws SealbusHelper.NotPublished {
        long begun = System.nanoTime();
        long end = begun + INTRODUCTION;
        while (true) {
            List<Exchange> silent = mesh.channels.announcers().stream().filter(one -> !one.isReady()).toList();
            long now = System.nanoTime();
            if (mesh.channels.isAcquainted() && silent.isEmpty() || publication.isBestEffort() && (wasIntroduced || now >= end)) {
                wasIntroduced = true;
                return;
            }
            if (!publication.isBestEffort()) {
                if (!mesh.channels.isAcquainted() && now - begun > Speaking.PATIENCE) {
                    throw new SealbusHelper.NotPublished("the platform has not said within 30 s which other processes use channels,"
                            + " and they would miss it: see whether the Master runs, and publish again");
                }
                for (Exchange one : silent) {
                    if (one.speaking().isOverdue(now)) {
                        throw new SealbusHelper.NotPublished(one.peer + " has not said within 30 s what its agents subscribe to,"
                                + " and would miss it: publish again");
                    }
                }
            }
            checkMay(publication.agent(), publication.head().channel());
            pause(end);
        }
    }

    /** Lets others have the mesh for a moment. */
    private void pause(long end) throws SealbusHelper.NotPublished {
        long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
        try {
            mesh.wait(Math.max(1, Math.min(left, 200)));
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new SealbusHelper.NotPublished("the agent was interrupted");
        }
    }

    private Chosen chooseNow(Publication publication, Sieve sieve) {
        String channel = publication.head().channel();
        Chosen chosen = new Chosen();
        for (ChannelSubscription one : mesh.channels.subscriptions()) {
            SubscriptionOptions options = one.options();
            boolean isWanted = options.group().isEmpty() && !publication.isReadFromLog(options.readsLogs())
                    && isOn(one.pattern(), one.agent(), channel) && sieve.passes(options.filter());
            if (isWanted) {
                chosen.here.add(one);
            }
        }
        mesh.channels.subscriptionsThere(channel).forEach((exchange, there) -> {
            List<FarSubscription> wanted = new ArrayList<>();
            for (FarSubscription one : there) {
                boolean isWanted = one.takesEvents && !one.isInGroup() && !publication.isReadFromLog(one.readsLogs)
                        && isOn(one.pattern, one.agent, channel) && sieve.passes(one.filter);
                if (isWanted) {
                    wanted.add(one);
                }
            }
            if (!wanted.isEmpty()) {
                chosen.there.put(exchange, wanted);
            }
        });
        for (Group group : mesh.channels.groups.matching(channel)) {
            if (sieve.passes(group.key.filter())) {
                chosen.groups.add(group);
            }
        }
        return chosen;
    }

    private boolean isOn(String pattern, String agent, String channel) {
        return ChannelSubscription.matches(pattern, channel) && mesh.may(agent, "subscribe", channel);
    }

    /**
     * Whether nothing is to be waited for. A receiver that has made publishers wait for too long is passed by. The time of all
     * receivers without room runs at once: otherwise each of them would make publishers wait that long, one after another.
     */
    boolean hasRoom(Publication publication, Chosen chosen, long now) {
        if (publication.isBestEffort()) {
            return true;
        }
        boolean hasRoom = true;
        for (ChannelSubscription one : List.copyOf(chosen.here)) {
            // An agent does not wait for itself.
            if (one.agent().equals(publication.agent()) || mesh.agents.hasRoom(one.agent())) {
                one.stalledSince = 0;
                continue;
            }
            one.stalledSince = one.stalledSince == 0 ? now : one.stalledSince;
            if (now - one.stalledSince > Speaking.PATIENCE) {
                chosen.passedHere.add(one);
                chosen.here.remove(one);
            } else {
                hasRoom = false;
            }
        }
        for (Map.Entry<Exchange, List<FarSubscription>> entry : chosen.there.entrySet()) {
            hasRoom &= !entry.getKey().speaking().isFull();
            for (FarSubscription one : List.copyOf(entry.getValue())) {
                if (one.hasCredit()) {
                    continue;
                }
                one.stalledSince = one.stalledSince == 0 ? now : one.stalledSince;
                if (now - one.stalledSince > Speaking.PATIENCE) {
                    chosen.passedThere.add(one);
                    entry.getValue().remove(one);
                } else {
                    hasRoom = false;
                }
            }
        }
        chosen.there.values().removeIf(Collection::isEmpty);
        for (Group group : List.copyOf(chosen.groups)) {
            if (group.hasRoom(publication.cost())) {
                continue;
            }
            group.stalledSince = group.stalledSince == 0 ? now : group.stalledSince;
            if (now - group.stalledSince > Speaking.PATIENCE) {
                chosen.passedGroups.add(group);
                chosen.groups.remove(group);
            } else {
                hasRoom = false;
            }
        }
        return hasRoom;
    }

    /** Counts a published event for the receivers that it passed by. While its publisher waits, none of them has missed it. */
    void notePassed(Publication publication, Chosen chosen) {
        for (ChannelSubscription one : chosen.passedHere) {
            Mesh.LOG.log(Level.WARNING, "an event on {0} passed {1} by, which took nothing for too long",
                    new Object[] {publication.head().channel(), one.agent()});
        }
        chosen.passedThere.forEach(one -> one.missed++);
        chosen.passedGroups.forEach(group -> mesh.channels.failed(publication, group.notHandled()));
    }

    private SealbusHelper.Reach send(Publication publication, Chosen chosen, Sieve sieve, long kept) {
        SealbusHelper.Reach reach = new SealbusHelper.Reach(chosen.here.size(), chosen.there.size(), chosen.groups.size(), kept);
        noteFailedFilters(publication, sieve);
        notePassed(publication, chosen);
        if (publication.isBestEffort()) {
            chosen.groups.forEach(group -> draw(publication, group, chosen));
            chosen.groups.clear();
        }
        chosen.there.forEach((exchange, wanted) -> exchange.speaking().send(publication, wanted));
        chosen.groups.forEach(group -> mesh.channels.groups.hold(group, publication));
        chosen.here.forEach(one -> hand(publication, one));
        return reach;
    }

    private static void draw(Publication publication, Group group, Chosen chosen) {
        Group.Member member = group.draw(publication.head().channel());
        if (member != null && member.near != null) {
            chosen.here.add(member.near);
        } else if (member != null) {
            chosen.there.computeIfAbsent(member.exchange, any -> new ArrayList<>()).add(member.far);
        }
    }

    private void noteFailedFilters(Publication publication, Sieve sieve) {
        String channel = publication.head().channel();
        for (List<FarSubscription> there : mesh.channels.subscriptionsThere(channel).values()) {
            for (FarSubscription one : there) {
                String problem = sieve.problem(one.filter);
                if (problem != null && isOn(one.pattern, one.agent, channel)) {
                    one.filterErrors++;
                    one.filterProblem = problem;
                }
            }
        }
        for (ChannelSubscription one : mesh.channels.subscriptions()) {
            String problem = sieve.problem(one.options().filter());
            if (problem != null && isOn(one.pattern(), one.agent(), channel)) {
                Mesh.LOG.log(Level.WARNING, "an event on {0} passed {1} by: {2}", new Object[] {channel, one.agent(), problem});
            }
        }
    }

    /** Gives an event to a subscription of this process. A publisher does not wait until it has read its own event. */
    private void hand(Publication publication, ChannelSubscription one) {
        Receipt receipt = publication.receipt();
        boolean isAwaited = receipt != null && publication.wantsAgent() && !one.agent().equals(publication.agent());
        Subscriptions.Outcome unread = null;
        if (isAwaited) {
            receipt.expect();
            unread = hasRead -> {
                if (hasRead) {
                    receipt.acknowledge();
                } else {
                    receipt.fail(Publication.NOT_TAKEN);
                }
                mesh.notifyAll();
            };
        }
        String refused = mesh.channels.handover.hand(publication.event(), mesh.whole(publication.agent()), one, unread, null, null);
        if (refused != null) {
            if (isAwaited) {
                receipt.fail(one.agent() + " refused it: " + refused);
            }
            mesh.channels.failed(publication, one.agent() + " refused it: " + refused);
        }
    }

    private void await(Receipt receipt) throws SealbusHelper.NotPublished {
        while (!receipt.isComplete()) {
            if (mesh.isClosed()) {
                throw new SealbusHelper.NotPublished("published, but this container has ended before all acknowledged it");
            }
            pause(Long.MAX_VALUE / 2);
        }
        if (receipt.failed() != null) {
            throw new SealbusHelper.NotPublished("published, but not acknowledged by all: " + receipt.failed());
        }
    }

    // ---- questions ----

    private Questions.Asking putQuestion(Publication question, int wanted) throws SealbusHelper.NotPublished {
        Sieve sieve = new Sieve();
        while (true) {
            synchronized (mesh) {
                mesh.channels.takeInterest();
                introduce(question);
                Map<Exchange, List<FarSubscription>> there = new LinkedHashMap<>();
                List<ChannelSubscription> here = new ArrayList<>();
                chooseAsked(question, sieve, there, here);
                if (sieve.unjudged.isEmpty()) {
                    return sendQuestion(question, wanted, there, here);
                }
            }
            judge(question, sieve);
        }
    }

    private void chooseAsked(Publication question, Sieve sieve, Map<Exchange, List<FarSubscription>> there,
            List<ChannelSubscription> here) {
        String channel = question.head().channel();
        mesh.channels.subscriptionsThere(channel).forEach((exchange, all) -> {
            for (FarSubscription one : all) {
                boolean isAsked = one.answers && !one.agent.equals(question.agent()) && mayAnswer(one.pattern, one.agent, channel);
                if (isAsked && sieve.passes(one.filter)) {
                    there.computeIfAbsent(exchange, any -> new ArrayList<>()).add(one);
                }
            }
        });
        for (ChannelSubscription one : mesh.channels.subscriptions()) {
            boolean isAsked = one.options().answers() && !one.agent().equals(question.agent())
                    && mayAnswer(one.pattern(), one.agent(), channel);
            if (isAsked && sieve.passes(one.options().filter())) {
                here.add(one);
            }
        }
    }

    private boolean mayAnswer(String pattern, String agent, String channel) {
        return ChannelSubscription.matches(pattern, channel) && mesh.may(agent, "answer", channel);
    }

    private Questions.Asking sendQuestion(Publication question, int wanted, Map<Exchange, List<FarSubscription>> there,
            List<ChannelSubscription> here) {
        Questions questions = mesh.channels.questions;
        Questions.Asking asking = questions.begin(question.head(), wanted);
        there.forEach((exchange, asked) -> {
            asked.forEach(one -> questions.asked(asking, exchange, one.number, one.agent));
            exchange.speaking().send(question, asked);
        });
        here.forEach(one -> questions.asked(asking, null, one.number(), one.agent()));
        for (ChannelSubscription one : here) {
            Questions.Asker asker = questions.near(one.number(), question.head());
            String refused = mesh.channels.handover.hand(question.event(), mesh.whole(question.agent()), one, null, null, asker);
            if (refused != null) {
                asker.decline();
            }
        }
        return asking;
    }
}

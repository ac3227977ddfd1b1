package org.sealbus.jade;

import java.security.cert.CertificateException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The subscriptions of agents here, as one other process knows them, and what comes from there. Publishers choose the
 * subscriptions. The mesh guards it.
 */
final class Hearing {
    /** Bytes that the other process may send to a subscription before its agent has room for more. */
    private static final long CREDIT = 256 << 10;
    private static final long PAUSE = 50;

    /** The bytes that the other process has sent to a subscription here, and may send. */
    private static final class Account {
        long limit;
        long received;
        /** Bytes of events that are not valid yet. */
        long held;
        boolean isLooking;
    }

    private final Mesh mesh;
    private final Exchange exchange;
    private final Map<Integer, Account> accounts = new HashMap<>();
    private final Handover handover;

    Hearing(Mesh mesh, Exchange exchange) {
        this.mesh = mesh;
        this.exchange = exchange;
        handover = new Handover(mesh);
    }

    void forget() {
        accounts.clear();
    }

    // ---- subscriptions ----

    /** There is a subscription. */
    void announce(ChannelSubscription subscription) {
        if (exchange.hasToldAll()) {
            // A process that begins anew gets no credit beyond the room of the agent.
            Account account = new Account();
            account.limit = mesh.agents.hasRoom(subscription.agent()) ? CREDIT : 0;
            accounts.put(subscription.number(), account);
            exchange.tell(subscription.agent(), Exchange.ANNOUNCE, FarSubscription.announce(subscription, account.limit));
            widen(subscription.number());
        }
    }

    /** A subscription has ended. */
    void withdraw(ChannelSubscription subscription) {
        if (accounts.remove(subscription.number()) != null) {
            exchange.tell(null, Exchange.WITHDRAW, new Frame.Body().leb(subscription.number()).leb(0).done());
        }
    }

    /** Gives a subscription more credit, once its agent has room. */
    private void widen(int number) {
        Account account = accounts.get(number);
        ChannelSubscription subscription = mesh.channels.subscription(number);
        long limit = account == null ? 0 : account.received + CREDIT - account.held;
        if (subscription == null || account == null || account.isLooking || limit - account.limit < CREDIT / 2) {
            return;
        }
        if (!mesh.agents.hasRoom(subscription.agent())) {
            account.isLooking = true;
            mesh.laterGuarded(() -> {
                account.isLooking = false;
                if (accounts.get(number) == account) {
                    widen(number);
                }
            }, PAUSE);
            return;
        }
        account.limit = limit;
        exchange.tell(null, Exchange.CREDIT, new Frame.Body().leb(number).leb(limit).done());
    }

    /** The other process asks for credit. */
    void widenAll() {
        List.copyOf(accounts.keySet()).forEach(this::widen);
    }

    /** Events passed a subscription by; or its filter, for a reason, could not be evaluated for them. */
    void passedBy(int number, long count, String problem) {
        ChannelSubscription subscription = mesh.channels.subscription(number);
        if (subscription != null) {
            exchange.log.warn("{0} events on {1} passed {2} by: {3}", count, subscription.pattern(), subscription.agent(),
                    problem == null ? "it took nothing for too long" : problem);
        }
    }

    // ---- what comes ----

    /** Takes what an agent of the other process published. {@code number}: of its frame; 0 if it may be lost. */
    void event(Event event, long number, Trust.Peer author) {
        Head head = event.head();
        long cost = Letter.cost(event.body().length);
        String refused = objection(event, author);
        List<ChannelSubscription> charged = charged(event);
        for (ChannelSubscription subscription : charged) {
            Account account = accounts.get(subscription.number());
            if (event.isKept()) {
                if (account.received >= account.limit) {
                    refused = "over-limit";
                }
                account.received += cost;
            }
        }
        List<ChannelSubscription> chosen = charged.stream().filter(one -> isFor(event, one)).toList();
        boolean isOver = head.isExpired(System.currentTimeMillis());
        if (refused == null && (chosen.isEmpty() || isOver)) {
            boolean isAwaited = head.mechanism() == Head.MESSAGE || event.wantsAgent() || isForGroup(charged);
            if (isAwaited) {
                tellAbsent(number);
            }
            chosen = List.of();
        }
        if (head.mechanism() == Head.QUESTION) {
            List<ChannelSubscription> asked = refused == null ? chosen : List.of();
            event.targets().stream().filter(one -> asked.stream().noneMatch(it -> it.number() == one))
                    .forEach(one -> decline(one, head.question()));
        }
        if (refused == null && !chosen.isEmpty()) {
            refused = handToAll(event, number, chosen, author);
        }
        if (refused != null) {
            exchange.log.warn("an event on {0} is refused: {1}", head.channel(), refused);
            if (number > 0) {
                exchange.refuse(number, refused);
            }
        }
        charged.forEach(subscription -> widen(subscription.number()));
    }

    /** Gives an event to the agents of subscriptions. Returns why the first of those that refuse it does, or null. */
    private String handToAll(Event event, long number, List<ChannelSubscription> chosen, Trust.Peer author) {
        boolean isAwaited = number > 0 && (event.wantsAgent() || isForGroup(chosen));
        Unread unread = isAwaited ? new Unread(number, chosen.size()) : null;
        String refused = null;
        boolean isAbsent = false;
        for (ChannelSubscription subscription : chosen) {
            String objection = hand(event, subscription, author, unread);
            if (Handover.ABSENT.equals(objection)) {
                isAbsent = true;
            } else if (refused == null) {
                refused = objection;
            }
        }
        if (isAbsent) {
            tellAbsent(number);
        }
        return refused;
    }

    /** Nobody here takes an event; {@code number} is 0 if it may be lost. */
    private void tellAbsent(long number) {
        if (number > 0) {
            exchange.tell(null, Exchange.ABSENT, new Frame.Body().leb(number).done());
        }
    }

    /** Why something is not accepted from this author, or null. */
    private String objection(Event event, Trust.Peer author) {
        if (author == null) {
            return "not-proved";
        }
        if (!mesh.may(author.identity().name(), "publish", event.head().channel())) {
            return "not-permitted";
        }
        try {
            mesh.trust.check(author);
            return null;
        } catch (CertificateException denied) {
            return "revoked";
        }
    }

    private static boolean isForGroup(List<ChannelSubscription> subscriptions) {
        return subscriptions.stream().anyMatch(one -> !one.options().group().isEmpty());
    }

    /** The subscriptions whose credit an event has taken: those that it names; if it names none, all that may want it. */
    private List<ChannelSubscription> charged(Event event) {
        boolean isForAll = event.targets().isEmpty() && event.head().mechanism() == Head.EVENT;
        return mesh.channels.subscriptions().stream().filter(one -> accounts.containsKey(one.number()))
                .filter(one -> isForAll
                        ? one.options().group().isEmpty() && ChannelSubscription.matches(one.pattern(), event.head().channel())
                        : event.targets().contains(one.number()))
                .toList();
    }

    private boolean isFor(Event event, ChannelSubscription subscription) {
        Head head = event.head();
        boolean isQuestion = head.mechanism() == Head.QUESTION;
        boolean isWanted = mesh.may(subscription.agent(), isQuestion ? "answer" : "subscribe", head.channel())
                && ChannelSubscription.matches(subscription.pattern(), head.channel());
        return isWanted && switch (head.mechanism()) {
            case Head.MESSAGE -> subscription.agent().equals(mesh.local(head.receiver()));
            case Head.QUESTION -> subscription.options().answers();
            case Head.EVENT -> !(head.qos().isPersistent && subscription.options().readsLogs())
                    && (!event.targets().isEmpty() || isUnfiltered(subscription));
            default -> false;
        };
    }

    /** A publisher whose agents' filters cost too much leaves them to this process, which evaluates none. */
    private boolean isUnfiltered(ChannelSubscription subscription) {
        if (!subscription.options().filter().isEmpty()) {
            passedBy(subscription.number(), 1, "the filters of this container cost their publisher too much");
        }
        return subscription.options().filter().isEmpty();
    }

    private String hand(Event event, ChannelSubscription subscription, Trust.Peer author, Unread unread) {
        Account account = accounts.get(subscription.number());
        Handover.Holding holding = change -> {
            account.held += change;
            if (change < 0 && accounts.get(subscription.number()) == account) {
                widen(subscription.number());
            }
        };
        Questions.Asker asker = event.head().mechanism() != Head.QUESTION ? null : new Asker(subscription.number(), event.head());
        String proved = mesh.whole(author.identity().name());
        return handover.hand(event, proved, subscription, unread, event.isKept() ? holding : null, asker);
    }

    private void decline(int subscription, long question) {
        exchange.tell(null, Exchange.NO_ANSWER, new Frame.Body().leb(question).leb(subscription).done());
    }

    /** An event whose publisher waits until all agents here have read it, or the member of a group has handled it. */
    private final class Unread implements Subscriptions.Outcome {
        private final long life = exchange.session();
        private final long number;
        private int left;
        private boolean isTaken = true;

        Unread(long number, int left) {
            this.number = number;
            this.left = left;
        }

        @Override
        public void settle(boolean hasRead) {
            left--;
            isTaken &= hasRead;
            if (left == 0 && life == exchange.session()) {
                exchange.tell(null, isTaken ? Exchange.TAKEN : Exchange.ABSENT, new Frame.Body().leb(number).done());
            }
        }
    }

    /** The other process, which asks. */
    private final class Asker implements Questions.Asker {
        private final long life = exchange.session();
        private final int subscription;
        private final Head question;

        Asker(int subscription, Head question) {
            this.subscription = subscription;
            this.question = question;
        }

        @Override
        public Head question() {
            return question;
        }

        @Override
        public boolean answer(String agent, Head head, byte[] body) {
            boolean isOpen = life == exchange.session();
            if (isOpen) {
                byte[] fields = head.write(new Frame.Body()).leb(subscription).bytes(body).done();
                exchange.tell(agent, Exchange.REPLY, fields);
            }
            return isOpen;
        }

        @Override
        public void decline() {
            if (life == exchange.session()) {
                Hearing.this.decline(subscription, question.question());
            }
        }
    }
}

package org.sealbus.jade;

import jade.lang.acl.ACLMessage;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.logging.Level;

/**
 * Questions to everyone on a channel: those of agents here, with the answers that come, and those that agents here have yet to
 * answer. The mesh guards it.
 */
final class Questions {
    private static final int MOST = 65_536;
    /** The most bytes of the answers to one question. Answers take no credit, and each agent may give one of the largest size. */
    private static final long MOST_BYTES = 64 << 20;

    /** The agent that asked one here. */
    interface Asker {
        Head question();

        /** Takes an answer. False: the answer comes too late. */
        boolean answer(String agent, Head head, byte[] body);

        /** There will be no answer. */
        void decline();
    }

    /** A question that an agent here has got. */
    private record Open(ChannelSubscription subscription, Asker asker) {}

    /** A subscription that was asked, of another process or of this one (null). */
    private record Asked(Exchange exchange, int subscription) {}

    /** A question of an agent here. */
    static final class Asking {
        private final String channel;
        private final int wanted;
        private final Map<Asked, String> awaited = new HashMap<>();
        private final TreeSet<String> missing = new TreeSet<>();
        private final List<ACLMessage> answers = new ArrayList<>();
        /** The bytes that these answers cost. */
        private long bytes;

        private Asking(String channel, int wanted) {
            this.channel = channel;
            this.wanted = wanted;
        }

        boolean isOver() {
            return awaited.isEmpty() || answers.size() >= wanted;
        }

        /** Whether there is room for an answer of this cost. There is always room for one answer. */
        boolean hasRoom(long cost) {
            return answers.isEmpty() || bytes + cost <= MOST_BYTES;
        }

        void add(ACLMessage answer, long cost) {
            answers.add(answer);
            bytes += cost;
        }

        List<ACLMessage> answers() {
            return List.copyOf(answers);
        }

        /** The agents that were asked and have not answered. */
        List<String> missing() {
            TreeSet<String> all = new TreeSet<>(missing);
            all.addAll(awaited.values());
            return List.copyOf(all);
        }
    }

    private final Mesh mesh;
    private final Map<Long, Asking> asking = new HashMap<>();
    private final Map<String, Open> open = new HashMap<>();
    private long numbers;
    private long opened;

    Questions(Mesh mesh) {
        this.mesh = mesh;
    }

    // ---- questions of agents here ----

    /** The number of a new question. */
    long next() {
        numbers++;
        return numbers;
    }

    /** Begins to wait for answers. The subscriptions that are asked are added after this. */
    Asking begin(Head question, int wanted) {
        if (asking.size() >= MOST) {
            throw new IllegalStateException("agents of this container have asked " + MOST + " questions: wait for answers");
        }
        Asking made = new Asking(question.channel(), wanted);
        asking.put(question.question(), made);
        return made;
    }

    void asked(Asking one, Exchange exchange, int subscription, String agent) {
        one.awaited.put(new Asked(exchange, subscription), agent);
    }

    /** No more answers are wanted. */
    void end(long question) {
        asking.remove(question);
    }

    /** A subscription of another process answers. {@code frame}: the number of the frame that brought the answer. */
    void answered(Exchange exchange, long frame, Trust.Peer author, Head head, int subscription, byte[] body) {
        if (author == null || !mesh.may(author.identity().name(), "answer", head.channel())) {
            exchange.log.warn("an answer on {0} is refused: the policy does not allow it, or nobody has proved it", head.channel());
            declined(exchange, subscription, head.question());
            return;
        }
        String agent = author.identity().name();
        if (isTooMuch(head, body)) {
            exchange.log.warn("an answer on {0} is refused: {1}", head.channel(), noRoom(agent));
            declined(exchange, subscription, head.question());
            if (frame > 0) {
                exchange.refuse(frame, Handover.OVER_LIMIT);
            }
            return;
        }
        answered(exchange, agent, head, subscription, body);
    }

    /** Whether somebody waits for an answer that finds no room. Its agent counts as one that does not answer. */
    private boolean isTooMuch(Head head, byte[] body) {
        Asking one = asking.get(head.question());
        return one != null && !one.isOver() && !one.hasRoom(Letter.cost(body.length));
    }

    private static String noRoom(String agent) {
        return "the answer of " + agent + " finds no room: answers of " + (MOST_BYTES >> 20)
                + " MiB wait for the asker, which is the limit for one question: answer with less";
    }

    private boolean answered(Exchange exchange, String agent, Head head, int subscription, byte[] body) {
        Asking one = asking.get(head.question());
        Asked key = new Asked(exchange, subscription);
        if (one == null || one.isOver() || !agent.equals(one.awaited.get(key)) || !one.channel.equals(head.channel())) {
            return false;
        }
        try {
            one.add(mesh.agents.open(mesh.whole(agent), body, Map.of(SealbusHelper.CHANNEL, head.channel())),
                    Letter.cost(body.length));
            one.awaited.remove(key);
        } catch (BitEfficient.Malformed | Mesh.Refused unfit) {
            Mesh.LOG.log(Level.WARNING, "an answer of " + agent + " is refused", unfit);
            declined(exchange, subscription, head.question());
        }
        mesh.notifyAll();
        return true;
    }

    /** A subscription will not answer. */
    void declined(Exchange exchange, int subscription, long question) {
        Asking one = asking.get(question);
        String agent = one == null ? null : one.awaited.remove(new Asked(exchange, subscription));
        if (agent != null) {
            one.missing.add(agent);
            mesh.notifyAll();
        }
    }

    /** A subscription has ended. */
    void silent(Exchange exchange, int subscription) {
        List.copyOf(asking.keySet()).forEach(question -> declined(exchange, subscription, question));
    }

    /** A process is lost. */
    void silent(Exchange exchange) {
        asking.forEach((question, one) -> List.copyOf(one.awaited.keySet()).stream()
                .filter(asked -> asked.exchange() == exchange)
                .forEach(asked -> declined(exchange, asked.subscription(), question)));
    }

    // ---- questions to agents here ----

    /** An agent here gets a question. Returns the question's id; null if agents here leave too many unanswered. */
    String open(ChannelSubscription subscription, Asker asker) {
        if (open.size() >= MOST) {
            // Where agents publish nothing, nobody looks for those that are over.
            tick();
        }
        if (open.size() >= MOST) {
            return null;
        }
        opened++;
        String id = String.valueOf(opened);
        open.put(id, new Open(subscription, asker));
        return id;
    }

    /** The one who asks an agent here, which the question counts as answered to from now on; null if it is over. */
    Asker take(String agent, String id) {
        Open one = open.get(id);
        if (one == null || !one.subscription().agent().equals(agent)) {
            return null;
        }
        open.remove(id);
        return one.asker();
    }

    /** A subscription of this process has ended. */
    void left(ChannelSubscription subscription) {
        silent(null, subscription.number());
        for (Map.Entry<String, Open> entry : List.copyOf(open.entrySet())) {
            if (entry.getValue().subscription() == subscription) {
                open.remove(entry.getKey());
                entry.getValue().asker().decline();
            }
        }
    }

    /** Time has passed: nobody waits for some answers any more. */
    void tick() {
        long now = System.currentTimeMillis();
        open.values().removeIf(one -> one.asker().question().isExpired(now));
    }

    /** An agent here asks another one here. */
    Asker near(int subscription, Head question) {
        return new Asker() {
            @Override
            public Head question() {
                return question;
            }

            @Override
            public boolean answer(String agent, Head head, byte[] body) {
                if (isTooMuch(head, body)) {
                    decline();
                    mesh.channels.failed(new Publication(agent, head, body, null), noRoom(agent));
                    return true;
                }
                return answered(null, agent, head, subscription, body);
            }

            @Override
            public void decline() {
                declined(null, subscription, question.question());
            }
        };
    }
}

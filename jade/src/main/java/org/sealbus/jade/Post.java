package org.sealbus.jade;

import jade.lang.acl.ACLMessage;
import java.io.IOException;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Messages that the platform keeps: this container's node keeps what agents here send, and hands over what waited for them. A
 * message is the agent's once the agent has read it; until then the node keeps it.
 */
final class Post implements AutoCloseable {
    /** The parameters of a message that was kept: its number in the agent's mailbox, and that it may have come before. */
    static final String NUMBER = "X-Sealbus-kept";
    static final String AGAIN = "X-Sealbus-may-be-again";

    private static final Logger LOG = Logger.getLogger("org.sealbus.jade");
    /** How long a node may take to keep a message, in nanoseconds. */
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(30);
    private static final long PAUSE = 250;
    private static final long LIFETIME = TimeUnit.DAYS.toMillis(7);
    private static final int MOST_REPORTED = 256;
    private static final String ARRIVED = "arrived";
    private static final String TAKEN = "taken";
    private static final String EXPIRED = "expired";
    private static final String LEFT = "left";

    /** The agents of this container. */
    interface Agents {
        /**
         * Gives an agent a letter, if the rules let its sender write to the agent. {@code sender} is the whole name that was
         * proved; null: the letter is of another platform. {@code isNotice}: it is of the platform itself, which asks nobody.
         */
        boolean deliverKept(String agent, String sender, boolean isNotice, byte[] message, Map<String, String> facts)
                throws BitEfficient.Malformed, Mesh.Refused;

        boolean isPresent(String agent);

        /** Checks that an agent may write to another one on behalf of these agents, all by their whole names. */
        void checkPermitted(String sender, String receiver, List<String> askers) throws Mesh.Refused;
    }

    private record Outcome(String agent, long number, Object what) {}

    /** A letter that its agent has not read, since the hand-over of this number. */
    private record Unread(long handOver) {
        /** The node recognises by the number a report that comes twice. */
        Object left() {
            return Map.of(LEFT, handOver);
        }
    }

    /** Nothing is reported after it. */
    private static final Outcome LAST = new Outcome("", 0, ARRIVED);
    /** How long closing waits until the node knows what agents have read, in seconds. */
    private static final long LAST_REPORTS = 5;

    private final Membership membership;
    private final Agents agents;
    private final long origin = System.currentTimeMillis() / 1000 << 32 | Integer.toUnsignedLong(new SecureRandom().nextInt());
    private final Map<String, Long> sequences = new HashMap<>();
    /** The outcomes of letters here, by agent and number; {@link Unread} while they are unread. */
    private final Map<String, Map<Long, Object>> letters = new HashMap<>();
    private final LinkedBlockingQueue<Outcome> reports = new LinkedBlockingQueue<>();
    private final CountDownLatch reported = new CountDownLatch(1);
    private volatile boolean isClosed;

    Post(Membership membership, Agents agents) {
        this.membership = membership;
        this.agents = agents;
        Door.start("sealbus-post", this::report);
    }

    // ---- out ----

    /** Has a message kept, which asks on behalf of these agents. One at a time, so that those to one receiver stay in order. */
    synchronized void send(String sender, String receiver, byte[] message, List<String> askers, SealbusHelper.Delivery delivery)
            throws SealbusHelper.NotKept {
        String platform = membership.trust().platform();
        if (!receiver.endsWith("@" + platform)) {
            throw new SealbusHelper.NotKept(receiver + " is not of platform " + platform
                    + ", which keeps messages for its own agents only");
        }
        long now = System.currentTimeMillis();
        String local = receiver.substring(0, receiver.length() - platform.length() - 1);
        try {
            agents.checkPermitted(sender + "@" + platform, receiver, askers);
        } catch (Mesh.Refused refused) {
            throw new SealbusHelper.NotKept(refused.getMessage());
        }
        Map<String, Object> letter = new HashMap<>();
        letter.put("origin", origin);
        letter.put("sequence", sequences.merge(local, 1L, Long::sum));
        letter.put("receiver", local);
        letter.put("provenance", Map.of("proof", "same-process", "identity", "spiffe://" + platform + "/agent/" + sender));
        letter.put("posted", now);
        letter.put("expiry", now + (delivery.expiry() == null ? LIFETIME : delivery.expiry().toMillis()));
        if (delivery.validFrom() != null) {
            letter.put("valid_from", now + delivery.validFrom().toMillis());
        }
        if (delivery.receipt() != SealbusHelper.Receipt.NONE) {
            letter.put("receipt", delivery.receipt() == SealbusHelper.Receipt.AGENT ? "agent" : "process");
        }
        letter.put("message", Base64.getEncoder().encodeToString(message));
        Object answer = post(letter, receiver);
        Object refused = Json.list(answer, "refused").get(0);
        if (refused != null) {
            throw new SealbusHelper.NotKept(receiver + ": " + Json.text(refused, "message"));
        }
    }

    private Object post(Map<String, Object> letter, String receiver) throws SealbusHelper.NotKept {
        try {
            return membership.askPatiently(Map.of("ask", "post", "letters", List.of(letter)), PATIENCE, () -> isClosed);
        } catch (IOException failed) {
            throw new SealbusHelper.NotKept(receiver + ": the node did not say that it keeps the message: " + failed.getMessage());
        }
    }

    // ---- in ----

    /** The node hands letters over. */
    void arrived(Object notice) {
        String agent = Json.text(notice, "agent");
        for (Object letter : Json.list(notice, "letters")) {
            long number = (Long) Json.member(letter, "number");
            reports.add(new Outcome(agent, number, take(agent, number, letter)));
        }
    }

    private Object take(String agent, long number, Object letter) {
        Unread unread = new Unread((Long) Json.member(letter, "hand_over"));
        if (!agents.isPresent(agent)) {
            return unread.left();
        }
        synchronized (letters) {
            Map<Long, Object> outcomes = letters.computeIfAbsent(agent, any -> new HashMap<>());
            Object known = outcomes.putIfAbsent(number, unread);
            if (known instanceof Unread) {
                // A node that was started again counts its hand-overs anew, and the last one counts.
                outcomes.put(number, unread);
                return ARRIVED;
            }
            if (known != null) {
                return known;
            }
        }
        Object outcome = ARRIVED;
        try {
            if ((Long) Json.member(letter, "expiry") <= System.currentTimeMillis()) {
                outcome = EXPIRED;
            } else {
                outcome = open(agent, number, letter);
            }
        } catch (Mesh.Refused refused) {
            LOG.log(Level.WARNING, "a message that was kept for {0} is refused: {1}", new Object[] {agent, refused.getMessage()});
            outcome = refused.reason.equals("forged-sender") ? EXPIRED : Map.of("refused", "not-permitted");
        } catch (BitEfficient.Malformed | IllegalArgumentException unfit) {
            LOG.log(Level.WARNING, "a message that was kept for " + agent + " is given up", unfit);
            outcome = EXPIRED;
        }
        settle(agent, number, outcome);
        return outcome.equals(LEFT) ? unread.left() : outcome;
    }

    private Object open(String agent, long number, Object letter) throws BitEfficient.Malformed, Mesh.Refused {
        Object waiting = Json.member(letter, "waiting");
        Object provenance = Json.member(waiting, "provenance");
        String platform = membership.trust().platform();
        String sender = switch (Json.text(provenance, "proof")) {
            case "same-process", "proved" -> {
                Identity identity = Identity.parse(Json.text(provenance, "identity"));
                if (membership.trust().isRevokedSince(identity, (Long) Json.member(letter, "posted"))) {
                    yield "";
                }
                yield identity.name() + "@" + platform;
            }
            case "platform" -> "ams@" + platform;
            case "foreign" -> null;
            default -> throw new Mesh.Refused("forged-sender", "a sender that has proved nothing");
        };
        if (sender != null && sender.isEmpty()) {
            return Map.of("refused", "revoked");
        }
        boolean isNotice = Json.text(provenance, "proof").equals("platform");
        Map<String, String> facts = new LinkedHashMap<>();
        facts.put(NUMBER, String.valueOf(number));
        if (Boolean.TRUE.equals(Json.member(letter, "again"))) {
            facts.put(AGAIN, "true");
        }
        byte[] message = Base64.getDecoder().decode(Json.text(waiting, "message"));
        return agents.deliverKept(agent, sender, isNotice, message, facts) ? ARRIVED : LEFT;
    }

    private void settle(String agent, long number, Object outcome) {
        synchronized (letters) {
            Map<Long, Object> known = letters.get(agent);
            if (known != null) {
                if (outcome.equals(LEFT)) {
                    known.remove(number);
                } else if (!outcome.equals(ARRIVED)) {
                    // An agent may have read it meanwhile.
                    known.computeIfPresent(number, (any, now) -> now instanceof Unread ? outcome : now);
                }
            }
        }
    }

    /** An agent has read a message. */
    void read(String agent, ACLMessage message) {
        String number = message.getUserDefinedParameter(NUMBER);
        if (number == null) {
            return;
        }
        long letter = Long.parseLong(number);
        synchronized (letters) {
            Map<Long, Object> known = letters.get(agent);
            if (known == null || !(known.get(letter) instanceof Unread)) {
                return;
            }
            known.put(letter, TAKEN);
        }
        reports.add(new Outcome(agent, letter, TAKEN));
    }

    /** An agent is gone. Its unread messages wait on the node. */
    void left(String agent) {
        Map<Long, Unread> unread = new HashMap<>();
        synchronized (letters) {
            Map<Long, Object> known = letters.getOrDefault(agent, new HashMap<>());
            known.forEach((number, outcome) -> {
                if (outcome instanceof Unread letter) {
                    unread.put(number, letter);
                }
            });
            unread.keySet().forEach(known::remove);
        }
        unread.forEach((number, letter) -> reports.add(new Outcome(agent, number, letter.left())));
    }

    // ---- reports ----

    private void report() {
        try {
            boolean isLast = false;
            while (!isLast) {
                List<Outcome> batch = new ArrayList<>(List.of(reports.take()));
                reports.drainTo(batch, MOST_REPORTED - 1);
                isLast = batch.remove(LAST);
                Map<String, List<Object>> byAgent = new LinkedHashMap<>();
                batch.forEach(outcome -> byAgent.computeIfAbsent(outcome.agent(), any -> new ArrayList<>())
                        .add(List.of(outcome.number(), outcome.what())));
                byAgent.forEach(this::report);
                batch.forEach(this::forget);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        reported.countDown();
    }

    private void report(String agent, List<Object> outcomes) {
        while (!isClosed) {
            try {
                membership.ask(Map.of("ask", "letters", "agent", agent, "outcomes", outcomes));
                return;
            } catch (IOException failed) {
                if (!Membership.mayPass(failed)) {
                    LOG.log(Level.WARNING, "the node did not take note of what became of kept messages", failed);
                    return;
                }
                Door.pause(PAUSE);
            }
        }
    }

    /** The node knows that a letter goes nowhere any more. */
    private void forget(Outcome outcome) {
        if (!outcome.what().equals(ARRIVED)) {
            synchronized (letters) {
                Map<Long, Object> known = letters.get(outcome.agent());
                if (known != null) {
                    known.remove(outcome.number());
                    if (known.isEmpty()) {
                        letters.remove(outcome.agent());
                    }
                }
            }
        }
    }

    @Override
    public void close() {
        reports.add(LAST);
        try {
            if (!reported.await(LAST_REPORTS, TimeUnit.SECONDS)) {
                LOG.warning("the node does not know yet what agents have read of the messages that it keeps: some may come again");
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        isClosed = true;
    }
}

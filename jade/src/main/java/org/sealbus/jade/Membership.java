package org.sealbus.jade;

import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.cert.CertificateException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * A container as a member of a Sealbus platform: attached to a node, with a certificate of its own that is renewed in time,
 * and with the deny lists in force.
 */
final class Membership implements AutoCloseable {
    private static final Logger LOG = Logger.getLogger("org.sealbus.jade");
    /** How long a node may be gone until its members give up, in nanoseconds. */
    private static final long GIVE_UP = TimeUnit.SECONDS.toNanos(60);
    private static final long REATTACH_PAUSE = 250;
    private static final int FIRST_ATTEMPTS = 3;
    private static final long SHORTEST_RETRY = 250;
    private static final long LONGEST_RETRY = 60_000;
    private static final Map<String, Object> ACTIVE = Map.of("event", "state", "state", "active");
    private static final Map<String, Object> ENDED = Map.of("event", "ended");
    /** The name of the process itself in {@link #held}; no agent has this name. */
    private static final String PROCESS = "";

    /** Hears of what changes. */
    interface Listener {
        /** Another deny list is in force. */
        void trustChanged();

        /** The membership is over for good. */
        void ended(String why);

        /** An agent of this process, or the process itself (null), has a new certificate. */
        default void renewed(String agent) {}

        /** An agent of this process beside the container was revoked. It has no certificate any more. */
        default void revoked(String agent, String why) {}

        /** The node says what may concern the way of messages: changed places, ended processes, other rules. */
        default void heard(String notice, Object body) {}
    }

    /** A certificate made for this process, and what it says. */
    record Held(Trust.Peer peer, Credential credential) {}

    private final Ticket ticket;
    private final Listener listener;
    private final ScheduledExecutorService worker =
            Executors.newSingleThreadScheduledExecutor(work -> Door.thread("sealbus-membership", work));
    private final Trust trust;
    private final Object welcome;
    volatile Attachment attachment;
    private final Map<String, Held> held = new ConcurrentHashMap<>();
    /** Guards what the platform is told of agents, so that it hears last what is so last. */
    private final Object reports = new Object();
    private volatile boolean over;
    /** The secret with which to attach again. Only the worker changes it. */
    private String reattach;

    private Membership(Ticket ticket, Listener listener) throws IOException, GeneralSecurityException {
        this.ticket = ticket;
        this.listener = listener;
        // The node's words wait until the container has joined.
        CountDownLatch joined = new CountDownLatch(1);
        worker.submit(() -> {
            joined.await();
            return null;
        });
        try {
            welcome = firstWelcome();
            Object platform = Json.member(welcome, "platform");
            if (!Json.text(platform, "name").equals(ticket.platform())) {
                throw new IOException("the node is of another platform");
            }
            List<byte[]> roots = new ArrayList<>();
            for (Object root : Json.list(platform, "roots")) {
                roots.add(blob(root));
            }
            // The ticket pins one root. The node, which showed it, says which others there are.
            trust = new Trust(ticket.platform(), Credential.certificates(roots));
            trust.obey(blob(Json.member(welcome, "deny_list")));
            certify(name());
        } catch (IOException | GeneralSecurityException | RuntimeException failed) {
            closeAttachment();
            worker.shutdownNow();
            throw failed;
        }
        joined.countDown();
        attachment.closed().thenAccept(this::lost);
    }

    /** Joins the platform with a ticket, which is good once. */
    static Membership join(Ticket ticket, Listener listener) throws IOException, GeneralSecurityException {
        return new Membership(ticket, listener);
    }

    String name() {
        return ticket.name();
    }

    Trust trust() {
        return trust;
    }

    /** The key and the certificates that the container shows now. */
    Credential credential() {
        return held.get(name()).credential();
    }

    /** The same of an agent that was {@linkplain #certify certified}; null of another one. */
    Credential credential(String agent) {
        Held of = held.get(agent);
        return of == null ? null : of.credential();
    }

    /** The identity of the process, which {@link #enlist} had certified, and its credential. */
    Held process() {
        return held.get(PROCESS);
    }

    /** The node's answer when the container joined. */
    Object welcome() {
        return welcome;
    }

    /** The agents that the ticket is for. The first one is the container itself. */
    List<String> agents() {
        return Json.list(welcome, "agents").stream().map(String.class::cast).toList();
    }

    /** Asks the node. */
    Object ask(Map<String, Object> request) throws IOException {
        return attachment.ask(request);
    }

    /** Asks the node, and again if it is away, for so many nanoseconds. The node recognises what it is given twice. */
    Object askPatiently(Map<String, Object> request, long patience, BooleanSupplier isOver) throws IOException {
        long end = System.nanoTime() + patience;
        while (true) {
            try {
                return ask(request);
            } catch (IOException failed) {
                if (!mayPass(failed) || isOver.getAsBoolean() || System.nanoTime() > end) {
                    throw failed;
                }
                Door.pause(REATTACH_PAUSE);
            }
        }
    }

    /** Has the process itself certified, for connections to other processes. */
    Held enlist() throws IOException, GeneralSecurityException {
        certify(PROCESS);
        return process();
    }

    /** Tells the platform that an agent runs. */
    void reportActive(String agent) {
        tell(agent);
    }

    /** Tells the platform that an agent has ended. Its certificate is renewed no more. */
    void reportEnded(String agent) {
        held.remove(agent);
        tell(agent);
    }

    /** Tells the platform whether an agent runs. The node may be away: it is told again until it hears. */
    private void tell(String agent) {
        synchronized (reports) {
            try {
                report(agent, held.containsKey(agent) ? ACTIVE : ENDED);
            } catch (IOException unheard) {
                LOG.log(Level.FINE, "the node did not hear what became of " + agent, unheard);
                if (mayPass(unheard)) {
                    later(() -> tell(agent), REATTACH_PAUSE);
                }
            }
        }
    }

    /** Whether asking the node again may help. */
    static boolean mayPass(IOException failed) {
        return !(failed instanceof Attachment.Refused refused) || refused.isPassing();
    }

    private void report(String agent, Map<String, Object> event) throws IOException {
        attachment.ask(Map.of("ask", "report", "agent", agent, "report", event));
    }

    /** Leaves the platform in order. */
    @Override
    public void close() {
        if (!over) {
            over = true;
            try {
                for (String agent : agents()) {
                    report(agent, ENDED);
                }
            } catch (IOException unheard) {
                LOG.log(Level.FINE, "the node did not hear that the container ends", unheard);
            }
        }
        worker.shutdownNow();
        attachment.close();
    }

    /** Attaches with the ticket. The first handshake of a JVM can take longer than a node waits for strangers. */
    private Object firstWelcome() throws IOException {
        for (int left = FIRST_ATTEMPTS; ; left--) {
            try {
                attachment = new Attachment(ticket, this::obey, work -> later(work, 0));
                return attach(ticket.secret());
            } catch (IOException failed) {
                if (failed instanceof Attachment.Refused || left == 1) {
                    throw failed;
                }
                LOG.log(Level.FINE, "the node is asked again", failed);
                closeAttachment();
            }
        }
    }

    private void closeAttachment() {
        if (attachment != null) {
            attachment.close();
        }
    }

    private Object attach(String secret) throws IOException {
        Object welcome = attachment.ask(Map.of("ask", "attach", "ticket", secret, "now", System.currentTimeMillis()));
        reattach = Json.text(welcome, "reattach");
        return welcome;
    }

    /**
     * Makes a new key for an agent of the ticket and has it certified, now and at half of the certificate's life.
     */
    void certify(String agent) throws IOException, GeneralSecurityException {
        boolean isProcess = agent.equals(PROCESS);
        KeyPair key = Credential.newKey();
        String request = Base64.getEncoder().encodeToString(Credential.signingRequest(key));
        Object answer = attachment.ask(Map.of(
                "ask", "certify",
                "subject", isProcess ? Map.of("kind", "process") : Map.of("kind", "agent", "name", agent),
                "request", request));
        List<byte[]> chain = new ArrayList<>();
        for (Object certificate : Json.list(answer, "chain")) {
            chain.add(blob(certificate));
        }
        Credential made = new Credential(key.getPrivate(), Credential.certificates(chain));
        Trust.Peer certified = trust.verify(made.chain());
        Identity identity = certified.identity();
        boolean isOurs = isProcess ? identity.kind().equals("process")
                : identity.kind().equals("agent") && identity.name().equals(agent);
        if (!isOurs || !made.chain().get(0).getPublicKey().equals(key.getPublic())) {
            throw new CertificateException("the platform sent a certificate of " + identity + " to " + named(agent));
        }
        held.put(agent, new Held(certified, made));
        long life = certified.notAfter() * 1000 - System.currentTimeMillis();
        double share = 0.45 + 0.1 * ThreadLocalRandom.current().nextDouble();
        later(() -> renew(agent, made, SHORTEST_RETRY), (long) (life * share));
    }

    private void renew(String agent, Credential old, long retry) {
        Held present = held.get(agent);
        if (present == null || present.credential() != old) {
            // The agent has ended, and perhaps begun again.
            return;
        }
        try {
            certify(agent);
            LOG.log(Level.FINE, "renewed the certificate of {0}", named(agent));
            listener.renewed(agent.equals(PROCESS) ? null : agent);
        } catch (IOException | GeneralSecurityException | RuntimeException failed) {
            LOG.log(Level.WARNING, "the certificate of " + named(agent) + " could not be renewed yet", failed);
            later(() -> renew(agent, old, Math.min(2 * retry, LONGEST_RETRY)), retry);
        }
    }

    private static String named(String agent) {
        return agent.equals(PROCESS) ? "the process" : agent;
    }

    /** Obeys a notice of the node. */
    private void obey(Object notice) {
        switch (Json.text(notice, "notice")) {
            case "deny-list" -> later(() -> obeyDenyList(Json.member(notice, "list")), 0);
            case "stop" -> end("the platform stops it: " + Json.member(notice, "reason"));
            // A container cannot be frozen, so it cannot move.
            case "freeze" -> later(this::refuseToFreeze, 0);
            default -> later(() -> listener.heard(Json.text(notice, "notice"), notice), 0);
        }
    }

    private void refuseToFreeze() {
        try {
            attachment.ask(Map.of("ask", "not-frozen", "reason", "a JADE container cannot be moved"));
        } catch (IOException failed) {
            LOG.log(Level.FINE, "the node did not hear that the container cannot be moved", failed);
        }
    }

    /** Only the worker calls it, so that lists are obeyed in order. */
    private void obeyDenyList(Object list) {
        try {
            try {
                trust.obey(blob(list));
            } catch (Trust.NeedsWholeList gap) {
                trust.obey(blob(Json.member(attachment.ask(Map.of("ask", "deny-list")), "list")));
            }
        } catch (IOException | GeneralSecurityException | RuntimeException failed) {
            LOG.log(Level.WARNING, "a deny list was not obeyed", failed);
            return;
        }
        for (Held own : new Held[] {held.get(name()), process()}) {
            if (own != null && trust.isRevoked(own.peer())) {
                end(Trust.revoked(own.peer()));
                return;
            }
        }
        held.forEach((agent, of) -> {
            if (trust.isRevoked(of.peer())) {
                held.remove(agent);
                listener.revoked(agent, Trust.revoked(of.peer()));
            } else if (trust.hasLostItsIssuer(of.peer())) {
                // Nobody believes the certificate any more, and another CA issues the next one.
                later(() -> renew(agent, of.credential(), SHORTEST_RETRY), 0);
            }
        });
        listener.trustChanged();
    }

    private void lost(String why) {
        if (!over) {
            LOG.warning(why);
            long since = System.nanoTime();
            later(() -> attachAgain(since), REATTACH_PAUSE);
        }
    }

    private void attachAgain(long since) {
        long from = since;
        try {
            attachment = new Attachment(ticket, this::obey, work -> later(work, 0));
            Object welcome = attach(reattach);
            attachment.closed().thenAccept(this::lost);
            LOG.info("attached to the node again");
            obeyDenyList(Json.member(welcome, "deny_list"));
            // A node that was started anew does not know which agents live here.
            held.keySet().stream().filter(agent -> !agent.equals(PROCESS)).forEach(this::tell);
            listener.heard("attached", welcome);
            return;
        } catch (Attachment.Refused refused) {
            attachment.close();
            if (!refused.isPassing()) {
                end("the node does not take it back: " + refused.getMessage());
                return;
            }
            // The node is there and answers late.
            from = System.nanoTime();
        } catch (IOException | RuntimeException failed) {
            attachment.close();
            if (System.nanoTime() - since > GIVE_UP) {
                end("the node is gone: " + failed.getMessage());
                return;
            }
        }
        long next = from;
        later(() -> attachAgain(next), REATTACH_PAUSE);
    }

    private void end(String why) {
        if (!over) {
            over = true;
            listener.ended(why);
        }
    }

    private void later(Runnable work, long millis) {
        try {
            worker.schedule(work, millis, TimeUnit.MILLISECONDS);
        } catch (RejectedExecutionException closing) {
            LOG.log(Level.FINE, "the container is leaving", closing);
        }
    }

    private static byte[] blob(Object base64) {
        if (base64 instanceof String text) {
            return Base64.getDecoder().decode(text);
        }
        throw new IllegalArgumentException("no bytes");
    }
}

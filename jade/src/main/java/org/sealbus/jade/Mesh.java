package org.sealbus.jade;

import jade.lang.acl.ACLMessage;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.security.cert.CertificateException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * The messages between this process's agents and other processes of the platform: the protocol {@code sealbus-mesh/1} at the
 * level {@code auth}. Each agent here proves itself on each connection with a key of its own.
 *
 * <p>One lock, this object, guards the mesh with all its links, routes and channels. Nothing waits for a network while it holds the
 * lock.
 */
final class Mesh implements AutoCloseable {
    static final Logger LOG = Logger.getLogger("org.sealbus.jade");
    static final String PROTOCOL = "sealbus-mesh/1/auth";
    /** The largest message taken, in bytes. */
    static final int LARGEST_MESSAGE = 16 << 20;
    static final SecureRandom RANDOM = new SecureRandom();
    /** How long an agent that leaves waits for its messages to arrive, in nanoseconds, and the time between two looks. */
    private static final long LAST_MESSAGES = TimeUnit.SECONDS.toNanos(5);
    private static final long GLANCE = 20;
    /** The time between two looks at the connections, in milliseconds. */
    private static final long LOOK = 5_000;

    /** The agents of this process. It is called under the mesh's lock, and calls nothing of the mesh. */
    interface Agents {
        /**
         * Gives a message to an agent, if the rules let its sender write to the agent. {@code sender} is the whole name that was
         * proved; false: the agent is not here. {@code unread} runs, perhaps without the lock, if the agent ends and has not read
         * it.
         */
        boolean deliver(String agent, String sender, byte[] message, Runnable unread) throws BitEfficient.Malformed, Refused;

        /** Gives an agent what came by a channel, with facts about it. The rules for messages say nothing of it. */
        boolean deliver(String agent, String sender, byte[] message, Map<String, String> facts)
                throws BitEfficient.Malformed, Refused;

        /** A message of an agent that has proved itself, which goes to nobody's queue. */
        ACLMessage open(String sender, byte[] message, Map<String, String> facts) throws BitEfficient.Malformed, Refused;

        /** Whether the agent keeps up with its messages. */
        boolean hasRoom(String agent);

        /** A message was not delivered, or may not have been. */
        void undelivered(Letter letter, String why);

        /** The node, which was away, has taken this process back. */
        void attachedAgain();
    }

    /** A message is not accepted: it does not name the agent that sent it, or the rules do not allow it. */
    static final class Refused extends Exception {
        /** One of {@link MeshLink#REFUSALS}. */
        final String reason;

        Refused(String reason, String why) {
            super(why);
            this.reason = reason;
        }
    }

    final Membership membership;
    final Trust trust;
    final Agents agents;
    final Identity own;
    final byte[] incarnation = token();
    final String address;
    final MeshPort port;
    final Routes routes;
    final Channels channels;
    /** The largest message that agents of the platform send, in bytes. */
    final int largest;
    private final Map<Identity, MeshLink> links = new HashMap<>();
    /** Agents here that may get messages, by their local names. */
    private final Set<String> present = new HashSet<>();
    private final ScheduledExecutorService worker = workers("sealbus-mesh");
    /** A node may answer late. Questions to it hold up no other work. */
    private final ScheduledExecutorService asker = workers("sealbus-mesh-ask");
    private volatile Permission permission;
    private volatile boolean isClosed;

    /** Makes this process one of those that other processes reach. */
    Mesh(Membership membership, Agents agents) throws IOException, GeneralSecurityException {
        this.membership = membership;
        this.trust = membership.trust();
        this.agents = agents;
        Object welcome = membership.welcome();
        String obstacle = obstacle(membership);
        if (obstacle != null) {
            throw new IOException(obstacle);
        }
        largest = Json.member(Json.member(welcome, "platform"), "max_message") instanceof Long most
                ? (int) Math.min(most, LARGEST_MESSAGE) : LARGEST_MESSAGE;
        own = membership.enlist().peer().identity();
        permission = new Permission(trust.platform(), own.name(), Json.member(welcome, "rules"));
        routes = new Routes(this);
        channels = new Channels(this);
        port = new MeshPort(this, Json.text(welcome, "address"));
        address = port.address();
        port.open();
        channels.processesAre(Json.member(welcome, "processes"));
        announce();
        // So they can begin to use them while no Master can be reached.
        if (Boolean.TRUE.equals(Json.member(welcome, "all_use_channels"))) {
            channels.use();
        }
        look();
    }

    /** Why agents here cannot be agents of the Sealbus platform; null if they can. */
    static String obstacle(Membership membership) {
        Object platform = Json.member(membership.welcome(), "platform");
        if (!Json.text(platform, "level").equals("auth") || !Json.text(Json.member(platform, "transport"), "kind").equals("mesh")) {
            return "agents of JADE are agents of Sealbus only on platforms at level auth with the mesh";
        }
        return Binding.isPossible() ? null
                : "agents of JADE are agents of Sealbus only from Java 25 on; this is Java " + Runtime.version().feature();
    }

    private void announce() throws IOException {
        membership.ask(Map.of("ask", "announce", "address", address));
    }

    static byte[] token() {
        byte[] token = new byte[16];
        RANDOM.nextBytes(token);
        return token;
    }

    // ---- agents here ----

    /** An agent here has its certificate, and gets messages from now on. */
    synchronized void arrived(String agent) {
        present.add(agent);
    }

    /** An agent here is gone. */
    synchronized void left(String agent) {
        present.remove(agent);
        channels.left(agent);
        links.values().forEach(link -> link.inward().left(agent));
    }

    synchronized boolean isPresent(String agent) {
        return present.contains(agent);
    }

    /** Waits until other processes have taken what an agent here has sent, for a while. */
    synchronized void settle(String agent) {
        long end = System.nanoTime() + LAST_MESSAGES;
        while (!isClosed) {
            long left = routes.letters(agent) + links.values().stream().mapToLong(link -> link.letters(agent)).sum();
            if (left == 0) {
                return;
            }
            if (System.nanoTime() > end) {
                LOG.log(Level.WARNING, "{0} has left, and {1} of its messages may not arrive", new Object[] {agent, left});
                return;
            }
            try {
                wait(GLANCE);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }

    /** The local name of an agent of this platform; null of another one. */
    String local(String name) {
        String end = "@" + trust.platform();
        return name.endsWith(end) ? name.substring(0, name.length() - end.length()) : null;
    }

    /** The whole name of an agent of this platform. */
    String whole(String agent) {
        return agent + "@" + trust.platform();
    }

    // ---- rules ----

    /** Whether an agent may write to another one on behalf of these agents, all by their whole names. Asked without the lock, too. */
    boolean permits(String sender, String receiver, List<String> askers) {
        return permission.permits(sender, receiver, askers);
    }

    /** Whether an agent has a right on a channel: {@code publish}, {@code subscribe} or {@code answer}. */
    boolean may(String agent, String right, String channel) {
        return permission.may(agent, right, channel);
    }

    /** The quality of service of a channel, as the manifest declares it. Asked without the lock, too. */
    Qos qos(String channel) {
        return permission.qos(channel);
    }

    // ---- links ----

    /** The link to a process at this address. */
    MeshLink link(Identity process, String address) {
        MeshLink link = links.computeIfAbsent(process, peer -> new MeshLink(this, peer));
        link.address = address;
        if (channels.isInterested()) {
            link.exchange().want();
        }
        return link;
    }

    /** The link to a process; null if there is none yet. */
    MeshLink link(Identity process) {
        return links.get(process);
    }

    Collection<MeshLink> links() {
        return links.values();
    }

    /** Looks at the connections from time to time. */
    private void look() {
        laterGuarded(() -> {
            if (!isClosed) {
                look();
                long now = System.nanoTime();
                links.values().forEach(link -> link.look(now));
            }
        }, LOOK);
    }

    /** Gives up what a link held. */
    void lose(MeshLink link, String why) {
        link.lose(why);
        routes.lost(link);
    }

    // ---- news ----

    /** Another deny list is in force. */
    synchronized void trustChanged() {
        for (MeshLink link : new ArrayList<>(links.values())) {
            try {
                link.check();
            } catch (CertificateException over) {
                LOG.log(Level.WARNING, "a connection ends: {0}", over.getMessage());
                lose(link, over.getMessage());
            }
        }
    }

    /** A new certificate of an agent, or of the process itself (null), is to be shown. */
    synchronized void renewed(String agent) {
        for (MeshLink link : links.values()) {
            if (agent == null) {
                // The next connection shows it. The session goes on there.
                link.disconnected();
                port.need(link, 0);
            } else {
                link.prove(agent);
            }
        }
    }

    /** News of the node. */
    void heard(String notice, Object body) {
        try {
            switch (notice) {
                case "directory-changed" -> routes.moved(Json.list(body, "changes"));
                case "processes-are" -> channels.processesAre(Json.member(body, "processes"));
                case "processes-joined" -> channels.joined(Json.list(body, "processes"));
                case "processes-ended" -> ended(Json.list(body, "processes"));
                case "rules" -> obey(Json.member(body, "rules"));
                case "attached" -> {
                    announce();
                    obey(Json.member(body, "rules"));
                    channels.processesAre(Json.member(body, "processes"));
                    agents.attachedAgain();
                }
                default -> LOG.log(Level.FINE, "news that does not concern the mesh: {0}", notice);
            }
        } catch (IOException | IllegalArgumentException failed) {
            LOG.log(Level.WARNING, "the node was not understood, or did not hear this container", failed);
        }
    }

    private synchronized void obey(Object rules) {
        permission = new Permission(trust.platform(), own.name(), rules);
    }

    private synchronized void ended(List<?> gone) {
        gone.forEach(process -> ended(processOf(process)));
    }

    /** Another process has ended. */
    void ended(Identity process) {
        gone(process, "its process has ended");
    }

    /** Another process is gone for good. */
    void gone(Identity process, String why) {
        channels.ended(process);
        MeshLink link = links.remove(process);
        if (link != null) {
            lose(link, why);
        }
    }

    /** The process that a place, or a contact, names. */
    Identity processOf(Object place) {
        return Identity.parse("spiffe://" + trust.platform() + "/node/" + Json.text(place, "node") + "/process/"
                + Json.text(place, "process"));
    }

    // ---- the rest ----

    boolean isClosed() {
        return isClosed;
    }

    private static ScheduledExecutorService workers(String name) {
        return Executors.newScheduledThreadPool(4, work -> Door.thread(name, work));
    }

    void later(Runnable work, long millis) {
        later(worker, work, millis);
    }

    /** The same of work that asks the node. */
    void askLater(Runnable work, long millis) {
        later(asker, work, millis);
    }

    private static void later(ScheduledExecutorService workers, Runnable work, long millis) {
        try {
            workers.schedule(() -> {
                try {
                    work.run();
                } catch (RuntimeException bug) {
                    LOG.log(Level.SEVERE, "the mesh failed", bug);
                }
            }, millis, TimeUnit.MILLISECONDS);
        } catch (RejectedExecutionException closing) {
            LOG.log(Level.FINE, "the container is leaving", closing);
        }
    }

    /** The same, under the lock. */
    void laterGuarded(Runnable work, long millis) {
        later(() -> {
            synchronized (this) {
                work.run();
            }
        }, millis);
    }

    @Override
    public void close() {
        port.close();
        synchronized (this) {
            isClosed = true;
            links.values().forEach(MeshLink::shutDown);
            notifyAll();
        }
        worker.shutdown();
        asker.shutdown();
    }
}

package org.sealbus.jade;

import jade.core.Profile;
import jade.core.ProfileException;
import jade.core.Specifier;
import jade.imtp.leap.ICP;
import jade.imtp.leap.ICPException;
import jade.imtp.leap.JICP.JICPProtocol;
import jade.imtp.leap.TransportProtocol;
import jade.mtp.TransportAddress;
import jade.util.leap.List;
import java.io.EOFException;
import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.cert.CertificateException;
import java.util.ArrayDeque;
import java.util.Collections;
import java.util.Deque;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * JADE's containers on Sealbus: everything that they tell each other goes over TLS 1.3, and both ends show certificates of a
 * Sealbus platform. {@code -icps org.sealbus.jade.SealbusICP} switches it on.
 *
 * <p>A container joins with a one-time ticket ({@code sealbus ticket jade-1}), and is that agent of the Sealbus platform from
 * then on. It makes its own key, renews its certificate at half of its life, and obeys the platform's deny lists as they
 * change: {@code sealbus ca revoke jade-1} ends its connections.
 */
public final class SealbusICP implements ICP {
    /** The ticket. Without this option of JADE, it is the environment variable {@code SEALBUS_TICKET}. */
    public static final String TICKET = "sealbus_ticket";
    /** The agents that may be containers: names separated by commas, {@code *} for any end; {@code jade-*} by default. */
    public static final String CONTAINERS = "sealbus_containers";

    private static final Logger LOG = Logger.getLogger("org.sealbus.jade");
    private static final String ALL_CONTAINERS = "jade-*";
    /** Most connections to one container that wait for the next command. */
    private static final int MOST_IDLE = 16;
    /** After this long without a command a connection is not used again: the other end may be gone. */
    private static final long IDLE = TimeUnit.SECONDS.toNanos(5);
    /**
     * How long a container may take to answer, in seconds. It may have to ask its node and other containers first. JADE sets no
     * limit by itself.
     */
    private static final long ANSWER = 120;
    /** The containers of this JVM, by JADE's profiles of them. */
    private static final Map<Profile, SealbusICP> JOINED = Collections.synchronizedMap(new WeakHashMap<>());

    private final Set<Link> links = ConcurrentHashMap.newKeySet();
    private final Map<String, Deque<Link>> idle = new ConcurrentHashMap<>();
    private Membership membership;
    private volatile Mesh mesh;
    private volatile SealbusService service;
    private final Object hearing = new Object();
    /** News for the service that came before it was there; null once it is there, and in a container without one. */
    private Deque<Runnable> early = new ArrayDeque<>();
    private Containers containers;
    private ServerSocket server;
    private volatile String ended;

    /** Made by JADE, as named in {@code -icps}. */
    public SealbusICP() {}

    @Override
    public TransportAddress activate(Listener listener, String peerId, Profile profile) throws ICPException {
        String host = profile.getParameter(Profile.LOCAL_HOST, Profile.getDefaultNetworkName());
        int port = Integer.parseInt(profile.getParameter(Profile.LOCAL_PORT, "0"));
        String text = profile.getParameter(TICKET, System.getenv("SEALBUS_TICKET"));
        if (text == null) {
            throw new ICPException("a container needs a ticket: set SEALBUS_TICKET to what `sealbus ticket jade-1` prints");
        }
        try {
            Ticket ticket = Ticket.parse(text);
            server = listen(InetAddress.getByName(host), port, profile.isMain());
            membership = Membership.join(ticket, new Events());
            containers = new Containers(membership.trust(), profile.getParameter(CONTAINERS, ALL_CONTAINERS));
            if (!containers.includes(ticket.name())) {
                throw new IOException("the ticket is for " + ticket.name() + ", which -" + CONTAINERS + " does not name");
            }
            new Door(server, "sealbus-accept", (socket, known) -> serve(socket, known, listener));
            membership.reportActive(membership.name());
            JOINED.put(profile, this);
            String obstacle = Mesh.obstacle(membership);
            if (membership.agents().size() > 1 || obstacle == null && profile.isMain()) {
                addService(profile);
            } else {
                carries(null, null);
                if (profile.isMain()) {
                    LOG.log(Level.INFO, "the DF of JADE and that of Sealbus stay apart: {0}", obstacle);
                }
            }
        } catch (IOException | GeneralSecurityException | ProfileException | RuntimeException failed) {
            shut();
            throw new ICPException("this container cannot join Sealbus: " + failed.getMessage(), failed);
        }
        LOG.log(Level.INFO, "this container is {0}@{1}", new Object[] {membership.name(), membership.trust().platform()});
        return JICPProtocol.getInstance().buildAddress(host, String.valueOf(server.getLocalPort()), null, null);
    }

    /** The agents that the ticket names are agents of the Sealbus platform too. One, of the container's name, tends the DFs. */
    private void addService(Profile profile) throws ProfileException {
        Specifier service = new Specifier();
        service.setClassName(SealbusService.class.getName());
        // The container must not run without it.
        service.setArgs(new Object[] {"true"});
        List services = profile.getSpecifiers(Profile.SERVICES);
        services.add(service);
        profile.setSpecifiers(Profile.SERVICES, services);
        Specifier directory = new Specifier();
        directory.setName(membership.name());
        directory.setClassName(Directory.class.getName());
        List agents = profile.getSpecifiers(Profile.AGENTS);
        agents.add(directory);
        profile.setSpecifiers(Profile.AGENTS, agents);
    }

    /** The container with this profile; null if it is not on Sealbus. */
    static SealbusICP of(Profile profile) {
        return JOINED.get(profile);
    }

    Membership membership() {
        return membership;
    }

    /** The service and its mesh, if this container has them, hear the news of the node: first what came before they were there. */
    void carries(Mesh made, SealbusService served) {
        synchronized (hearing) {
            service = served;
            mesh = made;
            if (service != null) {
                early.forEach(Runnable::run);
            }
            early = null;
        }
    }

    /** Tells the service and its mesh, as soon as they are there. */
    void tell(Runnable news) {
        synchronized (hearing) {
            if (early != null) {
                early.add(news);
                return;
            }
        }
        if (service != null) {
            news.run();
        }
    }

    /** JADE gives every container the same port. If it is taken, a container that is not the main one listens elsewhere. */
    private static ServerSocket listen(InetAddress host, int port, boolean isMain) throws IOException {
        try {
            return new ServerSocket(port, 0, host);
        } catch (BindException taken) {
            if (isMain) {
                throw new IOException("the port " + port + " on " + host.getHostAddress() + " is in use", taken);
            }
            return new ServerSocket(0, 0, host);
        }
    }

    @Override
    public void deactivate() throws ICPException {
        shut();
    }

    @Override
    public byte[] deliverCommand(TransportAddress address, byte[] command, boolean requireFreshConnection)
            throws ICPException {
        Link link = null;
        try {
            link = requireFreshConnection ? null : takeIdle(key(address));
            if (link == null) {
                link = connect(address);
            }
            // JADE watches a container by a question over a fresh connection. The answer comes when the container ends.
            byte[] answer = link.call(command, requireFreshConnection ? 0 : ANSWER);
            giveBack(key(address), link);
            return answer;
        } catch (IOException | RuntimeException failed) {
            if (link != null) {
                forget(link);
            }
            String why = ended == null ? failed.getMessage() : ended;
            throw new ICPException("no answer from the container at " + key(address) + ": " + why, failed);
        }
    }

    @Override
    public TransportProtocol getProtocol() {
        return JICPProtocol.getInstance();
    }

    private static String key(TransportAddress address) {
        return address.getHost() + ":" + address.getPort();
    }

    private Link connect(TransportAddress address) throws IOException {
        Socket socket = new Socket();
        try {
            Tls.dial(socket, key(address));
            socket.setKeepAlive(true);
            Link link = Link.open(socket, membership.credential(), containers);
            keep(link);
            link.awaitLetIn();
            return link;
        } catch (IOException | RuntimeException failed) {
            socket.close();
            throw failed;
        }
    }

    private Link takeIdle(String key) {
        Deque<Link> waiting = idle.getOrDefault(key, new ConcurrentLinkedDeque<>());
        while (true) {
            Link link = waiting.pollFirst();
            if (link == null || isFresh(link)) {
                return link;
            }
            forget(link);
        }
    }

    private void giveBack(String key, Link link) {
        idle.compute(key, (any, present) -> {
            Deque<Link> waiting = present == null ? new ConcurrentLinkedDeque<>() : present;
            if (waiting.size() < MOST_IDLE) {
                waiting.addFirst(link);
            } else {
                forget(link);
            }
            return waiting;
        });
        idle.keySet().forEach(other -> idle.computeIfPresent(other, (any, waiting) -> forgetOld(waiting) ? null : waiting));
    }

    /** Ends connections that are not used again: their containers may be gone for good. Returns whether none is left. */
    private boolean forgetOld(Deque<Link> waiting) {
        // The one that was used last is the first.
        for (Link last = waiting.peekLast(); last != null && isOld(last); last = waiting.peekLast()) {
            if (waiting.removeLastOccurrence(last)) {
                forget(last);
            }
        }
        return waiting.isEmpty();
    }

    private static boolean isOld(Link link) {
        return System.nanoTime() - link.used() >= IDLE;
    }

    /** Whether a connection may carry another command: both ends would show the same certificates again. */
    private boolean isFresh(Link link) {
        try {
            containers.check(link.peer());
            return !isOld(link) && link.credential() == membership.credential();
        } catch (CertificateException over) {
            return false;
        }
    }

    private void serve(Socket socket, Runnable known, Listener listener) {
        Link link = null;
        try {
            link = Link.accept(socket, membership.credential(), containers);
            keep(link);
            link.letIn();
            known.run();
            link.serve(listener, containers);
        } catch (EOFException left) {
            LOG.log(Level.FINE, "a container left", left);
        } catch (IOException | CertificateException | RuntimeException failed) {
            String from = link == null ? String.valueOf(socket.getRemoteSocketAddress()) : link.peer().identity().toString();
            LOG.log(Level.WARNING, "the connection of {0} ended: {1}", new Object[] {from, failed.getMessage()});
        } finally {
            forget(link);
        }
    }

    /** From now on a deny list ends the connection. One that came during the handshake ends it too. */
    private void keep(Link link) throws IOException {
        links.add(link);
        try {
            containers.check(link.peer());
        } catch (CertificateException denied) {
            forget(link);
            throw new IOException(denied.getMessage(), denied);
        }
        if (ended != null) {
            forget(link);
            throw new IOException(ended);
        }
    }

    private void forget(Link link) {
        if (link != null) {
            links.remove(link);
            link.close();
        }
    }

    private void shut() {
        if (ended == null) {
            ended = "this container has ended";
        }
        if (server != null) {
            Door.shut(server);
        }
        links.forEach(this::forget);
        if (mesh != null) {
            mesh.close();
        }
        if (membership != null) {
            membership.close();
        }
    }

    private final class Events implements Membership.Listener {
        @Override
        public void trustChanged() {
            for (Link link : links) {
                try {
                    containers.check(link.peer());
                } catch (CertificateException over) {
                    LOG.log(Level.WARNING, "a connection ends: {0}", over.getMessage());
                    forget(link);
                }
            }
            tell(() -> mesh.trustChanged());
        }

        @Override
        public void renewed(String agent) {
            tell(() -> mesh.renewed(agent));
        }

        @Override
        public void revoked(String agent, String why) {
            LOG.log(Level.WARNING, "{0} has no name on Sealbus any more: {1}", new Object[] {agent, why});
            tell(() -> service.revoked(agent));
            membership.reportEnded(agent);
        }

        @Override
        public void heard(String notice, Object body) {
            tell(() -> {
                if (notice.equals("letters")) {
                    service.post().arrived(body);
                } else {
                    mesh.heard(notice, body);
                }
            });
        }

        @Override
        public void ended(String why) {
            ended = why;
            LOG.log(Level.SEVERE, "this container leaves: {0}", why);
            shut();
            // JADE's own end waits for threads that may be the ones that wait here.
            Door.start("sealbus-leave", () -> jade.core.Runtime.instance().shutDown());
        }
    }
}

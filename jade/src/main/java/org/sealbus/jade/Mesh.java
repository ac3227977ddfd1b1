package org.sealbus.jade;

import jade.lang.acl.ACLMessage;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import javax.net.ssl.SSLSocket;

/**
 * The messages between this process's agents and other processes of the platform: the protocol {@code sealbus-mesh/1} at the
 * level {@code auth}. Each agent here proves itself on each connection with a key of its own.
 *
 * <p>One lock, this object, guards the mesh with all its links and routes. Nothing waits for a network while it holds the lock.
 */
final class Mesh implements AutoCloseable {
    static final Logger LOG = Logger.getLogger("org.sealbus.jade");
    static final String PROTOCOL = "sealbus-mesh/1/auth";
    /** The largest message taken, in bytes. */
    static final int LARGEST_MESSAGE = 16 << 20;
    private static final int CONNECTING = 10_000;
    /** Bytes that wait for one receiver, before its senders wait. */
    private static final long MOST_QUEUED = 1 << 20;
    /** How long a sender waits for room, and a message for a receiver that moves or cannot be found, in nanoseconds. */
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(30);
    /** How long a process may not be reached before its messages come back, in nanoseconds. */
    private static final long GIVE_UP = TimeUnit.SECONDS.toNanos(60);
    private static final long PAUSE = 200;
    /** The pause until the platform is told again that agents here use channels, in milliseconds. */
    private static final long REGISTER_AGAIN = 500;
    /** The time between two looks at the processes that hear what agents here publish, in milliseconds. */
    private static final long TICK = 200;
    /** Ticks between two looks at groups and questions. */
    private static final int CARE = 5;
    private static final SecureRandom RANDOM = new SecureRandom();

    /** The agents of this process. It is called under the mesh's lock, and calls nothing of the mesh. */
    interface Agents {
        /**
         * Gives a message to an agent, if the rules let its sender write to the agent. {@code sender} is the whole name that was
         * proved; false: the agent is not here.
         */
        boolean deliver(String agent, String sender, byte[] message) throws BitEfficient.Malformed, Refused;

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
    private final Door door;
    private final Map<Identity, MeshLink> links = new HashMap<>();
    private final Map<String, Route> routes = new HashMap<>();
    /** Agents here that may get messages, by their local names. */
    private final Set<String> present = new HashSet<>();
    private final Subscriptions subscriptions = new Subscriptions();
    private final ScheduledExecutorService worker = Executors.newScheduledThreadPool(4, work -> {
        Thread thread = new Thread(work, "sealbus-mesh");
        thread.setDaemon(true);
        return thread;
    });
    private final Groups groups = new Groups(this);
    private final Questions questions = new Questions(this);
    private final Handover handover = new Handover(this);
    private final ChannelLogs logs;
    private final Publisher publisher;
    /** The processes whose agents use channels, with their addresses. */
    private final Map<Identity, String> processes = new HashMap<>();
    /** Agents here publish on channels. */
    private boolean isInterested;
    /** Agents here use channels: the platform is told so, or knows. */
    private boolean usesChannels;
    /** The platform has told of the others. */
    private boolean isAcquainted;
    /** The others have heard of this process. */
    private boolean isListed;
    private long ticks;
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
        own = membership.enlist().peer().identity();
        permission = new Permission(trust.platform(), own.name(), Json.member(welcome, "rules"));
        ServerSocket server = new ServerSocket(0, 0, InetAddress.getByName(Json.text(welcome, "address")));
        String host = server.getInetAddress().getHostAddress();
        address = (host.contains(":") ? "[" + host + "]" : host) + ":" + server.getLocalPort();
        door = new Door(server, "sealbus-mesh-accept", this::serve);
        logs = new ChannelLogs(membership, () -> isClosed);
        publisher = new Publisher(this, logs);
        processesAre(Json.member(welcome, "processes"));
        announce();
        // So they can begin to use them while no Master can be reached.
        if (Boolean.TRUE.equals(Json.member(welcome, "all_use_channels"))) {
            useChannels();
        }
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

    /** An agent here has its certificate, and gets messages from now on. */
    synchronized void arrived(String agent) {
        present.add(agent);
    }

    /** An agent here is gone. */
    synchronized void left(String agent) {
        present.remove(agent);
        List<ChannelSubscription> its = subscriptions.left(agent);
        its.forEach(this::withdraw);
        links.values().forEach(link -> link.left(agent));
    }

    // ---- channels ----

    /** Subscribes an agent here. The processes that publish are told, and those that will. */
    synchronized ChannelSubscription subscribe(String agent, String pattern, SubscriptionOptions options) {
        if (!options.durable().isEmpty() && subscriptions.all().stream()
                .anyMatch(one -> one.agent().equals(agent) && one.options().durable().equals(options.durable()))) {
            throw new IllegalStateException(agent + " has a subscription with the durable name " + options.durable()
                    + " already: close it, or take another name");
        }
        useChannels();
        ChannelSubscription made = subscriptions.add(number -> new ChannelSubscription(this, number, agent, pattern, options));
        exchanges().forEach(exchange -> exchange.hearing().announce(made));
        groups.joined(made);
        if (options.readsLogs()) {
            new LogFeed(this, logs, made).start();
        }
        return made;
    }

    synchronized void unsubscribe(ChannelSubscription subscription) {
        if (subscriptions.remove(subscription)) {
            withdraw(subscription);
            subscriptions.closed(subscription);
        }
    }

    private void withdraw(ChannelSubscription subscription) {
        groups.left(subscription);
        questions.left(subscription);
        exchanges().forEach(exchange -> exchange.hearing().withdraw(subscription));
    }

    List<Exchange> exchanges() {
        return links.values().stream().map(MeshLink::exchange).toList();
    }

    /** The conversations with the processes whose announcements publishers wait for. */
    List<Exchange> announcers() {
        return processes.keySet().stream().map(links::get).filter(Objects::nonNull).map(MeshLink::exchange).toList();
    }

    /** Agents here use channels: the platform tells this process of the others whose agents do, and them of this one. */
    private synchronized void useChannels() {
        if (!usesChannels) {
            usesChannels = true;
            Door.start("sealbus-channels", this::register);
        }
    }

    private void register() {
        while (!isClosed) {
            try {
                membership.ask(Map.of("ask", "use-channels"));
                listed();
                return;
            } catch (IOException away) {
                LOG.log(Level.FINE, "the platform does not know yet that channels are used here", away);
                Door.pause(REGISTER_AGAIN);
            }
        }
    }

    private synchronized void listed() {
        isListed = true;
        notifyAll();
    }

    /** Whether the platform has told of the other processes whose agents use channels. */
    synchronized boolean isAcquainted() {
        return isAcquainted;
    }

    /** Waits until the others whose agents use channels have heard of this process, for a while. */
    synchronized void awaitListed() {
        long end = System.nanoTime() + Speaking.PATIENCE;
        while (!isListed && !isClosed) {
            long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
            if (left <= 0) {
                LOG.warning("the platform does not know yet that channels are used here: subscriptions miss events until it does");
                return;
            }
            try {
                wait(left);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }

    Publisher publisher() {
        return publisher;
    }

    ChannelLogs logs() {
        return logs;
    }

    Groups groups() {
        return groups;
    }

    Questions questions() {
        return questions;
    }

    Handover handover() {
        return handover;
    }

    /** The quality of service of a channel, as the manifest declares it. */
    Qos qos(String channel) {
        return permission.qos(channel);
    }

    /** The same, without the lock. */
    Qos qosOf(String channel) {
        synchronized (this) {
            return qos(channel);
        }
    }

    /** Tells an agent here that what it published did not arrive. */
    void failed(Publication publication, String why) {
        agents.undelivered(new Letter(publication.agent(), publication.head().channel(), publication.body()), why);
    }

    /** An agent here publishes: all processes are asked what their agents subscribe to. */
    void takeInterest() {
        useChannels();
        if (!isInterested) {
            isInterested = true;
            processes.forEach((process, where) -> link(process, where).exchange().want());
            tickLater();
        }
    }

    private void tickLater() {
        laterGuarded(() -> {
            if (!isClosed) {
                long now = System.nanoTime();
                exchanges().forEach(exchange -> exchange.tick(now));
                ticks++;
                if (ticks % CARE == 0) {
                    groups.care(now);
                    questions.tick();
                }
                tickLater();
            }
        }, TICK);
    }

    List<ChannelSubscription> subscriptions() {
        return subscriptions.all();
    }

    ChannelSubscription subscription(int number) {
        return subscriptions.get(number);
    }

    /** An agent here gets an event, and the other process wants to know whether it reads it. Returns the event's id. */
    String unread(ChannelSubscription subscription, Subscriptions.Outcome outcome) {
        return subscriptions.unread(subscription, outcome);
    }

    /** An event that was to be read did not come to its agent. */
    void forgetUnread(String event) {
        subscriptions.forget(event);
    }

    /** An agent here has read an event, or has handled it. Its thread does not wait for the mesh. */
    void read(String agent, String event) {
        laterGuarded(() -> subscriptions.read(agent, event), 0);
    }

    /** Whether an agent has a right on a channel: {@code publish}, {@code subscribe} or {@code answer}. */
    boolean may(String agent, String right, String channel) {
        return permission.may(agent, right, channel);
    }

    synchronized boolean isPresent(String agent) {
        return present.contains(agent);
    }

    /** Whether an agent may write to another one on behalf of these agents, all by their whole names. Asked without the lock, too. */
    boolean permits(String sender, String receiver, List<String> askers) {
        return permission.permits(sender, receiver, askers);
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

    boolean isClosed() {
        return isClosed;
    }

    /** Sends a message, which the rules allow. Waits while too much waits for the receiver. */
    synchronized void send(Letter letter) throws IOException, InterruptedException {
        if (letter.payload().length > LARGEST_MESSAGE) {
            throw new IOException("a message of " + letter.payload().length + " bytes; at most " + LARGEST_MESSAGE + " are sent");
        }
        long end = System.nanoTime() + PATIENCE;
        while (true) {
            if (isClosed) {
                throw new IOException("this container has ended");
            }
            Route route = routes.computeIfAbsent(letter.receiver(), Route::new);
            if (route.queued < MOST_QUEUED) {
                route.add(letter);
                pump(route);
                return;
            }
            long left = end - System.nanoTime();
            if (left <= 0) {
                throw new IOException(letter.receiver() + " takes no messages now");
            }
            wait(TimeUnit.NANOSECONDS.toMillis(left) + 1);
        }
    }

    // ---- routes ----

    /** Moves a route on. */
    void pump(Route route) {
        if (route.state == Route.State.LOOKING && !route.waiting.isEmpty() && !route.isAsked) {
            route.isAsked = true;
            later(() -> lookUp(route), 0);
        }
        if (route.state == Route.State.OPEN) {
            while (!route.waiting.isEmpty() && route.sent < route.limit && route.link.hasWindow()) {
                route.link.send(route, route.take());
            }
            notifyAll();
        }
    }

    private void lookUp(Route route) {
        Object place = null;
        String why = null;
        try {
            place = membership.ask(Map.of("ask", "resolve", "agent", local(route.receiver)));
        } catch (IOException failed) {
            why = failed.getMessage();
        }
        synchronized (this) {
            route.isAsked = false;
            if (route.state != Route.State.LOOKING) {
                return;
            }
            String where = place == null ? "unasked" : Json.text(place, "where");
            if (where.equals("unknown")) {
                fail(route, "there is no agent " + route.receiver);
            } else if (where.equals("process")) {
                reach(route, place);
            } else {
                missed(route, why == null ? route.receiver + " is moving" : why);
            }
        }
    }

    private void reach(Route route, Object place) {
        Identity process = processOf(place);
        if (process.equals(route.deniedBy)) {
            missed(route, route.receiver + " is not there");
        } else if (process.equals(own)) {
            missed(route, route.receiver + " is not in this container");
        } else {
            open(route, link(process, Json.text(place, "address")));
        }
    }

    private Identity processOf(Object place) {
        return Identity.parse("spiffe://" + trust.platform() + "/node/" + Json.text(place, "node") + "/process/"
                + Json.text(place, "process"));
    }

    /** The receiver cannot be found now. It is looked for again, for a while. */
    private void missed(Route route, String why) {
        long now = System.nanoTime();
        if (route.missedSince == 0) {
            route.missedSince = now;
        }
        if (now - route.missedSince > PATIENCE) {
            fail(route, why);
            return;
        }
        // The platform may know a new place by then.
        route.deniedBy = now - route.missedSince > PATIENCE / 10 ? null : route.deniedBy;
        route.isAsked = true;
        later(() -> lookUp(route), PAUSE);
    }

    private void fail(Route route, String why) {
        route.missedSince = 0;
        route.deniedBy = null;
        for (Letter letter = route.take(); letter != null; letter = route.take()) {
            agents.undelivered(letter, why);
        }
        if (route.state == Route.State.LOOKING) {
            routes.remove(route.receiver);
        }
        notifyAll();
    }

    void open(Route route, MeshLink link) {
        route.state = Route.State.OPENING;
        link.open(route);
    }

    /** The way over a link has ended, and all that was not delivered has come back. */
    void closed(Route route) {
        route.lookAgain();
        pump(route);
        if (route.waiting.isEmpty()) {
            routes.remove(route.receiver);
        }
    }

    // ---- links ----

    private MeshLink link(Identity process, String address) {
        MeshLink link = links.computeIfAbsent(process, peer -> new MeshLink(this, peer));
        link.address = address;
        if (isInterested) {
            link.exchange().want();
        }
        return link;
    }

    /** Opens a connection for a link that has something to send. Never called under the lock. */
    private void dial(MeshLink link) {
        Frame.Hello hello;
        synchronized (this) {
            if (isClosed || link.isConnected() || links.get(link.peer) != link) {
                link.isDialling = false;
                return;
            }
            hello = link.dial();
        }
        String why;
        Socket socket = new Socket();
        MeshConnection made = null;
        try {
            int colon = link.address.lastIndexOf(':');
            String host = link.address.substring(0, colon).replaceAll("^\\[|\\]$", "");
            socket.connect(new InetSocketAddress(host, Integer.parseInt(link.address.substring(colon + 1))), CONNECTING);
            SSLSocket tls = Tls.connect(socket, membership.process().credential(), chain -> process(chain, link.peer), PROTOCOL);
            MeshConnection connection = new MeshConnection(socket, tls, process(Tls.peerChain(tls), link.peer), true);
            made = connection;
            tls.setSoTimeout(Tls.HANDSHAKE);
            tls.getOutputStream().write(hello.bytes());
            Frame.Hello answer = Frame.Hello.read(connection.in());
            tls.setSoTimeout(0);
            synchronized (this) {
                link.isDialling = false;
                if (isClosed || !answer.process().equals(link.peer.toString()) || !link.answered(answer, connection)) {
                    throw new IOException("the process does not continue the session");
                }
            }
            Door.start("sealbus-mesh-read", () -> read(link, connection));
            return;
        } catch (IOException | CertificateException | RuntimeException | Error failed) {
            why = failed.getMessage();
            LOG.log(Level.FINE, "no connection to " + link.peer, failed);
        }
        close(socket);
        synchronized (this) {
            link.isDialling = false;
            if (made != null && link.isConnectedBy(made)) {
                // There was no thread to read it.
                link.disconnected();
            }
            if (System.nanoTime() - link.neededSince > GIVE_UP) {
                String unreachable = "its process cannot be reached: " + why;
                for (Route route : routesOver(link)) {
                    route.lookAgain();
                    fail(route, unreachable);
                }
                link.lose(unreachable);
            } else {
                need(link, PAUSE + RANDOM.nextInt((int) PAUSE));
            }
        }
    }

    /** A link has something to send. It gets a connection unless it has one. */
    void need(MeshLink link, long pause) {
        if (!isClosed && !link.isConnected() && !link.isDialling && link.hasToSend()) {
            link.isDialling = true;
            if (pause == 0) {
                link.neededSince = System.nanoTime();
            }
            // Many processes that cannot be reached hold up no other work.
            later(() -> Door.start("sealbus-mesh-dial", () -> dial(link)), pause);
        }
    }

    /** Verifies the certificates of a process, or of one certain process. */
    private Trust.Peer process(List<X509Certificate> chain, Identity expected) throws CertificateException {
        Trust.Peer peer = trust.verify(chain);
        String kind = peer.identity().kind();
        if (!kind.equals("process") && !kind.equals("node") || expected != null && !expected.equals(peer.identity())) {
            throw new CertificateException(peer.identity() + " answered where " + (expected == null ? "a process" : expected)
                    + " was expected");
        }
        return peer;
    }

    private void serve(Socket socket, Runnable known) {
        try {
            SSLSocket tls = Tls.accept(socket, membership.process().credential(), chain -> process(chain, null), PROTOCOL);
            MeshConnection connection = new MeshConnection(socket, tls, process(Tls.peerChain(tls), null), false);
            tls.setSoTimeout(Tls.HANDSHAKE);
            Frame.Hello hello = Frame.Hello.read(connection.in());
            tls.setSoTimeout(0);
            Identity peer = connection.peer().identity();
            if (!hello.process().equals(peer.toString()) || peer.equals(own)) {
                throw new IOException(peer + " calls itself " + hello.process());
            }
            known.run();
            MeshLink link;
            synchronized (this) {
                link = link(peer, hello.address());
                if (isClosed || !link.accept(hello, connection)) {
                    return;
                }
            }
            read(link, connection);
        } catch (IOException | CertificateException | RuntimeException failed) {
            LOG.log(Level.FINE, "a connection came to nothing", failed);
        }
    }

    /** Reads a connection until it ends. Whatever fails, the link does not count as connected afterwards. */
    private void read(MeshLink link, MeshConnection connection) {
        Throwable why;
        try {
            while (true) {
                Frame frame = Frame.read(connection.in(), Frame.LONGEST_BODY);
                boolean isLast = connection.in().available() == 0;
                synchronized (this) {
                    if (!link.isConnectedBy(connection)) {
                        return;
                    }
                    link.take(frame);
                    link.acknowledge(isLast);
                }
            }
        } catch (Throwable failed) {
            why = failed;
        } finally {
            connection.close();
        }
        synchronized (this) {
            if (link.isConnectedBy(connection)) {
                link.disconnected();
                if (why instanceof Error) {
                    // Nobody knows how much of a frame was taken, so the session cannot go on.
                    lose(link, "this container failed: " + why);
                } else {
                    need(link, 0);
                }
            }
        }
        LOG.log(why instanceof IOException ? Level.FINE : Level.WARNING, "the connection to " + link.peer + " ended", why);
    }

    /** Gives up what a link held. */
    void lose(MeshLink link, String why) {
        link.lose(why);
        for (Route route : routesOver(link)) {
            route.lookAgain();
            pump(route);
        }
    }

    private List<Route> routesOver(MeshLink link) {
        return routes.values().stream().filter(route -> route.link == link).toList();
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
                need(link, 0);
            } else {
                link.prove(agent);
            }
        }
    }

    /** News of the node. */
    void heard(String notice, Object body) {
        try {
            switch (notice) {
                case "directory-changed" -> moved(Json.list(body, "changes"));
                case "processes-are" -> processesAre(Json.member(body, "processes"));
                case "processes-joined" -> joined(Json.list(body, "processes"));
                case "processes-ended" -> ended(Json.list(body, "processes"));
                case "rules" -> obey(Json.member(body, "rules"));
                case "attached" -> {
                    announce();
                    obey(Json.member(body, "rules"));
                    processesAre(Json.member(body, "processes"));
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

    private synchronized void moved(List<?> changes) {
        for (Object change : changes) {
            Route route = routes.get(Json.text(change, "agent") + "@" + trust.platform());
            if (route == null) {
                continue;
            }
            route.deniedBy = null;
            boolean isElsewhere = !Json.text(change, "where").equals("process") || route.link != null
                    && !route.link.peer.equals(processOf(change));
            if (isElsewhere && (route.state == Route.State.OPENING || route.state == Route.State.OPEN)) {
                route.link.startClosing(route);
            }
        }
    }

    private synchronized void joined(List<?> contacts) {
        for (Object contact : contacts) {
            Identity process = processOf(contact);
            if (!process.equals(own)) {
                processes.put(process, Json.text(contact, "address"));
                if (isInterested) {
                    link(process, Json.text(contact, "address")).exchange().want();
                }
            }
        }
    }

    /** All processes whose agents use channels; null if the node does not know, or does not know that agents here do. */
    private synchronized void processesAre(Object contacts) {
        if (contacts instanceof List<?> list) {
            Set<Identity> present = new HashSet<>();
            list.forEach(contact -> present.add(processOf(contact)));
            List.copyOf(processes.keySet()).stream().filter(one -> !present.contains(one)).forEach(this::ended);
            joined(list);
            isAcquainted = true;
        } else if (usesChannels) {
            Door.start("sealbus-channels", this::register);
        }
    }

    private synchronized void ended(List<?> gone) {
        gone.forEach(process -> ended(processOf(process)));
    }

    private void ended(Identity process) {
        processes.remove(process);
        MeshLink link = links.remove(process);
        if (link != null) {
            lose(link, "its process has ended");
        }
    }

    // ---- the rest ----

    void later(Runnable work, long millis) {
        try {
            worker.schedule(() -> {
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

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException ignored) {
            // It is closed either way.
        }
    }

    @Override
    public void close() {
        door.close();
        synchronized (this) {
            isClosed = true;
            links.values().forEach(MeshLink::shutDown);
            notifyAll();
        }
        worker.shutdown();
    }
}

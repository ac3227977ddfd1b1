package org.sealbus.jade;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;

/** The channels that agents here use, and the other processes whose agents use channels, too. The mesh guards it. */
final class Channels {
    /** The pause until the platform is told again that agents here use channels, in milliseconds. */
    private static final long REGISTER_AGAIN = 500;
    /** The time between two looks at the processes that hear what agents here publish, in milliseconds. */
    private static final long TICK = 200;
    /** Ticks between two looks at groups and questions. */
    private static final int CARE = 5;

    final Groups groups;
    final Questions questions;
    final Handover handover;
    final ChannelLogs logs;
    final Publisher publisher;
    private final Mesh mesh;
    private final Subscriptions subscriptions = new Subscriptions();
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

    Channels(Mesh mesh) {
        this.mesh = mesh;
        groups = new Groups(mesh);
        questions = new Questions(mesh);
        handover = new Handover(mesh);
        logs = new ChannelLogs(mesh.membership, mesh::isClosed);
        publisher = new Publisher(mesh, logs);
    }

    // ---- subscriptions of agents here ----

    /** Subscribes an agent here. The processes that publish are told, and those that will. */
    ChannelSubscription subscribe(String agent, String pattern, SubscriptionOptions options) {
        synchronized (mesh) {
            if (!options.durable().isEmpty() && subscriptions.all().stream()
                    .anyMatch(one -> one.agent().equals(agent) && one.options().durable().equals(options.durable()))) {
                throw new IllegalStateException(agent + " has a subscription with the durable name " + options.durable()
                        + " already: close it, or take another name");
            }
            use();
            ChannelSubscription made = subscriptions.add(number -> new ChannelSubscription(mesh, number, agent, pattern, options));
            exchanges().forEach(exchange -> exchange.hearing().announce(made));
            groups.joined(made);
            if (options.readsLogs()) {
                new LogFeed(mesh, logs, made).start();
            }
            return made;
        }
    }

    void unsubscribe(ChannelSubscription subscription) {
        synchronized (mesh) {
            if (subscriptions.remove(subscription)) {
                withdraw(subscription);
                subscriptions.closed(subscription);
            }
        }
    }

    /** An agent here is gone. */
    void left(String agent) {
        subscriptions.left(agent).forEach(this::withdraw);
    }

    private void withdraw(ChannelSubscription subscription) {
        groups.left(subscription);
        questions.left(subscription);
        exchanges().forEach(exchange -> exchange.hearing().withdraw(subscription));
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
        mesh.laterGuarded(() -> subscriptions.read(agent, event), 0);
    }

    // ---- events of agents here ----

    /** An agent here publishes: all processes are asked what their agents subscribe to. */
    void takeInterest() {
        use();
        if (!isInterested) {
            isInterested = true;
            processes.forEach((process, where) -> mesh.link(process, where).exchange().want());
            tickLater();
        }
    }

    boolean isInterested() {
        return isInterested;
    }

    private void tickLater() {
        mesh.laterGuarded(() -> {
            if (!mesh.isClosed()) {
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

    /** Tells an agent here that what it published did not arrive. */
    void failed(Publication publication, String why) {
        mesh.agents.undelivered(new Letter(publication.agent(), publication.head().channel(), publication.body()), why);
    }

    // ---- other processes ----

    /** The conversations with all of them. */
    List<Exchange> exchanges() {
        return mesh.links().stream().map(MeshLink::exchange).toList();
    }

    /** The subscriptions of other processes to a channel, without those that agents have left behind. */
    Map<Exchange, List<FarSubscription>> subscriptionsThere(String channel) {
        Map<Exchange, List<FarSubscription>> there = new LinkedHashMap<>();
        for (Exchange exchange : exchanges()) {
            List<FarSubscription> matching = new ArrayList<>();
            exchange.speaking().subscriptions().forEach(one -> {
                if (ChannelSubscription.matches(one.pattern, channel)) {
                    matching.add(one);
                }
            });
            there.put(exchange, matching);
        }
        Places.leave(there, subscriptions());
        return there;
    }

    /** The conversations with the processes whose announcements publishers wait for. */
    List<Exchange> announcers() {
        return processes.keySet().stream().map(mesh::link).filter(Objects::nonNull).map(MeshLink::exchange).toList();
    }

    /** Agents here use channels: the platform tells this process of the others whose agents do, and them of this one. */
    void use() {
        synchronized (mesh) {
            if (!usesChannels) {
                usesChannels = true;
                Door.start("sealbus-channels", this::register);
            }
        }
    }

    private void register() {
        while (!mesh.isClosed()) {
            try {
                mesh.membership.ask(Map.of("ask", "use-channels"));
                listed();
                return;
            } catch (IOException away) {
                Mesh.LOG.log(Level.FINE, "the platform does not know yet that channels are used here", away);
                Door.pause(REGISTER_AGAIN);
            }
        }
    }

    private void listed() {
        synchronized (mesh) {
            isListed = true;
            mesh.notifyAll();
        }
    }

    /** Whether the platform has told of the other processes whose agents use channels. */
    boolean isAcquainted() {
        synchronized (mesh) {
            return isAcquainted;
        }
    }

    /** Waits until the others whose agents use channels have heard of this process, for a while. */
    void awaitListed() {
        synchronized (mesh) {
            long end = System.nanoTime() + Speaking.PATIENCE;
            while (!isListed && !mesh.isClosed()) {
                long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
                if (left <= 0) {
                    Mesh.LOG.warning("the platform does not know yet that channels are used here: subscriptions miss events"
                            + " until it does");
                    return;
                }
                try {
                    mesh.wait(left);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                    return;
                }
            }
        }
    }

    /** Other processes use channels from now on. */
    void joined(List<?> contacts) {
        synchronized (mesh) {
            for (Object contact : contacts) {
                Identity process = mesh.processOf(contact);
                if (!process.equals(mesh.own)) {
                    processes.put(process, Json.text(contact, "address"));
                    if (isInterested) {
                        mesh.link(process, Json.text(contact, "address")).exchange().want();
                    }
                }
            }
        }
    }

    /** All processes whose agents use channels; null if the node does not know, or does not know that agents here do. */
    void processesAre(Object contacts) {
        synchronized (mesh) {
            if (contacts instanceof List<?> list) {
                Set<Identity> present = new HashSet<>();
                list.forEach(contact -> present.add(mesh.processOf(contact)));
                List.copyOf(processes.keySet()).stream().filter(one -> !present.contains(one)).forEach(mesh::ended);
                joined(list);
                isAcquainted = true;
            } else if (usesChannels) {
                Door.start("sealbus-channels", this::register);
            }
        }
    }

    /** Another process has ended. */
    void ended(Identity process) {
        processes.remove(process);
    }
}

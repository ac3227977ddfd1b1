package org.sealbus.jade;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** The ways to agents in other processes: it finds each agent, and holds its messages until it has room. The mesh guards it. */
final class Routes {
    /** Bytes that wait for one receiver, before its senders wait. */
    private static final long MOST_QUEUED = 1 << 20;
    /** How long a sender waits for room, and a message for a receiver that moves or cannot be found, in nanoseconds. */
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(30);
    /** The pause until a receiver is looked for again, in milliseconds. */
    private static final long PAUSE = 200;

    private final Mesh mesh;
    private final Map<String, Route> routes = new HashMap<>();

    Routes(Mesh mesh) {
        this.mesh = mesh;
    }

    /** Sends a message, which the rules allow. Waits while too much waits for the receiver. */
    void send(Letter letter) throws IOException, InterruptedException {
        synchronized (mesh) {
            if (letter.payload().length > mesh.largest) {
                throw new IOException("a message of " + letter.payload().length + " bytes; at most " + mesh.largest + " are sent");
            }
            long end = System.nanoTime() + PATIENCE;
            while (true) {
                if (mesh.isClosed()) {
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
                mesh.wait(TimeUnit.NANOSECONDS.toMillis(left) + 1);
            }
        }
    }

    /** Moves a route on. */
    void pump(Route route) {
        if (route.state == Route.State.LOOKING && !route.waiting.isEmpty() && !route.isAsked) {
            route.isAsked = true;
            mesh.askLater(() -> lookUp(route), 0);
        }
        if (route.state == Route.State.OPEN) {
            while (!route.waiting.isEmpty() && route.sent < route.limit && route.link.hasWindow()) {
                route.link.outward().send(route, route.take());
            }
            mesh.notifyAll();
        }
    }

    private void lookUp(Route route) {
        Object place = null;
        String why = null;
        try {
            place = mesh.membership.ask(Map.of("ask", "resolve", "agent", mesh.local(route.receiver)));
        } catch (IOException failed) {
            why = failed.getMessage();
        }
        synchronized (mesh) {
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
        Identity process = mesh.processOf(place);
        if (process.equals(route.deniedBy)) {
            missed(route, route.receiver + " is not there");
        } else if (process.equals(mesh.own)) {
            missed(route, route.receiver + " is not in this container");
        } else {
            open(route, mesh.link(process, Json.text(place, "address")));
        }
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
        mesh.askLater(() -> lookUp(route), PAUSE);
    }

    private void fail(Route route, String why) {
        route.missedSince = 0;
        route.deniedBy = null;
        for (Letter letter = route.take(); letter != null; letter = route.take()) {
            mesh.agents.undelivered(letter, why);
        }
        if (route.state == Route.State.LOOKING) {
            routes.remove(route.receiver);
        }
        mesh.notifyAll();
    }

    void open(Route route, MeshLink link) {
        route.state = Route.State.OPENING;
        link.outward().open(route);
    }

    /** The way over a link has ended, and all that was not delivered has come back. */
    void closed(Route route) {
        route.lookAgain();
        pump(route);
        if (route.waiting.isEmpty()) {
            routes.remove(route.receiver);
        }
    }

    /** The session of a link was given up. Its routes are looked for again. */
    void lost(MeshLink link) {
        over(link).forEach(this::closed);
    }

    /** The number of an agent's messages that have not gone. */
    long letters(String agent) {
        return routes.values().stream().mapToLong(route -> route.letters(agent)).sum();
    }

    /** A process could not be reached for too long. Messages that wait for its agents come back. */
    void giveUp(MeshLink link, String why) {
        for (Route route : over(link)) {
            route.lookAgain();
            fail(route, why);
        }
    }

    private List<Route> over(MeshLink link) {
        return routes.values().stream().filter(route -> route.link == link).toList();
    }

    /** Agents have moved or ended. */
    void moved(List<?> changes) {
        synchronized (mesh) {
            for (Object change : changes) {
                Route route = routes.get(mesh.whole(Json.text(change, "agent")));
                if (route == null) {
                    continue;
                }
                route.deniedBy = null;
                boolean isElsewhere = !Json.text(change, "where").equals("process") || route.link != null
                        && !route.link.peer.equals(mesh.processOf(change));
                if (isElsewhere && (route.state == Route.State.OPENING || route.state == Route.State.OPEN)) {
                    route.link.outward().startClosing(route);
                }
            }
        }
    }
}

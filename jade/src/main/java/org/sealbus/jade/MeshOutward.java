package org.sealbus.jade;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.cert.CertificateException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Messages over a link to agents of the other process: the routes to them, and those that come back. The mesh guards it. */
final class MeshOutward {
    /** Routes that are remembered after they were closed. */
    private static final int MOST_FORMER = 256;
    private static final int PROCESS_SENDER = -1;

    private final Mesh mesh;
    private final MeshLink link;
    /** The other process's agents that messages from here go to; free places are null. */
    private final List<Route> routes = new ArrayList<>();
    /** The messages of routes that were closed, by their numbers: their receivers may have some of them unread. */
    private final Map<Integer, Route.Memory> former = new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Integer, Route.Memory> eldest) {
            return size() > MOST_FORMER;
        }
    };
    /** Pieces of a message that one of these receivers left unread. */
    private final Frame.Body unread = new Frame.Body();
    /** Routes that were opened in this session. */
    private int opened;
    /** Agents here that send over the link. An agent keeps its handle. */
    private final List<String> bound = new ArrayList<>();

    MeshOutward(Mesh mesh, MeshLink link) {
        this.mesh = mesh;
        this.link = link;
    }

    /** The session is given up. */
    void clear() {
        routes.clear();
        former.clear();
        unread.clear();
        opened = 0;
        bound.clear();
    }

    // ---- routes ----

    /** Asks whether the receiver of a route is there. */
    void open(Route route) {
        int handle = routes.indexOf(null);
        if (handle < 0) {
            handle = routes.size();
            routes.add(route);
        } else {
            routes.set(handle, route);
        }
        route.link = link;
        route.handle = handle;
        route.number = ++opened;
        link.send(Frame.TARGET, new Frame.Body().u32(handle).text(route.receiver));
    }

    /** The route that the other process knows by this number; null if there is none. */
    Route route(int handle) {
        return handle >= 0 && handle < routes.size() ? routes.get(handle) : null;
    }

    /** The way to the bus of the other process; null if there is none yet. */
    Route bus() {
        for (Route route : routes) {
            if (route != null && route.receiver.isEmpty()) {
                return route;
            }
        }
        return null;
    }

    void pumpAll() {
        for (Route route : new ArrayList<>(routes)) {
            if (route != null) {
                mesh.routes.pump(route);
            }
        }
    }

    void credited(int handle, long limit) {
        Route route = route(handle);
        if (route == null || route.state == Route.State.CLOSING) {
            return;
        }
        boolean isProcess = route.receiver.isEmpty();
        if (route.proved == null && !isProcess) {
            left(route, MeshLink.NOT_HERE);
            return;
        }
        route.state = Route.State.OPEN;
        route.deniedBy = null;
        route.missedSince = 0;
        route.limit = Math.max(route.limit, limit);
        mesh.routes.pump(route);
    }

    /** Sends no more to the receiver of a route. Messages that it did not get come back. */
    void startClosing(Route route) {
        if (route.state == Route.State.OPENING || route.state == Route.State.OPEN) {
            route.state = Route.State.CLOSING;
            link.send(Frame.CLOSE_TARGET, new Frame.Body().u32(route.handle));
        }
    }

    void left(Route route, int why) {
        route.deniedBy = why == MeshLink.NOT_HERE ? link.peer : null;
        startClosing(route);
    }

    /** No more comes from the receiver of a route that this process closes. */
    void closed(int handle) {
        Route route = route(handle);
        if (route != null && route.state == Route.State.CLOSING) {
            routes.set(handle, null);
            if (!route.receiver.isEmpty()) {
                former.put(route.number, route.memory);
                mesh.routes.closed(route);
            }
        }
    }

    // ---- messages ----

    /** Sends a message, in pieces if it is long. The credit of the route was checked. */
    void send(Route route, Letter letter) {
        int sender = letter.sender() == null ? PROCESS_SENDER : handleOf(letter.sender());
        byte[] payload = letter.payload();
        route.sent += letter.cost();
        if (!route.receiver.isEmpty()) {
            route.memory.add(letter);
        }
        if (payload.length <= Frame.LONGEST_PIECE) {
            link.send(Frame.MESSAGE, 0, new Frame.Body().u32(sender).u32(route.handle).bytes(payload), letter);
            return;
        }
        for (int at = 0; at < payload.length; at += Frame.LONGEST_PIECE) {
            int end = Math.min(payload.length, at + Frame.LONGEST_PIECE);
            byte[] piece = Arrays.copyOfRange(payload, at, end);
            Letter ended = end == payload.length ? letter : null;
            if (at == 0) {
                link.send(Frame.BEGIN, 0, new Frame.Body().u32(sender).u32(route.handle).u32(payload.length).bytes(piece), ended);
            } else {
                link.send(Frame.CONTINUE, 0, new Frame.Body().u32(route.handle).bytes(piece), ended);
            }
        }
    }

    // ---- messages that come back ----

    void returned(int handle, int sender, int why, boolean hasMore, byte[] piece) {
        Route route = route(handle);
        if (route == null) {
            return;
        }
        route.piece.bytes(piece);
        if (route.piece.length() > Mesh.LARGEST_MESSAGE) {
            throw MeshLink.broken("a message came back that was not sent");
        }
        if (hasMore) {
            return;
        }
        byte[] payload = route.piece.take();
        if (route.receiver.isEmpty()) {
            link.exchange().returned(payload,
                    why < MeshLink.FIRST_REFUSAL ? "its process has no bus" : "its process refused it: " + refusal(why));
            return;
        }
        if (sender < 0 || sender >= bound.size()) {
            return;
        }
        Letter letter = new Letter(bound.get(sender), route.receiver, payload);
        boolean wasSent = route.memory.has(letter);
        if (!wasSent && !route.memory.mayHaveHad()) {
            neverSent(letter);
        } else if (!wasSent) {
            mesh.agents.undelivered(letter, "it came back long after it was sent");
        } else if (why >= MeshLink.FIRST_REFUSAL) {
            mesh.agents.undelivered(letter, "the receiver's process refused it: " + refusal(why));
        } else {
            left(route, why);
            route.returned.add(letter);
        }
    }

    /** The receiver of a route that was closed has ended, and has not read this message. */
    void leftUnread(int number, int sender, boolean hasMore, byte[] piece) {
        unread.bytes(piece);
        if (unread.length() > Mesh.LARGEST_MESSAGE) {
            throw MeshLink.broken("a message came back that was not sent");
        }
        if (hasMore) {
            return;
        }
        byte[] payload = unread.take();
        Route.Memory memory = former.get(number);
        if (memory == null || sender < 0 || sender >= bound.size()) {
            return;
        }
        Letter letter = new Letter(bound.get(sender), memory.receiver, payload);
        if (memory.has(letter) || memory.mayHaveHad()) {
            mesh.agents.undelivered(letter, "the receiver has ended and did not read it");
        } else {
            neverSent(letter);
        }
    }

    private void neverSent(Letter letter) {
        link.log.warn("{0} gives back a message of {1} to {2} that it was not given", link.peer, letter.sender(),
                letter.receiver());
    }

    private static String refusal(int why) {
        int reason = why - MeshLink.FIRST_REFUSAL;
        return reason < MeshLink.REFUSALS.size() ? MeshLink.REFUSALS.get(reason) : "unknown";
    }

    // ---- proofs ----

    private int handleOf(String agent) {
        if (!bound.contains(agent)) {
            bound.add(agent);
            bind(agent);
        }
        return bound.indexOf(agent);
    }

    private void bind(String agent) {
        byte[] proof = link.proofOf(agent);
        if (proof != null) {
            link.control(new Frame.Body().u32(bound.indexOf(agent)).bytes(proof).frame(Frame.BIND));
        }
    }

    /** An agent here shows a new certificate. */
    void prove(String agent) {
        if (bound.contains(agent)) {
            bind(agent);
        }
    }

    /** All agents here that send over the link prove themselves on a new connection. */
    void proveAll() {
        bound.forEach(this::bind);
    }

    /** The receiver of a route proves itself. */
    void proved(int handle, ByteBuffer proof) {
        Route route = route(handle);
        if (route == null) {
            return;
        }
        try {
            Trust.Peer agent = link.verify(proof);
            if (!agent.identity().name().equals(mesh.local(route.receiver))) {
                throw new CertificateException(agent.identity() + " answered where " + route.receiver + " was expected");
            }
            route.proved = agent;
        } catch (GeneralSecurityException refused) {
            link.log.warn("a receiver is not proved: {0}", refused.getMessage());
        }
    }

    /** Checks the receivers that proved themselves, after a change of the deny lists. */
    void check() {
        for (Route route : new ArrayList<>(routes)) {
            try {
                if (route != null && route.proved != null) {
                    mesh.trust.check(route.proved);
                }
            } catch (CertificateException over) {
                left(route, MeshLink.NOT_HERE);
            }
        }
    }
}

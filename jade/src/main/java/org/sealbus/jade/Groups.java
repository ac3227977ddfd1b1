package org.sealbus.jade;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import java.util.logging.Level;

/** The queue groups that publishers of this process know. The mesh guards it. */
final class Groups {
    private static final int MOST_GROUPS = 1024;

    private final Mesh mesh;
    private final Map<Group.Key, Group> groups = new LinkedHashMap<>();
    private long numbers;
    private boolean isServing;
    private boolean isUnserved;

    Groups(Mesh mesh) {
        this.mesh = mesh;
    }

    /** A subscription of another process. */
    void joined(Exchange exchange, FarSubscription far) {
        if (far.isInGroup()) {
            join(new Group.Key(far.group, far.pattern, far.filter), new Group.Member(exchange, far, null));
        }
    }

    /** A subscription of an agent here. */
    void joined(ChannelSubscription near) {
        SubscriptionOptions options = near.options();
        if (!options.group().isEmpty()) {
            join(new Group.Key(options.group(), near.pattern(), options.filter()), new Group.Member(null, null, near));
        }
    }

    private void join(Group.Key key, Group.Member member) {
        Group group = groups.get(key);
        if (group == null && groups.size() >= MOST_GROUPS) {
            Mesh.LOG.log(Level.WARNING, "{0} joins a group beyond the {1} that this container knows: it gets nothing from here",
                    new Object[] {member.agent(), MOST_GROUPS});
            return;
        }
        groups.computeIfAbsent(key, any -> new Group(mesh, this, any)).join(member);
        serve();
    }

    /** A subscription of another process has ended. */
    void left(Exchange exchange, FarSubscription far) {
        if (far.isInGroup()) {
            leave(member -> member.exchange == exchange && member.far == far);
        }
    }

    /** A subscription of an agent here has ended. */
    void left(ChannelSubscription near) {
        if (!near.options().group().isEmpty()) {
            leave(member -> member.near == near);
        }
    }

    /** Another process is lost, with all its members. */
    void lost(Exchange exchange) {
        leave(member -> member.exchange == exchange);
    }

    private void leave(Predicate<Group.Member> isGone) {
        for (Group group : List.copyOf(groups.values())) {
            List<Group.Member> gone = group.members().stream().filter(isGone).toList();
            if (!gone.isEmpty()) {
                group.leave(gone);
            }
        }
        serve();
    }

    /** The groups that an event on a channel is for. */
    List<Group> matching(String channel) {
        return groups.values().stream().filter(group -> group.takes(channel)).toList();
    }

    /** Holds an event until a member has handled it. */
    void hold(Group group, Publication publication) {
        if (publication.receipt() != null) {
            publication.receipt().expect();
        }
        numbers++;
        group.hold(publication, numbers);
        serve(group);
    }

    /** Gives what waits to members that are free. */
    void serve() {
        // The outermost call does the work that follows from giving an event.
        isUnserved = true;
        if (isServing) {
            return;
        }
        isServing = true;
        while (isUnserved) {
            isUnserved = false;
            for (Group group : List.copyOf(groups.values())) {
                serveOne(group);
            }
        }
        isServing = false;
    }

    void serve(Group group) {
        if (isServing) {
            isUnserved = true;
        } else {
            isServing = true;
            serveOne(group);
            isServing = false;
            if (isUnserved) {
                serve();
            }
        }
    }

    private void serveOne(Group group) {
        long next = group.serve();
        if (next > 0) {
            mesh.laterGuarded(() -> {
                group.awake();
                serve(group);
            }, Math.max(1, next - System.currentTimeMillis()));
        }
        if (group.isOver()) {
            groups.remove(group.key, group);
        }
    }

    /** Time has passed. */
    void care(long now) {
        List.copyOf(groups.values()).forEach(group -> group.care(now));
        serve();
    }
}

package org.sealbus.jade;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/** The two places of an agent that moves: for a while, it is in two processes. */
final class Places {
    private Places() {}

    /** An agent is in a process, and says so under a certificate that begins then. Later ones are greater. */
    private record Place(long since, Exchange exchange) implements Comparable<Place> {
        @Override
        public int compareTo(Place other) {
            int order = Long.compare(since, other.since);
            order = order != 0 ? order : Long.compareUnsigned(exchange.peerEpoch(), other.exchange.peerEpoch());
            return order != 0 ? order : exchange.peer.compareTo(other.exchange.peer);
        }
    }

    /**
     * Removes the subscriptions that agents have left behind (the rule of {@code crates/channels/src/exchange/targets.rs}). All
     * that came to the place that an agent leaves would come back, although the agent has it in the other one. A subscription
     * stays until the agent has the same one there: nothing else gets what that one is for. A member of a group stays, too: it
     * gives its events to another member itself.
     */
    static void leave(Map<Exchange, List<FarSubscription>> there, List<ChannelSubscription> here) {
        Map<FarSubscription.Same, Place> latest = new HashMap<>();
        there.forEach((exchange, its) -> its.stream().filter(one -> !one.isInGroup())
                .forEach(one -> latest.merge(one.same(), new Place(one.since, exchange),
                        (first, other) -> first.compareTo(other) < 0 ? other : first)));
        Set<FarSubscription.Same> near = here.stream().filter(one -> one.options().group().isEmpty())
                .map(ChannelSubscription::same).collect(Collectors.toSet());
        there.forEach((exchange, its) -> its.removeIf(one -> !one.isInGroup()
                && (latest.get(one.same()).exchange() != exchange || near.contains(one.same()))));
    }
}

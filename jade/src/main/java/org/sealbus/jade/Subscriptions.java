package org.sealbus.jade;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntFunction;
import java.util.function.Predicate;

/** The subscriptions of agents here, and the events that agents here have yet to read. The mesh guards it. */
final class Subscriptions {
    /** Hears whether an agent has read an event. */
    interface Outcome {
        void settle(boolean hasRead);
    }

    private record Waiting(ChannelSubscription subscription, Outcome outcome) {}

    private final Map<Integer, ChannelSubscription> subscriptions = new LinkedHashMap<>();
    private final Map<String, Waiting> unread = new HashMap<>();
    private int lastNumber;
    private long lastEvent;

    /** Adds the subscription that is made with a number. */
    ChannelSubscription add(IntFunction<ChannelSubscription> made) {
        if (subscriptions.size() >= Event.MOST_TARGETS) {
            throw new IllegalStateException("agents of this container have " + Event.MOST_TARGETS + " subscriptions: close one first");
        }
        lastNumber++;
        ChannelSubscription subscription = made.apply(lastNumber);
        subscriptions.put(lastNumber, subscription);
        return subscription;
    }

    boolean remove(ChannelSubscription subscription) {
        return subscriptions.remove(subscription.number(), subscription);
    }

    List<ChannelSubscription> all() {
        return List.copyOf(subscriptions.values());
    }

    ChannelSubscription get(int number) {
        return subscriptions.get(number);
    }

    /** An agent gets an event. Returns the event's id. */
    String unread(ChannelSubscription subscription, Outcome outcome) {
        lastEvent++;
        String id = String.valueOf(lastEvent);
        unread.put(id, new Waiting(subscription, outcome));
        return id;
    }

    /** An agent has read an event, or has handled it as a member of a group. */
    void read(String agent, String event) {
        Waiting waiting = unread.get(event);
        if (waiting != null && waiting.subscription().agent().equals(agent)) {
            unread.remove(event);
            waiting.outcome().settle(true);
        }
    }

    /** An event did not come to its agent. */
    void forget(String event) {
        unread.remove(event);
    }

    /** A subscription was closed. A member of a group handles nothing any more; all other events still wait for their agent. */
    void closed(ChannelSubscription subscription) {
        if (!subscription.options().group().isEmpty()) {
            settle(one -> one == subscription);
        }
    }

    private void settle(Predicate<ChannelSubscription> isOver) {
        for (Map.Entry<String, Waiting> entry : new ArrayList<>(unread.entrySet())) {
            if (isOver.test(entry.getValue().subscription())) {
                unread.remove(entry.getKey());
                // The publishers of a group hear of its members. They mark what a member had: it has perhaps handled it.
                if (entry.getValue().subscription().options().group().isEmpty()) {
                    entry.getValue().outcome().settle(false);
                }
            }
        }
    }

    /** An agent is gone, with its subscriptions, which are returned, and with what it has not read. */
    List<ChannelSubscription> left(String agent) {
        List<ChannelSubscription> its = subscriptions.values().stream().filter(one -> one.agent().equals(agent)).toList();
        its.forEach(this::remove);
        settle(one -> one.agent().equals(agent));
        return its;
    }
}

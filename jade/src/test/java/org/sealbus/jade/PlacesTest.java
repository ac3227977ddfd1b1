package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** An agent that moves, as publishers here know it. */
class PlacesTest {
    private static final SubscriptionOptions EVENTS = SubscriptionOptions.EVENTS;

    private final Exchange first = process(1);
    private final Exchange second = process(2);
    private final List<FarSubscription> atFirst = new ArrayList<>();
    private final List<FarSubscription> atSecond = new ArrayList<>();
    private final List<ChannelSubscription> here = new ArrayList<>();

    private static Exchange process(int number) {
        return new Exchange(null, Identity.parse("spiffe://factory/node/node-1/process/" + String.format("%032x", number)), null, null);
    }

    private static ChannelSubscription near(String agent, String pattern, SubscriptionOptions options) {
        return new ChannelSubscription(null, 1, agent, pattern, options);
    }

    /** A subscription of another process, announced under a certificate that begins at a second. */
    private static FarSubscription far(String agent, long since, String pattern, SubscriptionOptions options) {
        byte[] announced = FarSubscription.announce(near(agent, pattern, options), 1000);
        return new FarSubscription(agent, since, ByteBuffer.wrap(announced).order(ByteOrder.LITTLE_ENDIAN));
    }

    /** The agents that get an event in each of the two processes. */
    private List<List<String>> agents() {
        Map<Exchange, List<FarSubscription>> there = new LinkedHashMap<>();
        there.put(first, atFirst);
        there.put(second, atSecond);
        Places.leave(there, here);
        return there.values().stream().map(its -> its.stream().map(one -> one.agent).toList()).toList();
    }

    @Test
    void anAgentThatMovesHasEachEventInItsLaterPlace() {
        atFirst.add(far("comes", 20, "/dates", EVENTS));
        atFirst.add(far("goes", 10, "/dates", EVENTS));
        atFirst.add(far("stays", 10, "/dates", EVENTS));
        atSecond.add(far("comes", 10, "/dates", EVENTS));
        atSecond.add(far("goes", 20, "/dates", EVENTS));
        assertEquals(List.of(List.of("comes", "stays"), List.of("goes")), agents());
    }

    @Test
    void placesOfTheSameSecondAreToldApart() {
        atFirst.add(far("mover", 10, "/dates", EVENTS));
        atSecond.add(far("mover", 10, "/dates", EVENTS));
        assertEquals(List.of(List.of(), List.of("mover")), agents());
    }

    @Test
    void anAgentThatCameHereHasEachEventHere() {
        atFirst.add(far("mover", 20, "/dates", EVENTS));
        atSecond.add(far("other", 10, "/dates", EVENTS));
        here.add(near("mover", "/dates", EVENTS));
        assertEquals(List.of(List.of(), List.of("other")), agents());
    }

    @Test
    void aSubscriptionStaysUntilTheLaterPlaceHasTheSame() {
        atFirst.add(far("pattern", 10, "/dates", EVENTS));
        atSecond.add(far("pattern", 20, "/**", EVENTS));
        atFirst.add(far("filter", 10, "/dates", EVENTS.filter("content == 'a'")));
        atSecond.add(far("filter", 20, "/dates", EVENTS.filter("content == 'b'")));
        atFirst.add(far("questions", 10, "/dates", EVENTS.answering()));
        atSecond.add(far("questions", 20, "/dates", EVENTS));
        atFirst.add(far("logs", 10, "/dates", EVENTS.durable("place")));
        here.add(near("logs", "/dates", EVENTS));
        List<String> all = List.of("pattern", "filter", "questions");
        assertEquals(List.of(List.of("pattern", "filter", "questions", "logs"), all), agents());
    }

    @Test
    void membersOfGroupsStay() {
        atFirst.add(far("worker", 10, "/jobs", EVENTS.group("workers")));
        atSecond.add(far("worker", 20, "/jobs", EVENTS.group("workers")));
        here.add(near("worker", "/jobs", EVENTS.group("workers")));
        assertEquals(List.of(List.of("worker"), List.of("worker")), agents());
    }
}

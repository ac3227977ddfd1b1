package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** How long publishers here wait for others: for idle subscriptions, and for a process that only greets. */
class PatienceTest {
    private final Publication event =
            new Publication("boss", Head.of(Head.EVENT, new Qos(), "/dates", 1, System.currentTimeMillis(), 0), new byte[9], null);
    private final Publisher publisher = new Publisher(null, null);
    private final Exchange process = new Exchange(null,
            Identity.parse("spiffe://factory/node/node-1/process/00000000000000000000000000000001"), null, null);

    /** A time of the clock that publishers read. */
    private static long at(long second) {
        return TimeUnit.SECONDS.toNanos(1000 + second);
    }

    /** A subscription of another process that may be sent 1000 bytes and was sent 5000: its last event was long. */
    private static FarSubscription idle(int number) {
        ChannelSubscription there = new ChannelSubscription(null, number, "idle", "/dates", SubscriptionOptions.EVENTS);
        byte[] announced = FarSubscription.announce(there, 1000);
        FarSubscription made = new FarSubscription("idle", 1, ByteBuffer.wrap(announced).order(ByteOrder.LITTLE_ENDIAN));
        made.charge(5000);
        return made;
    }

    private Publisher.Chosen chosen(List<FarSubscription> there) {
        Publisher.Chosen chosen = new Publisher.Chosen();
        chosen.there.put(process, new ArrayList<>(there));
        return chosen;
    }

    /** Whether the publisher has to wait for a subscription. */
    private boolean waits(List<FarSubscription> there, long second) {
        return !publisher.hasRoom(event, chosen(there), at(second));
    }

    @Test
    void idleSubscriptionsHoldUpAPublisherTogetherAndNotOneAfterAnother() {
        List<FarSubscription> idle = new ArrayList<>();
        for (int number = 1; number <= 20; number++) {
            idle.add(idle(number));
        }
        assertTrue(waits(idle, 0));
        assertTrue(waits(idle, 29));
        assertFalse(waits(idle, 31));
    }

    @Test
    void anEventThatIsNotPublishedYetHasPassedNobodyBy() {
        FarSubscription idle = idle(1);
        FarSubscription slow = idle(2);
        assertTrue(waits(List.of(idle, slow), 0));
        slow.raise(2000);
        // Publishers look again and again.
        for (int second = 31; second < 50; second++) {
            assertTrue(waits(List.of(idle, slow), second));
        }
        assertEquals(0, idle.missed);
        slow.raise(6000);
        Publisher.Chosen chosen = chosen(List.of(idle, slow));
        assertTrue(publisher.hasRoom(event, chosen, at(50)));
        assertEquals(List.of(slow), chosen.there.get(process));
        publisher.notePassed(event, chosen);
        assertEquals(List.of(1L, 0L), List.of(idle.missed, slow.missed));
    }

    @Test
    void onlyCreditForAnEventBeginsTheWaitOfPublishersAnew() {
        FarSubscription idle = idle(1);
        List<FarSubscription> there = List.of(idle);
        assertTrue(waits(there, 0));
        for (int step = 1; step <= 3; step++) {
            idle.raise(1000 + step);
            assertTrue(waits(there, 9 * step));
        }
        assertFalse(waits(there, 31));
        // The agent takes a short event. Publishers wait again, and the agent misses nothing.
        idle.raise(1003 + Letter.cost(0));
        assertTrue(waits(there, 32));
        assertTrue(waits(there, 60));
        // However little it is, publishers go on, and the time begins anew.
        idle.raise(5000);
        assertTrue(waits(there, 61));
        idle.raise(5001);
        assertFalse(waits(there, 62));
        idle.charge(100);
        assertTrue(waits(there, 95));
    }

    @Test
    void aProcessThatOnlyGreetsSeldomHoldsUpPublishers() {
        Speaking.Introduction introduction = new Speaking.Introduction();
        assertFalse(introduction.isOverdue(at(0)));
        for (int second : new int[] {10, 20, 29}) {
            introduction.beginAnew(at(second));
            assertFalse(introduction.isReady());
            assertFalse(introduction.isOverdue(at(second)));
        }
        assertTrue(introduction.isOverdue(at(30)));
        introduction.excuse();
        for (int second : new int[] {40, 50, 60, 329}) {
            introduction.beginAnew(at(second));
            assertTrue(introduction.isReady());
        }
        // After a long pause, publishers wait for it again, for as long as before.
        introduction.beginAnew(at(330));
        assertFalse(introduction.isReady());
        assertFalse(introduction.isOverdue(at(335)));
        assertFalse(introduction.isOverdue(at(364)));
        assertTrue(introduction.isOverdue(at(365)));
        introduction.excuse();
        introduction.beginAnew(at(370));
        assertTrue(introduction.isReady());
        // Once it has announced its subscriptions, publishers wait for it again when it begins anew.
        introduction.known();
        introduction.beginAnew(at(380));
        assertFalse(introduction.isReady());
        assertFalse(introduction.isOverdue(at(380)));
    }

    @Test
    void aProcessThatWasGivenUpIsWaitedForWhenItGreets() {
        Speaking.Introduction introduction = new Speaking.Introduction();
        introduction.known();
        introduction.beginAnew(at(0));
        introduction.excuse();
        assertTrue(introduction.isReady());
        introduction.beginAnew(at(40));
        assertFalse(introduction.isReady());
    }
}

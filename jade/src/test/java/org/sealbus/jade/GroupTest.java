package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

/** A queue group whose events are not valid yet. */
class GroupTest {
    private final long now = System.currentTimeMillis();
    private final Group group = new Group(null, null, new Group.Key("workers", "/jobs", ""));
    private long numbers;

    private void hold(String qos) {
        Head head = Head.of(Head.EVENT, new Qos().with(qos), "/jobs", 1, now, 0);
        numbers++;
        group.hold(new Publication("boss", head, new byte[9], null), numbers);
    }

    @Test
    void itIsLookedAtOnceWhenTheFirstEventIsValid() {
        hold("valid-from=1h");
        assertEquals(now + 3_600_000, group.serve());
        // However often it is served meanwhile: each time costs memory until then.
        assertEquals(0, group.serve());
        hold("valid-from=2h");
        assertEquals(0, group.serve());
        hold("valid-from=1m,priority=9");
        assertEquals(now + 60_000, group.serve());
        assertEquals(0, group.serve());
        group.awake();
        assertEquals(now + 60_000, group.serve());
    }
}

package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** The words of a quality of service, and the heads of frames that carry it, as the crate {@code channels} has them. */
class QosTest {
    private static Qos qos(String text) {
        return new Qos().with(text);
    }

    @Test
    void wordsChangeWhatTheySayAndNothingElse() {
        Qos qos = qos("best-effort,unordered,persistent=7d,priority=9,valid-from=10s,expiry=20300101T000000000Z,level=auth,ack=agent");
        assertEquals(0, qos.reliability);
        assertFalse(qos.isOrdered);
        assertTrue(qos.isPersistent);
        assertEquals(7 * 86_400_000L, qos.lifetime);
        assertEquals(9, qos.priority);
        assertEquals(10_500, qos.validFrom.from(500));
        assertEquals(1_893_456_000_000L, qos.expiry.from(500));
        assertEquals(2, qos.level);
        assertEquals(2, qos.acknowledgement);
        Qos changed = qos.with("transient,ack=none,exactly-once");
        assertFalse(changed.isPersistent);
        assertEquals(0, changed.acknowledgement);
        assertEquals(9, changed.priority);
        assertTrue(qos.isPersistent);
    }

    @Test
    void whatIsNoQualityIsRefused() {
        for (String wrong : new String[] {"soon", "priority=10", "priority=", "expiry=5", "expiry=s", "expiry=20301301T000000000Z",
            "level=high", "ack=all", "ordered,unordered", "expiry=1s,expiry=2s", "best-effort,exactly-once", ",", "ordered=yes",
            "persistent=", "x".repeat(257)}) {
            assertThrows(IllegalArgumentException.class, () -> qos(wrong), wrong);
        }
    }

    @Test
    void whatAgentsOfJadeCannotHaveIsNamed() {
        assertNull(qos("ack=agent").obstacle(new Qos()));
        assertNull(qos("ack=disk,persistent").obstacle(new Qos()));
        assertTrue(qos("ack=disk").obstacle(new Qos()).contains("persistent"));
        assertTrue(qos("ack=majority,persistent").obstacle(new Qos()).contains("ack=majority"));
        assertTrue(qos("level=sealed").obstacle(new Qos()).contains("level=sealed"));
        assertTrue(qos("level=tls").obstacle(new Qos()).contains("below"));
    }

    @Test
    void headsAreReadAsTheyWereWritten() {
        Random random = new Random(7);
        for (int i = 0; i < 2000; i++) {
            Qos qos = new Qos();
            qos.reliability = random.nextInt(3);
            qos.isOrdered = random.nextBoolean();
            qos.isPersistent = random.nextBoolean();
            qos.lifetime = qos.isPersistent && random.nextBoolean() ? random.nextLong(1L << 50) : -1;
            qos.priority = random.nextInt(10);
            qos.level = random.nextInt(6) - 1;
            qos.acknowledgement = random.nextInt(5);
            int mechanism = random.nextInt(4);
            long validFrom = random.nextBoolean() ? 0 : 1 + random.nextLong(1L << 50);
            long expiry = random.nextBoolean() ? Long.MAX_VALUE : random.nextLong(1L << 50);
            Head head = new Head(mechanism, qos, "/dates/tag-" + i, random.nextLong(Long.MAX_VALUE), random.nextLong(1L << 50),
                    validFrom, expiry, random.nextBoolean(), mechanism == Head.MESSAGE ? "seller@factory" : null,
                    mechanism >= Head.QUESTION ? random.nextLong(1L << 60) : 0);
            byte[] written = Event.write(head, List.of(1, 200, 70_000), new byte[] {1, 2, 3});
            Event read = Event.read(ByteBuffer.wrap(written));
            assertEquals(head.toString().replaceAll("Qos@[0-9a-f]+", ""), read.head().toString().replaceAll("Qos@[0-9a-f]+", ""));
            byte[] again = Event.write(read.head(), read.targets(), read.body());
            assertEquals(ByteBuffer.wrap(written), ByteBuffer.wrap(again));
        }
    }

    @Test
    void bytesOfStrangersAreRefusedOrRead() {
        Random random = new Random(11);
        byte[] whole = Event.write(Head.of(Head.EVENT, qos("persistent=1d,expiry=1h"), "/a/b", 3, 5, 0), List.of(1), new byte[9]);
        for (int i = 0; i < 20_000; i++) {
            byte[] bytes = java.util.Arrays.copyOf(whole, random.nextInt(whole.length + 1));
            for (int j = 0; j < 3 && bytes.length > 0; j++) {
                bytes[random.nextInt(bytes.length)] = (byte) random.nextInt(256);
            }
            try {
                Event.read(ByteBuffer.wrap(bytes));
            } catch (BufferUnderflowException refused) {
                continue;
            }
        }
    }
}

package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.sealbus.jade.MeshWire.counted;
import static org.sealbus.jade.MeshWire.epoch;
import static org.sealbus.jade.MeshWire.flood;
import static org.sealbus.jade.MeshWire.head;
import static org.sealbus.jade.MeshWire.onChannels;
import static org.sealbus.jade.MeshWire.row;
import static org.sealbus.jade.MeshWire.until;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import javax.net.ssl.SSLSocket;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The port at which agents of a container get messages of other processes: strangers, and processes of the platform that keep no
 * rule. The container has 128 MiB of memory. After each attack its agent still answers.
 */
class MeshPortTest {
    @TempDir
    static Path folder;

    private static Platform factory;
    private static Platform.Program main;
    private static MeshWire wire;
    private static int members;

    @BeforeAll
    static void start() throws Exception {
        factory = new Platform(folder, "");
        main = factory.mainContainer("jade-main pong full fragile", Platform.freePort(), "-agents",
                "pong:org.sealbus.jade.Pong;full:org.sealbus.jade.Full;fragile:org.sealbus.jade.Fragile");
        for (String agent : List.of("pong", "full", "fragile")) {
            Platform.await(() -> factory.shows(agent, "active"), agent, main);
        }
        try (Membership asker = member("asker")) {
            String address = Json.text(asker.ask(Map.of("ask", "resolve", "agent", "pong")), "address");
            int colon = address.lastIndexOf(':');
            wire = new MeshWire(
                    new InetSocketAddress(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1))), main);
        }
    }

    @AfterAll
    static void end() {
        factory.close();
    }

    @AfterEach
    void theAgentStillAnswers() {
        String answer = factory.run("send", "pong", "a ball", "--performative", "request", "--timeout", "120s");
        assertTrue(answer.contains("pong@factory") && answer.contains("a ball"), answer + main.output());
        assertFalse(main.output().contains("OutOfMemory"), main::output);
    }

    private static Membership member(String name) throws IOException, GeneralSecurityException {
        members++;
        return Membership.join(Ticket.parse(factory.ticket(name + "-" + members)), new Membership.Listener() {
            @Override
            public void trustChanged() {}

            @Override
            public void ended(String why) {}
        });
    }

    @Test
    void strangersAreNotHeard() throws Exception {
        for (int i = 0; i < 50; i++) {
            try (Socket socket = wire.socket()) {
                byte[] noise = new byte[i * 100];
                new Random(i).nextBytes(noise);
                socket.getOutputStream().write(noise);
                socket.shutdownOutput();
                wire.awaitEnd(socket);
            } catch (IOException ended) {
                continue;
            }
        }
        try (Socket socket = wire.socket(); Membership mallory = member("mallory")) {
            // Without a certificate, and with that of an agent.
            assertThrows(IOException.class, () -> greet(Tls.connect(socket, null, chain -> {}, Mesh.PROTOCOL), "x"));
            assertThrows(IOException.class,
                    () -> greet(Tls.connect(wire.socket(), mallory.credential(), chain -> {}, Mesh.PROTOCOL), "x"));
            // A process that takes another one's name.
            mallory.enlist();
            String node = mallory.process().peer().identity().toString().replaceAll("[0-9a-f]{32}$", "0".repeat(32));
            assertThrows(IOException.class, () -> greet(wire.shown(mallory), node));
        }
    }

    private static void greet(SSLSocket tls, String process) throws IOException {
        tls.setSoTimeout((int) Platform.LIMIT * 1000);
        tls.getOutputStream().write(new Frame.Hello(false, Mesh.token(), new byte[16], new byte[16], 0, 1,
                Mesh.LARGEST_MESSAGE, process, "127.0.0.1:9").bytes());
        Frame.Hello.read(tls.getInputStream());
    }

    @Test
    void aProcessThatHasEndedIsNotHeardAgain() throws Exception {
        Membership former = member("former");
        former.enlist();
        wire.begun(former).close();
        former.close();
        factory.run("kill", former.name());
        Platform.await(() -> {
            try {
                wire.begun(former).close();
                return false;
            } catch (IOException refused) {
                return true;
            }
        }, "the end of its rights", main);
    }

    @Test
    void aThousandIdleConnectionsKeepNobodyOut() throws Exception {
        List<Socket> idle = new ArrayList<>();
        try {
            for (int i = 0; i < 1000; i++) {
                Socket socket = wire.socket();
                idle.add(socket);
                if (i % 2 == 0) {
                    // The beginning of a handshake.
                    socket.getOutputStream().write(new byte[] {22, 3, 1, 2, 0, 1});
                }
            }
            theAgentStillAnswers();
            // Processes whose certificates hold are let in.
            try (Membership honest = member("honest")) {
                honest.enlist();
                Platform.await(() -> {
                    try {
                        wire.begun(honest).close();
                        return true;
                    } catch (IOException crowded) {
                        return false;
                    }
                }, "a process to be let in", main);
            }
        } finally {
            for (Socket socket : idle) {
                socket.close();
            }
        }
    }

    @Test
    void lengthsThatAreNotAllowedEndTheConnection() throws Exception {
        try (Membership mallory = member("mallory")) {
            mallory.enlist();
            for (int length : new int[] {-1, Integer.MIN_VALUE, Integer.MAX_VALUE, Frame.LONGEST_FIRST_BODY + 1}) {
                try (SSLSocket tls = wire.shown(mallory)) {
                    tls.getOutputStream().write(Frame.preface());
                    tls.getOutputStream().write(head(length, Frame.HELLO, 0));
                    wire.awaitEnd(tls);
                }
            }
            for (int length : new int[] {-1, Integer.MIN_VALUE, Integer.MAX_VALUE, Frame.LONGEST_BODY + 1}) {
                try (SSLSocket tls = wire.begun(mallory)) {
                    tls.getOutputStream().write(head(length, Frame.MESSAGE, 0));
                    wire.awaitEnd(tls);
                }
            }
            // Every frame cut short, with a body of nothing or of one byte.
            for (int kind = 0; kind < 40; kind++) {
                for (int length = 0; length < 2; length++) {
                    try (SSLSocket tls = wire.begun(mallory)) {
                        tls.getOutputStream().write(head(length, kind, 0));
                        tls.getOutputStream().write(new byte[length]);
                        tls.shutdownOutput();
                        wire.awaitEnd(tls);
                    }
                }
            }
            // A message of 2 GiB in pieces.
            try (SSLSocket tls = wire.begun(mallory)) {
                OutputStream out = tls.getOutputStream();
                out.write(counted(0, Frame.TARGET, new Frame.Body().u32(0).text("pong@factory")));
                out.write(counted(1, Frame.BEGIN, new Frame.Body().u32(0).u32(0).u32(Integer.MAX_VALUE).bytes(new byte[9])));
                wire.awaitEnd(tls);
            }
            // Messages of 90 MB, of 530 MB and of 8 MB in a row, in a frame of 63 kB, of 64 kB and of 8 kB.
            for (int[] row : new int[][] {{60_000, 1_500}, {32_000, 16_600}, {4_000, 2_000}}) {
                try (SSLSocket tls = wire.begun(mallory)) {
                    OutputStream out = tls.getOutputStream();
                    out.write(counted(0, Frame.TARGET, new Frame.Body().u32(0).text("pong@factory")));
                    out.write(counted(1, Frame.ROW, row(row[0], row[1])));
                    wire.awaitEnd(tls);
                }
            }
        }
    }

    @Test
    void aRowMayBeAsLongAsSealbusWritesIt() throws Exception {
        try (Membership mallory = member("mallory"); SSLSocket tls = wire.begun(enlisted(mallory))) {
            OutputStream out = tls.getOutputStream();
            out.write(counted(0, Frame.TARGET, new Frame.Body().u32(0).text("pong@factory")));
            out.write(counted(1, Frame.ROW, row(2_000, 1_040)));
            out.write(new Frame.Body().frame(Frame.PING));
            assertEquals(1_041, until(tls, Frame.PONG).stream().filter(frame -> frame.kind() == Frame.RETURNED).count());
        }
    }

    @Test
    void aTargetThatIsNotOpenTakesNothing() throws Exception {
        try (Membership mallory = member("mallory")) {
            mallory.enlist();
            for (Frame.Body body : List.of(row(2_000, 1_000), row(1, 1))) {
                try (SSLSocket tls = wire.begun(mallory)) {
                    OutputStream out = tls.getOutputStream();
                    out.write(counted(0, Frame.TARGET, new Frame.Body().u32(0).text("nobody@factory")));
                    out.write(counted(1, Frame.ROW, body));
                    wire.awaitEnd(tls);
                }
            }
        }
    }

    @Test
    void aFullAgentIsLookedAtByOneAtATime() throws Exception {
        try (Membership mallory = member("mallory"); SSLSocket tls = wire.begun(enlisted(mallory))) {
            OutputStream out = tls.getOutputStream();
            out.write(counted(0, Frame.TARGET, new Frame.Body().u32(0).text("full@factory")));
            until(tls, Frame.ACCEPT);
            factory.run("send", "full", "now", "--performative", "request", "--timeout", "120s");
            byte[] sender = new Frame.Body().u32(7).u32(0).done();
            int sent = 1;
            for (; sent <= 3; sent++) {
                out.write(counted(sent, Frame.MESSAGE, new Frame.Body().bytes(sender).bytes(new byte[60_000])));
            }
            // More than half of the credit is used up.
            for (; sent <= 800; sent++) {
                out.write(counted(sent, Frame.MESSAGE, new Frame.Body().bytes(sender).bytes(new byte[1])));
            }
            out.write(new Frame.Body().frame(Frame.PING));
            until(tls, Frame.PONG);
            String last = main.output().lines().filter(line -> line.contains("full was asked for room")).reduce("", (any, line) -> line);
            int asked = Integer.parseInt(last.replaceAll(".*room ([0-9]+) times.*", "$1"));
            assertTrue(asked < 400, last);
        }
    }

    @Test
    void aFailureInTheMidstOfAFrameEndsTheSession() throws Exception {
        factory.run("send", "fragile", "now", "--performative", "request", "--timeout", "120s");
        try (Membership mallory = enlisted(member("mallory"))) {
            wire.endsSessionInTheMidstOfAFrame(mallory, "fragile");
        }
        main.says("a failure that is none of the mesh's");
    }

    @Test
    void messagesInARowAreTakenOneByOne() throws Exception {
        try (Membership mallory = member("mallory")) {
            mallory.enlist();
            try (SSLSocket tls = wire.begun(mallory)) {
                OutputStream out = tls.getOutputStream();
                out.write(counted(0, Frame.TARGET, new Frame.Body().u32(0).text("pong@factory")));
                // The messages one, oxy and o, of an agent that was never bound.
                out.write(counted(1, Frame.ROW, new Frame.Body().u32(7).u32(0).text("one").number(2, 2).text("xy").number(2, 0)
                        .number(2, 3).number(2, 1)));
                tls.setSoTimeout((int) Platform.LIMIT * 1000);
                List<String> returned = new ArrayList<>();
                while (returned.size() < 3) {
                    Frame frame = Frame.read(tls.getInputStream(), Frame.LONGEST_BODY);
                    if (frame.kind() == Frame.RETURNED) {
                        returned.add(Frame.text(frame.in().position(4 + 4 + 1)));
                    }
                }
                assertEquals(List.of("one", "oxy", "o"), returned);
            }
        }
    }

    @Test
    void noiseWithinASessionDoesNoHarm() throws Exception {
        Random random = new Random(1);
        int begun = 0;
        try (Membership mallory = member("mallory")) {
            mallory.enlist();
            for (int round = 0; round < 60; round++) {
                try (SSLSocket tls = wire.begun(mallory)) {
                    begun++;
                    OutputStream out = tls.getOutputStream();
                    out.write(counted(0, Frame.TARGET, new Frame.Body().u32(0).text("pong@factory")));
                    for (int sequence = 1; sequence < 20; sequence++) {
                        byte[] body = new byte[random.nextInt(200)];
                        random.nextBytes(body);
                        // The target that is open, as often as not.
                        for (int at = 0; at < Math.min(8, body.length) && random.nextBoolean(); at++) {
                            body[at] = 0;
                        }
                        out.write(counted(sequence, 1 + random.nextInt(30), new Frame.Body().bytes(body)));
                    }
                    tls.shutdownOutput();
                    wire.awaitEnd(tls);
                } catch (IOException ended) {
                    continue;
                }
            }
        }
        assertTrue(begun > 0, main::output);
        assertFalse(main.output().contains("pong got"), main::output);
    }

    @Test
    void noiseOnChannelsDoesNoHarm() throws Exception {
        Random random = new Random(3);
        int[] kinds = {0x02, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x20, 0x21, 0x22, 0x23, 0x24, 0x30, 0x77};
        int spoken = 0;
        try (Membership mallory = member("mallory")) {
            mallory.enlist();
            for (int round = 0; round < 30; round++) {
                try (SSLSocket tls = wire.begun(mallory)) {
                    long own = System.currentTimeMillis() + round;
                    long session = Exchange.session(own, epoch(tls, own, 1 << 20));
                    spoken++;
                    Frame.Body row = new Frame.Body();
                    for (int number = 1; number < 200; number++) {
                        byte[] noise = new byte[random.nextInt(60)];
                        random.nextBytes(noise);
                        for (int at = 0; at < noise.length && random.nextInt(4) > 0; at++) {
                            noise[at] &= 0x0f;
                        }
                        Frame.Body frame = new Frame.Body().number(1, kinds[random.nextInt(kinds.length)]).number(8, session);
                        row.bytes(counted(2 + number, Frame.MESSAGE, onChannels(frame.leb(number).bytes(noise))));
                    }
                    tls.getOutputStream().write(row.done());
                    tls.shutdownOutput();
                    wire.awaitEnd(tls);
                } catch (IOException ended) {
                    continue;
                }
            }
        }
        assertTrue(spoken > 0, main::output);
        assertFalse(main.output().contains("the mesh failed"), main::output);
    }

    @Test
    void oneAcknowledgementWaitsForAProcessThatTakesNone() throws Exception {
        try (Membership mallory = member("mallory"); SSLSocket tls = wire.begun(enlisted(mallory))) {
            OutputStream out = tls.getOutputStream();
            long own = System.currentTimeMillis();
            long container = epoch(tls, own, 1);
            int last = 3000;
            for (int number = 1; number <= last; number++) {
                Frame.Body nothing = new Frame.Body().number(1, Exchange.VOID).number(8, Exchange.session(own, container)).leb(number);
                out.write(counted(2 + number, Frame.MESSAGE, onChannels(nothing)));
            }
            out.write(counted(3 + last, Frame.CREDIT, new Frame.Body().u32(0).number(8, 1 << 20)));
            out.write(new Frame.Body().frame(Frame.PING));
            List<Frame> acknowledgements = until(tls, Frame.PONG).stream()
                    .filter(frame -> frame.kind() == Frame.MESSAGE && frame.body()[8] == 2).toList();
            // One may have been on its way behind the greeting, and one behind what the container told of its agents.
            assertTrue(acknowledgements.size() <= 2, acknowledgements.size() + " acknowledgements");
            ByteBuffer newest = acknowledgements.get(acknowledgements.size() - 1).in().position(4 + 4 + 1 + 8 + 1);
            assertEquals(last, Head.number(newest));
        }
    }

    @Test
    void aProcessThatTakesNoAnswersOnChannelsFillsNoMemory() throws Exception {
        String mallory;
        try (Membership member = member("mallory")) {
            SSLSocket tls = wire.begun(enlisted(member));
            mallory = member.process().peer().identity().toString();
            long own = System.currentTimeMillis();
            epoch(tls, own, 1);
            wire.readOn(tls);
            // Each greeting is answered.
            byte[] greeting = onChannels(new Frame.Body().number(1, 1).number(8, own).number(8, 0)).done();
            assertThrows(IOException.class, () -> flood(tls, 3, sequence ->
                    counted(sequence, Frame.MESSAGE, new Frame.Body().bytes(greeting))));
        }
        main.says(mallory + " makes this container keep too much for it");
    }

    @Test
    void proofsThatDoNotHoldFillNoMemoryAndNoLog() throws Exception {
        try (Membership mallory = member("mallory")) {
            SSLSocket tls = wire.begun(enlisted(mallory));
            wire.readOn(tls);
            byte[] proof = new Frame.Body().u32(7).number(1, 0).frame(Frame.BIND);
            assertThrows(IOException.class, () -> flood(tls, 0, any -> proof));
            String peer = mallory.process().peer().identity().toString();
            long lines = main.output().lines().filter(line -> line.contains("an agent of " + peer + " is refused")).count();
            assertTrue(lines < 20, lines + " lines");
        }
    }

    @Test
    void aProcessThatDoesNotReadLosesItsConnection() throws Exception {
        try (Membership mallory = member("mallory")) {
            mallory.enlist();
            byte[] pings = new Frame.Body().frame(Frame.PING);
            byte[] many = new byte[pings.length * 4096];
            for (int at = 0; at < many.length; at += pings.length) {
                System.arraycopy(pings, 0, many, at, pings.length);
            }
            SSLSocket tls = wire.begun(mallory);
            assertThrows(IOException.class, () -> {
                // 4 GiB of answers: more than any bound.
                for (long sent = 0; sent < 4L << 30; sent += many.length) {
                    tls.getOutputStream().write(many);
                }
            });
        }
        main.says("does not read: its connection ends");
    }

    @Test
    void aProcessThatAcknowledgesNothingFillsNoMemory() throws Exception {
        try (Membership mallory = member("mallory")) {
            SSLSocket tls = wire.begun(enlisted(mallory));
            wire.readOn(tls);
            assertThrows(IOException.class, () -> {
                OutputStream out = tls.getOutputStream();
                for (int sequence = 0; sequence < 20_000_000; ) {
                    Frame.Body row = new Frame.Body();
                    for (int i = 0; i < 500; i++) {
                        row.bytes(counted(sequence++, Frame.TARGET, new Frame.Body().u32(7).text("nobody@factory")));
                        row.bytes(counted(sequence++, Frame.CLOSE_TARGET, new Frame.Body().u32(7)));
                    }
                    out.write(row.done());
                }
            });
        }
    }

    @Test
    void namesOfTargetsTakeNoMemory() throws Exception {
        try (Membership mallory = member("mallory"); SSLSocket tls = wire.begun(enlisted(mallory))) {
            OutputStream out = tls.getOutputStream();
            out.write(counted(0, Frame.TARGET,
                    new Frame.Body().u32(0).text("n".repeat(60_000) + "@factory")));
            wire.awaitEnd(tls);
        }
    }

    @Test
    void anAgentHasOneCreditOnALink() throws Exception {
        try (Membership mallory = member("mallory"); SSLSocket tls = wire.begun(enlisted(mallory))) {
            OutputStream out = tls.getOutputStream();
            out.write(counted(0, Frame.TARGET, new Frame.Body().u32(0).text("pong@factory")));
            out.write(counted(1, Frame.TARGET, new Frame.Body().u32(1).text("pong@factory")));
            wire.awaitEnd(tls);
        }
    }

    private static Membership enlisted(Membership member) throws IOException, GeneralSecurityException {
        member.enlist();
        return member;
    }
}

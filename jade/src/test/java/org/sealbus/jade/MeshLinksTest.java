package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.sealbus.jade.MeshWire.counted;
import static org.sealbus.jade.MeshWire.epoch;
import static org.sealbus.jade.MeshWire.onChannels;
import static org.sealbus.jade.MeshWire.until;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.SocketTimeoutException;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLSocket;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The links of a container to other processes, and what is left of them. */
class MeshLinksTest {
    @TempDir
    static Path folder;

    private static Platform factory;
    private static Platform.Program main;
    private static MeshWire wire;
    private static int members;

    @BeforeAll
    static void start() throws Exception {
        factory = new Platform(folder, "");
        main = factory.mainContainer("jade-main inside brittle", Platform.freePort(), "-agents",
                "inside:org.sealbus.jade.Inside;brittle:org.sealbus.jade.Fragile(softly)");
        for (String agent : List.of("inside", "brittle")) {
            Platform.await(() -> factory.shows(agent, "active"), agent, main);
        }
        try (Membership asker = member("asker")) {
            String address = Json.text(asker.ask(Map.of("ask", "resolve", "agent", "inside")), "address");
            int colon = address.lastIndexOf(':');
            wire = new MeshWire(
                    new InetSocketAddress(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1))), main);
        }
    }

    @AfterAll
    static void end() {
        factory.close();
    }

    private static Membership member(String name) throws IOException, GeneralSecurityException {
        members++;
        Membership made = Membership.join(Ticket.parse(factory.ticket(name + "-" + members)), new Membership.Listener() {
            @Override
            public void trustChanged() {}

            @Override
            public void ended(String why) {}
        });
        made.enlist();
        return made;
    }

    /** Looks into the container. */
    private static long number(String... words) {
        String answer = factory.run("send", "inside", String.join("\n", words), "--performative", "request", "--timeout", "120s");
        Matcher number = Pattern.compile(words[0] + ": ([0-9]+)\\.").matcher(answer);
        assertTrue(number.find(), () -> answer + main.output());
        return Long.parseLong(number.group(1));
    }

    private static String name(Membership member) {
        return member.process().peer().identity().toString();
    }

    @Test
    void aConnectionThatHasEndedLeavesNoThreadBehind() throws Exception {
        try (Membership other = member("other")) {
            for (int i = 0; i < 40; i++) {
                wire.begun(other).close();
            }
        }
        Platform.await(() -> number("threads", "sealbus-mesh-write") < 20, "the end of the threads that write", main);
    }

    @Test
    void aProcessThatHasSaidGoodbyeIsForgotten() throws Exception {
        long before = number("links");
        List<Membership> gone = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            Membership other = member("gone");
            gone.add(other);
            try (SSLSocket tls = wire.begun(other)) {
                tls.getOutputStream().write(new Frame.Body().number(1, 0).text("this process ends").frame(Frame.GOODBYE));
                wire.awaitEnd(tls);
            }
        }
        Platform.await(() -> number("links") <= before, "the end of the links", main);
        gone.forEach(Membership::close);
    }

    @Test
    void aProcessThatSaysNothingIsAskedAndThenLosesItsConnection() throws Exception {
        try (Membership other = member("silent"); SSLSocket tls = wire.begun(other)) {
            until(tls, Frame.PING);
            wire.awaitEnd(tls);
        }
    }

    @Test
    void aProcessThatAnswersKeepsItsConnection() throws Exception {
        try (Membership other = member("patient"); SSLSocket tls = wire.begun(other)) {
            // By then a silent process has lost its connection.
            for (int i = 0; i < 4; i++) {
                until(tls, Frame.PING);
                tls.getOutputStream().write(new Frame.Body().frame(Frame.PONG));
            }
        }
    }

    @Test
    void aProcessDoesNotChooseTheMachineToWhichTheContainerConnects() throws Exception {
        try (Membership mallory = member("mallory");
                ServerSocket right = new ServerSocket(0, 5, InetAddress.getByName("127.0.0.1"));
                ServerSocket wrong = new ServerSocket(right.getLocalPort(), 5, InetAddress.getByName("127.0.0.2"))) {
            try (SSLSocket tls = wire.shown(mallory)) {
                tls.getOutputStream().write(new Frame.Hello(false, Mesh.token(), new byte[16], new byte[16], 0, 1,
                        Mesh.LARGEST_MESSAGE, name(mallory), "127.0.0.2:" + right.getLocalPort()).bytes());
                Frame.Hello.read(tls.getInputStream());
                // The answer is not acknowledged, so the container connects to bring it again.
                tls.getOutputStream().write(counted(0, Frame.TARGET, new Frame.Body().u32(0).text("nobody@factory")));
                until(tls, Frame.LEAVING);
            }
            right.setSoTimeout((int) Platform.LIMIT * 1000);
            right.accept().close();
            wrong.setSoTimeout(1);
            assertThrows(SocketTimeoutException.class, wrong::accept);
        }
    }

    @Test
    void anExceptionInTheMidstOfAFrameEndsTheSession() throws Exception {
        factory.run("send", "brittle", "now", "--performative", "request", "--timeout", "120s");
        try (Membership other = member("other")) {
            wire.endsSessionInTheMidstOfAFrame(other, "brittle");
        }
        main.says("an exception of an agent's own queue");
    }

    @Test
    void aProcessThatBreaksRulesFillsNoLog() throws Exception {
        try (Membership mallory = member("mallory")) {
            for (int i = 0; i < 50; i++) {
                try (SSLSocket tls = wire.begun(mallory)) {
                    tls.getOutputStream().write(counted(0, Frame.MESSAGE, new Frame.Body().u32(0).u32(0)));
                    wire.awaitEnd(tls);
                }
            }
            try (SSLSocket tls = wire.begun(mallory)) {
                OutputStream out = tls.getOutputStream();
                long own = System.currentTimeMillis();
                long session = Exchange.session(own, epoch(tls, own, 1 << 20));
                for (int sequence = 3; sequence < 1003; sequence++) {
                    Frame.Body cut = new Frame.Body().number(1, Exchange.EVENT).number(8, session).leb(0);
                    out.write(counted(sequence, Frame.MESSAGE, onChannels(cut)));
                }
                out.write(new Frame.Body().frame(Frame.PING));
                until(tls, Frame.PONG);
            }
            String process = name(mallory);
            Platform.await(() -> main.output().contains(process + " breaks a rule"), "a line about it", main);
            long lines = main.output().lines().filter(line -> line.contains(process)).count();
            assertTrue(lines < 20, lines + " lines");
        }
        assertEquals(1, number("write", "inside@factory", "INFORM", "hello"));
    }
}

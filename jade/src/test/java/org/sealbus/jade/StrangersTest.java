package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Strangers that come to a container's port. After each attack the container still answers. */
class StrangersTest {
    @TempDir
    static Path folder;

    private static Platform factory;
    private static Platform.Program main;
    private static int port;

    @BeforeAll
    static void start() throws IOException {
        factory = new Platform(folder, "");
        port = Platform.freePort();
        main = factory.mainContainer("jade-main", port);
    }

    @AfterAll
    static void end() {
        factory.close();
    }

    /** Whatever it hears, it goes on. */
    private static final class Heedless implements Membership.Listener {
        @Override
        public void trustChanged() {}

        @Override
        public void ended(String why) {}
    }

    private static Membership member(String name) throws IOException, GeneralSecurityException {
        return Membership.join(Ticket.parse(factory.ticket(name)), new Heedless());
    }

    private static Link connect(Membership member) throws IOException {
        return connect(member, port);
    }

    private static Link connect(Membership member, int to) throws IOException {
        // It takes any member for a container, so that only the other end decides.
        Containers all = new Containers(member.trust(), "*");
        Link link = Link.open(new Socket("127.0.0.1", to), member.credential(), all);
        try {
            link.awaitLetIn();
            return link;
        } catch (IOException refused) {
            link.close();
            throw refused;
        }
    }

    /** Whether the other end says nothing more. */
    private static boolean endsNow(Socket tls) {
        try {
            return tls.getInputStream().read() < 0;
        } catch (IOException broken) {
            return true;
        }
    }

    @Test
    void aContainerIsLetIn() throws Exception {
        try (Membership member = member("jade-honest"); Link link = connect(member)) {
            assertEquals("jade-main", link.peer().identity().name());
        }
    }

    @Test
    void anAgentThatIsNoContainerIsRefused() throws Exception {
        try (Membership member = member("mallory")) {
            assertThrows(IOException.class, () -> connect(member).close());
        }
        main.says("spiffe://factory/agent/mallory may not be a container here");
        aContainerIsLetIn();
    }

    @Test
    void withoutACertificateNobodyIsLetIn() throws Exception {
        Socket socket = new Socket("127.0.0.1", port);
        assertThrows(IOException.class, () -> {
            if (!endsNow(Tls.connect(socket, null, chain -> {}, Link.PROTOCOL))) {
                throw new AssertionError("it is let in");
            }
            throw new IOException("it is not let in");
        });
        aContainerIsLetIn();
    }

    @Test
    void aCertificateOfAnotherPlatformIsRefused(@TempDir Path elsewhere) throws Exception {
        try (Platform other = new Platform(elsewhere, "")) {
            Membership member = Membership.join(Ticket.parse(other.ticket("jade-evil")), new Heedless());
            try (member; Membership honest = member("jade-witness")) {
                // Its platform has the same name, and its own end believes this platform's roots.
                Containers ours = new Containers(honest.trust(), "*");
                assertThrows(IOException.class, () -> {
                    try (Link link = Link.open(new Socket("127.0.0.1", port), member.credential(), ours)) {
                        link.awaitLetIn();
                    }
                });
            }
        }
        main.says("the certificate of spiffe://factory/agent/jade-evil is not of factory");
        aContainerIsLetIn();
    }

    @Test
    void aRevokedContainerThatStaysIsCutOffAndNotLetInAgain() throws Exception {
        try (Membership member = member("jade-stays"); Link link = connect(member)) {
            factory.run("ca", "revoke", "jade-stays");
            // JADE answers what it cannot read too, until the connection ends.
            Platform.await(() -> {
                try {
                    link.call(new byte[0], 0);
                    return false;
                } catch (IOException ended) {
                    return true;
                }
            }, "the end of its connection", main);
            assertThrows(IOException.class, () -> connect(member).close());
        }
        main.says("spiffe://factory/agent/jade-stays was revoked");
        aContainerIsLetIn();
    }

    /** It lets others in, and reads nothing: it answers neither a short command nor one that no buffer holds. */
    @Test
    void aContainerThatDoesNotAnswerHoldsNoCallerForEver() throws Exception {
        List<Link> taken = new CopyOnWriteArrayList<>();
        try (Membership silent = member("jade-silent"); Membership caller = member("jade-caller");
                ServerSocket server = new ServerSocket(0, 5, InetAddress.getByName("127.0.0.1"))) {
            Door.start("silent", () -> {
                try {
                    while (true) {
                        Link link = Link.accept(server.accept(), silent.credential(), new Containers(silent.trust(), "*"));
                        taken.add(link);
                        link.letIn();
                    }
                } catch (IOException over) {
                    taken.forEach(Link::close);
                }
            });
            for (int length : new int[] {0, 32 << 20}) {
                try (Link link = connect(caller, server.getLocalPort())) {
                    IOException late = assertThrows(IOException.class, () -> link.call(new byte[length], 1));
                    assertTrue(late.getMessage().startsWith("spiffe://factory/agent/jade-silent did not answer"), late::toString);
                }
            }
        }
    }

    @Test
    void silentAndNoisyStrangersKeepNoContainerOut() throws Exception {
        List<Socket> silent = new ArrayList<>();
        try {
            for (int i = 0; i < 200; i++) {
                Socket socket = new Socket("127.0.0.1", port);
                silent.add(socket);
                if (i % 2 == 0) {
                    socket.getOutputStream().write("GET / HTTP/1.1\r\n\r\n".repeat(50).getBytes());
                }
            }
        } catch (IOException refused) {
            // That is allowed.
        }
        Platform.await(() -> {
            try {
                aContainerIsLetIn();
                return true;
            } catch (Exception full) {
                return false;
            }
        }, "a container to be let in", main);
        for (Socket socket : silent) {
            socket.close();
        }
    }

    @Test
    void aFrameThatIsTooLongEndsItsConnectionAlone() throws Exception {
        try (Membership member = member("jade-long"); Socket socket = new Socket("127.0.0.1", port)) {
            var tls = Tls.connect(socket, member.credential(), chain -> {}, Link.PROTOCOL);
            assertEquals(1, tls.getInputStream().read());
            tls.getOutputStream().write(ByteBuffer.allocate(4).putInt(Integer.MAX_VALUE).array());
            assertTrue(endsNow(tls));
        }
        main.says("a frame of 2147483647 bytes");
        aContainerIsLetIn();
    }

    @Test
    void aTicketIsGoodOnce() throws Exception {
        String ticket = factory.ticket("jade-once");
        try (Membership first = Membership.join(Ticket.parse(ticket), new Heedless())) {
            assertEquals("jade-once", first.name());
            assertThrows(Attachment.Refused.class, () -> Membership.join(Ticket.parse(ticket), new Heedless()));
        }
    }
}

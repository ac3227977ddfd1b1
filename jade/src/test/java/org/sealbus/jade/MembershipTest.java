package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jade.lang.acl.ACLMessage;
import java.nio.file.Path;
import java.security.cert.CertificateException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A member of a real platform, whose node or whose Master is away for a while. */
class MembershipTest {
    @TempDir
    Path folder;

    /** Notes what it hears. */
    private static final class Witness implements Membership.Listener {
        private final AtomicInteger attachments = new AtomicInteger();
        private final LinkedBlockingQueue<Object> letters = new LinkedBlockingQueue<>();
        private volatile String ended;

        @Override
        public void trustChanged() {}

        @Override
        public void ended(String why) {
            ended = why;
        }

        @Override
        public void heard(String notice, Object body) {
            if (notice.equals("attached")) {
                attachments.incrementAndGet();
            } else if (notice.equals("letters")) {
                letters.add(body);
            }
        }

        /** Waits until the node has taken the member back so often. */
        void isAttachedAgain(int times, Platform factory) {
            Platform.await(() -> attachments.get() >= times || ended != null, "the node", factory.up());
            assertNull(ended);
        }
    }

    private static Membership member(Platform factory, Witness witness, String... agents) throws Exception {
        Membership member = Membership.join(Ticket.parse(factory.ticket(agents)), witness);
        member.reportActive(member.name());
        for (String agent : member.agents()) {
            if (!agent.equals(member.name())) {
                member.certify(agent);
                member.reportActive(agent);
            }
            Platform.await(() -> factory.shows(agent, "active"), agent, factory.up());
        }
        return member;
    }

    @Test
    void aNodeThatWasStartedAnewHearsWhichAgentsLiveThere() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Witness witness = new Witness();
            try (Membership member = member(factory, witness, "jade-a", "first", "second")) {
                factory.killNode();
                witness.isAttachedAgain(1, factory);
                member.reportEnded("second");
                Platform.await(() -> !factory.shows("second", "active"), "the end of second", factory.up());
                // A node that takes all agents for ended gives the process up as soon as its connection breaks.
                member.attachment.close();
                witness.isAttachedAgain(2, factory);
                assertTrue(factory.shows("first", "active"), factory.up()::output);
            }
        }
    }

    @Test
    void theEndOfAnAgentIsToldWhenTheNodeIsBack() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Witness witness = new Witness();
            try (Membership member = member(factory, witness, "jade-a", "first")) {
                factory.killNode();
                member.reportEnded("first");
                Platform.await(() -> !factory.shows("first", "active"), "the end of first", factory.up());
                witness.isAttachedAgain(1, factory);
                assertTrue(factory.shows("jade-a", "active"), factory.up()::output);
            }
        }
    }

    @Test
    void aCertificateThatHasExpiredIsNotARevokedOne() throws Exception {
        try (Platform factory = new Platform(folder, "lifetime = \"5s\"")) {
            Witness witness = new Witness();
            try (Membership member = member(factory, witness, "jade-a")) {
                ProcessHandle master = factory.up().process().toHandle();
                Platform.signal(master, "STOP");
                try {
                    Platform.await(() -> !isValid(member), "the end of the certificate", factory.up());
                    // With the node's answer comes the deny list.
                    member.attachment.close();
                    witness.isAttachedAgain(1, factory);
                } finally {
                    Platform.signal(master, "CONT");
                }
                Platform.await(() -> isValid(member), "another certificate", factory.up());
                assertNull(witness.ended);
            }
        }
    }

    private static boolean isValid(Membership member) {
        try {
            member.trust().verify(member.credential().chain());
            return true;
        } catch (CertificateException expired) {
            return false;
        }
    }

    @Test
    void whatWasReadLastIsToldBeforeThePostCloses() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Witness witness = new Witness();
            try (Membership member = member(factory, witness, "jade-a", "first")) {
                Post post = new Post(member, new Post.Agents() {
                    @Override
                    public boolean deliverKept(String agent, String sender, boolean isNotice, byte[] message,
                            Map<String, String> facts) {
                        return true;
                    }

                    @Override
                    public boolean isPresent(String agent) {
                        return true;
                    }

                    @Override
                    public void checkPermitted(String sender, String receiver, List<String> askers) {}
                });
                // A process gets letters once others can reach it.
                member.ask(Map.of("ask", "announce", "address", "127.0.0.1:9"));
                factory.run("send", "first", "hello", "--persistent");
                Object letters = witness.letters.poll(Platform.LIMIT, TimeUnit.SECONDS);
                assertNotNull(letters, factory.up()::output);
                post.arrived(letters);
                ACLMessage read = new ACLMessage(ACLMessage.REQUEST);
                read.addUserDefinedParameter(Post.NUMBER, Json.member(Json.list(letters, "letters").get(0), "number").toString());
                post.read("first", read);
                post.close();
                Platform.await(() -> factory.run("mailbox", "first").contains("\"total\": 0"), "the end of the letter", factory.up());
                Platform.await(() -> Thread.getAllStackTraces().keySet().stream()
                        .noneMatch(thread -> thread.getName().equals("sealbus-post")), "the end of its thread", factory.up());
            }
        }
    }
}

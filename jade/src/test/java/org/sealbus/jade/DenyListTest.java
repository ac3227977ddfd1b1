package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The deny lists that a real platform signs. */
class DenyListTest {
    @TempDir
    Path folder;

    /** A deny list and the roots of its platform, as a node tells them. */
    private record Told(List<X509Certificate> roots, byte[] list) {
        static Told by(Platform platform) throws IOException, GeneralSecurityException {
            Ticket ticket = Ticket.parse(platform.ticket("jade-reader"));
            try (Attachment attachment = new Attachment(ticket, notice -> {}, Runnable::run)) {
                Object welcome = attachment.ask(Map.of("ask", "attach", "ticket", ticket.secret(), "now", System.currentTimeMillis()));
                List<byte[]> roots = new ArrayList<>();
                for (Object root : Json.list(Json.member(welcome, "platform"), "roots")) {
                    roots.add(Base64.getDecoder().decode((String) root));
                }
                return new Told(Credential.certificates(roots), Base64.getDecoder().decode(Json.text(welcome, "deny_list")));
            }
        }

        Trust trust() {
            return new Trust("factory", roots);
        }
    }

    /** Has an agent certified and revoked. Returns its certificate. */
    private static List<X509Certificate> revoked(Platform platform, String name) throws IOException, GeneralSecurityException {
        Membership.Listener heedless = new Membership.Listener() {
            @Override
            public void trustChanged() {}

            @Override
            public void ended(String why) {}
        };
        try (Membership member = Membership.join(Ticket.parse(platform.ticket(name)), heedless)) {
            platform.run("ca", "revoke", member.name());
            return member.credential().chain();
        }
    }

    @Test
    void changedListsAreNotObeyed() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            revoked(factory, "jade-revoked");
            Told told = Told.by(factory);
            for (int at = 0; at < told.list().length; at++) {
                byte[] changed = told.list().clone();
                changed[at] ^= 1;
                Trust trust = told.trust();
                assertThrows(GeneralSecurityException.class, () -> trust.obey(changed), "byte " + at);
            }
            Trust trust = told.trust();
            for (int length = 0; length < told.list().length; length++) {
                byte[] cut = java.util.Arrays.copyOf(told.list(), length);
                assertThrows(GeneralSecurityException.class, () -> trust.obey(cut), "length " + length);
            }
            assertTrue(trust.obey(told.list()));
            assertFalse(trust.obey(told.list()));
        }
    }

    @Test
    void whatACaDeniedBeforeItsStoreWasRestoredStaysDenied() throws Exception {
        new Platform(folder, "").close();
        Path backup = folder.resolve("backup");
        copy(folder.resolve("state"), backup.resolve("state"));
        List<X509Certificate> before;
        List<X509Certificate> after;
        Told lost;
        Told restored;
        try (Platform factory = new Platform(folder, "")) {
            before = revoked(factory, "jade-before");
            lost = Told.by(factory);
        }
        try (Platform factory = new Platform(backup, "")) {
            after = revoked(factory, "jade-after");
            restored = Told.by(factory);
        }
        Trust trust = lost.trust();
        trust.verify(before);
        trust.verify(after);
        assertTrue(trust.obey(lost.list()));
        trust.verify(after);
        assertTrue(trust.obey(restored.list()));
        assertThrows(CertificateException.class, () -> trust.verify(before));
        assertThrows(CertificateException.class, () -> trust.verify(after));
    }

    @Test
    void aCertificateWhoseCaWasRevokedIsNotRevokedItself() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            String denied = String.format("%032x", revoked(factory, "jade-revoked").get(0).getSerialNumber());
            Told told = Told.by(factory);
            Trust trust = told.trust();
            trust.obey(told.list());
            Identity agent = Identity.parse("spiffe://factory/agent/jade-other");
            long now = System.currentTimeMillis() / 1000;
            Trust.Peer itself = new Trust.Peer(agent, denied, List.of(), now, now, now + 60, null);
            assertTrue(trust.isRevoked(itself));
            assertFalse(trust.hasLostItsIssuer(itself));
            // As if the number on the list were that of its CA.
            Trust.Peer below = new Trust.Peer(agent, "0".repeat(32), List.of(denied), now, now, now + 60, null);
            assertFalse(trust.isRevoked(below));
            assertTrue(trust.hasLostItsIssuer(below));
            assertThrows(CertificateException.class, () -> trust.check(below));
        }
    }

    private static void copy(Path from, Path to) throws IOException {
        Files.createDirectories(to.getParent());
        try (Stream<Path> files = Files.walk(from)) {
            for (Path file : files.toList()) {
                Path target = to.resolve(from.relativize(file));
                if (Files.isDirectory(file) || Files.isRegularFile(file)) {
                    Files.copy(file, target);
                }
            }
        }
    }
}

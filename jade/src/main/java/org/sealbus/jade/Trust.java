package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.Signature;
import java.security.cert.CertPathValidator;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.PKIXParameters;
import java.security.cert.TrustAnchor;
import java.security.cert.X509Certificate;
import java.time.Instant;
import java.util.Arrays;
import java.util.Date;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The roots of the platform, and the deny lists in force. */
final class Trust {
    /** How far the clocks of two machines may be apart, in seconds. */
    private static final long CLOCK_SKEW = 10;
    private static final byte[] DENY_LIST = "sealbus deny list v2\0".getBytes(StandardCharsets.US_ASCII);
    private static final int MAX_CHAIN = 4;
    private static final int REASONS = 6;
    /** Most lists of an authority that are obeyed beside its newest one. */
    private static final int MOST_OUTLASTING = 4;
    private static final String CLIENT = "1.3.6.1.5.5.7.3.2";
    private static final String SERVER = "1.3.6.1.5.5.7.3.1";
    private static final String ML_DSA_65 = "2.16.840.1.101.3.4.3.18";
    /** The kind of name that is an IP address (RFC 5280 section 4.2.1.6). */
    private static final Integer ADDRESS_NAME = 7;

    private final String platform;
    private final List<X509Certificate> roots;
    /** The lists of each authority: its newest one first, and then those that outlast it. */
    private final Map<Identity, List<DenyList>> denyLists = new ConcurrentHashMap<>();

    Trust(String platform, List<X509Certificate> roots) {
        this.platform = platform;
        this.roots = List.copyOf(roots);
    }

    /**
     * A verified certificate.
     *
     * @param identity  whom it speaks for
     * @param serial    its serial number, 32 hexadecimal digits
     * @param issuers   the serial numbers of the certificates above it, without the root
     * @param notBefore the first second at which it and those above it are valid
     * @param start     the first second of the certificate itself
     * @param notAfter  the last second at which it and those above it are valid
     * @param address   the IP address that it names; null if it names none
     */
    record Peer(Identity identity, String serial, List<String> issuers, long notBefore, long start, long notAfter,
            String address) {}

    /** Changes do not fit the deny list held here: the whole list is needed. */
    static final class NeedsWholeList extends GeneralSecurityException {
        NeedsWholeList(String why) {
            super(why);
        }
    }

    String platform() {
        return platform;
    }

    /** Verifies a chain: signatures up to a root, dates, deny lists and platform. */
    Peer verify(List<X509Certificate> chain) throws CertificateException {
        if (chain.isEmpty() || chain.size() > MAX_CHAIN) {
            throw new CertificateException("a chain of " + chain.size() + " certificates");
        }
        X509Certificate leaf = chain.get(0);
        for (X509Certificate certificate : chain) {
            checkForm(certificate, leaf);
        }
        List<String> usages = leaf.getExtendedKeyUsage();
        if (usages == null || !usages.containsAll(List.of(CLIENT, SERVER))) {
            throw new CertificateException("the certificate is not for both client and server");
        }
        long notBefore = chain.stream().mapToLong(Trust::start).max().orElseThrow();
        long notAfter = chain.stream().mapToLong(Trust::end).min().orElseThrow();
        // The library gets a time within the dates, so that it judges the signatures alone. The dates are checked below.
        long inside = Math.min(Math.max(now(), notBefore), notAfter);
        try {
            Set<TrustAnchor> anchors = roots.stream().map(root -> new TrustAnchor(root, null)).collect(Collectors.toSet());
            PKIXParameters parameters = new PKIXParameters(anchors);
            parameters.setRevocationEnabled(false);
            parameters.setDate(Date.from(Instant.ofEpochSecond(inside)));
            var path = CertificateFactory.getInstance("X.509").generateCertPath(chain);
            CertPathValidator.getInstance("PKIX").validate(path, parameters);
        } catch (GeneralSecurityException refused) {
            String why = "the certificate of " + Identity.of(leaf) + " is not of " + platform + ": ";
            throw new CertificateException(why + refused.getMessage(), refused);
        }
        List<String> issuers = chain.stream().skip(1).map(Trust::serial).toList();
        Peer peer = new Peer(Identity.of(leaf), serial(leaf), issuers, notBefore, start(leaf), notAfter, address(leaf));
        check(peer);
        return peer;
    }

    /** Checks that a certificate has the owner, the use and the algorithms that its place in a chain asks for. */
    private void checkForm(X509Certificate certificate, X509Certificate leaf) throws CertificateException {
        Identity identity = Identity.of(certificate);
        boolean isAuthority = identity.kind().equals("authority");
        boolean isIssuer = certificate != leaf;
        if (!identity.platform().equals(platform) || isAuthority != isIssuer) {
            throw new CertificateException("a certificate of " + identity + " at the wrong place");
        }
        if (isIssuer != certificate.getBasicConstraints() >= 0) {
            throw new CertificateException("the certificate of " + identity + " has another use");
        }
        if (isIssuer && leaf.getSigAlgOID().equals(ML_DSA_65)) {
            throw new CertificateException("the platform " + platform + " signs with ML-DSA-65, and containers of JADE know "
                    + "Ed25519 alone: connect this JADE platform through [gateway.http] of the manifest, or to a platform "
                    + "with signatures = \"ed25519\"");
        }
        if (!isEd25519(certificate)) {
            throw new CertificateException("the key of " + identity + " is not an Ed25519 key");
        }
    }

    /** Checks that a certificate that was verified before still holds: dates and deny lists. */
    void check(Peer peer) throws CertificateException {
        long now = now();
        if (now + CLOCK_SKEW < peer.notBefore() || now > peer.notAfter() + CLOCK_SKEW) {
            throw new CertificateException("the certificate of " + peer.identity() + " is not valid now; the clock here says "
                    + Instant.ofEpochSecond(now));
        }
        if (isRevoked(peer) || hasLostItsIssuer(peer)) {
            throw new CertificateException(revoked(peer));
        }
    }

    /** Whether a certificate itself was revoked. */
    boolean isRevoked(Peer peer) {
        return anyList(list -> list.denies(peer.identity(), peer.serial(), peer.start()));
    }

    /** Whether a CA above a certificate was revoked. Nobody believes the certificate then, and another CA issues the next one. */
    boolean hasLostItsIssuer(Peer peer) {
        return anyList(list -> peer.issuers().stream().anyMatch(list::denies));
    }

    static String revoked(Peer peer) {
        return "the certificate of " + peer.identity() + " was revoked";
    }

    /** Whether an operator has revoked an agent since a node kept a message or an event of it, in milliseconds since 1970. */
    boolean isRevokedSince(Identity identity, long kept) {
        return anyList(list -> list.isRevokedSince(identity, kept / 1000));
    }

    private boolean anyList(Predicate<DenyList> holds) {
        return denyLists.values().stream().flatMap(List::stream).anyMatch(holds);
    }

    /**
     * Puts a signed deny list, or signed changes to the one held, in force.
     *
     * @return whether it is newer than what was held
     */
    synchronized boolean obey(byte[] signed) throws GeneralSecurityException {
        ByteBuffer in = ByteBuffer.wrap(signed);
        try {
            byte[] context = new byte[DENY_LIST.length];
            in.get(context);
            if (!Arrays.equals(context, DENY_LIST)) {
                throw new GeneralSecurityException("not a deny list: it does not begin as one");
            }
            return obey(in);
        } catch (BufferUnderflowException | IllegalArgumentException malformed) {
            throw new GeneralSecurityException("not a deny list: it is malformed", malformed);
        }
    }

    private boolean obey(ByteBuffer in) throws GeneralSecurityException {
        X509Certificate authority = chain(in);
        Identity name = Identity.of(authority);
        long version = in.getLong();
        long forgotten = in.getLong();
        int serialCount = in.getInt();
        int identityCount = in.getInt();
        byte[] digest = new byte[32];
        in.get(digest);
        ByteBuffer head = in.duplicate().flip();
        byte[] signature = new byte[64];
        in.get(signature);
        verifyAuthority(authority);
        Signature verifier = Signature.getInstance("Ed25519");
        verifier.initVerify(authority.getPublicKey());
        verifier.update(head);
        if (!verifier.verify(signature)) {
            throw new GeneralSecurityException("the deny list of " + name + " is not signed by it");
        }
        List<DenyList> lists = denyLists.getOrDefault(name, List.of(DenyList.empty()));
        DenyList held = lists.get(0);
        // An authority that goes on from an older copy of its list can reach a version again: both lists are obeyed.
        boolean isKnown = version == held.version() && Arrays.equals(held.digest(), digest);
        if (version < held.version() || isKnown) {
            return false;
        }
        long since = in.getLong();
        boolean isWhole = since == 0;
        if (since > held.version() || version == held.version() && !isWhole) {
            throw new NeedsWholeList("changes since version " + since + " do not fit version " + held.version());
        }
        DenyList.Changes changes = (isWhole ? DenyList.empty() : held).change();
        for (int left = count(in); left > 0; left--) {
            byte[] serial = new byte[16];
            in.get(serial);
            changes.put(HexFormat.of().formatHex(serial), entry(in, false));
        }
        for (int left = count(in); left > 0; left--) {
            byte[] uri = new byte[Short.toUnsignedInt(in.getShort())];
            in.get(uri);
            changes.put(Identity.parse(new String(uri, StandardCharsets.UTF_8)), entry(in, true));
        }
        if (in.hasRemaining()) {
            throw new GeneralSecurityException("not a deny list: other bytes follow it");
        }
        changes.forget(forgotten);
        DenyList list = changes.made(version);
        if (list.serialCount() != serialCount || list.identityCount() != identityCount
                || !Arrays.equals(list.digest(), digest)) {
            throw new NeedsWholeList("the entries are not those that " + name + " signed");
        }
        // Changes keep all that the list before denied. A whole list may lack some of it.
        Stream<DenyList> former = lists.stream().skip(isWhole ? 0 : 1);
        Stream<DenyList> outlasting = former.filter(it -> it.outlasts(list, forgotten)).limit(MOST_OUTLASTING);
        denyLists.put(name, Stream.concat(Stream.of(list), outlasting).toList());
        return true;
    }

    /** Reads a chain in its wire form, and returns the first certificate of it. */
    private static X509Certificate chain(ByteBuffer in) throws GeneralSecurityException {
        int count = in.get();
        if (count < 1 || count > MAX_CHAIN) {
            throw new GeneralSecurityException("a chain of " + count + " certificates");
        }
        X509Certificate first = null;
        for (int i = 0; i < count; i++) {
            byte[] der = new byte[Short.toUnsignedInt(in.getShort())];
            in.get(der);
            first = i == 0 ? Credential.certificate(der) : first;
        }
        return first;
    }

    private static int count(ByteBuffer in) throws GeneralSecurityException {
        int count = in.getInt();
        if (count < 0 || count > DenyList.MAX_ENTRIES) {
            throw new GeneralSecurityException("not a deny list: it has too many entries");
        }
        return count;
    }

    private static DenyList.Entry entry(ByteBuffer in, boolean isIdentity) throws GeneralSecurityException {
        int start = in.position();
        long before = isIdentity ? in.getLong() : 0;
        in.getLong();
        if (in.get() >= REASONS) {
            throw new GeneralSecurityException("not a deny list: it gives an unknown reason");
        }
        long forgetAfter = in.getLong();
        byte[] encoded = new byte[in.position() - start];
        in.get(start, encoded);
        return new DenyList.Entry(before, forgetAfter, encoded);
    }

    private void verifyAuthority(X509Certificate authority) throws GeneralSecurityException {
        Identity identity = Identity.of(authority);
        if (!identity.kind().equals("authority") || !identity.platform().equals(platform) || authority.getBasicConstraints() < 0) {
            throw new CertificateException(identity + " is not an authority of " + platform);
        }
        boolean signed = false;
        for (X509Certificate root : roots) {
            try {
                authority.verify(root.getPublicKey());
                signed = true;
            } catch (GeneralSecurityException another) {
                // Another root may have signed it.
            }
        }
        if (!signed) {
            throw new CertificateException("no root of " + platform + " has signed the certificate of " + identity);
        }
        check(new Peer(identity, serial(authority), List.of(), start(authority), start(authority), end(authority), null));
    }

    private static boolean isEd25519(X509Certificate certificate) {
        // SubjectPublicKeyInfo of an Ed25519 key (RFC 8410): a fixed prefix and 32 bytes.
        byte[] key = certificate.getPublicKey().getEncoded();
        byte[] prefix = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
        return key.length == 44 && Arrays.equals(key, 0, prefix.length, prefix, 0, prefix.length);
    }

    private static String address(X509Certificate certificate) throws CertificateException {
        return certificate.getSubjectAlternativeNames().stream().filter(name -> ADDRESS_NAME.equals(name.get(0)))
                .map(name -> (String) name.get(1)).findFirst().orElse(null);
    }

    private static String serial(X509Certificate certificate) {
        return String.format("%032x", certificate.getSerialNumber());
    }

    private static long start(X509Certificate certificate) {
        return certificate.getNotBefore().getTime() / 1000;
    }

    private static long end(X509Certificate certificate) {
        return certificate.getNotAfter().getTime() / 1000;
    }

    private static long now() {
        return System.currentTimeMillis() / 1000;
    }
}

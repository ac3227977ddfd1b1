package org.sealbus.jade;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.TreeMap;
import java.util.function.BiPredicate;
import java.util.function.Function;
import java.util.stream.IntStream;

/**
 * The certificates that one authority has revoked before their time. A list never changes: changes make another one, which
 * shares all pages that stay the same.
 *
 * <p>The entries lie on pages, so that the digest that the authority signs costs only the pages that changed.
 */
final class DenyList {
    /** No more fit into 16 MiB beside the authority's chain and signature, if each entry denies one certificate. */
    static final int MAX_ENTRIES = ((16 << 20) - (64 << 10)) / 33;
    private static final int PAGES = 1024;
    private static final byte[] DIGEST_CONTEXT = "sealbus deny list entries v3\0".getBytes(StandardCharsets.US_ASCII);
    /** The reason of an entry: an operator's order. */
    private static final byte BY_OPERATOR = 3;
    private static final HexFormat HEX = HexFormat.of();

    /**
     * The entry of a serial number or an identity.
     *
     * @param before      certificates of an identity that start before this second are denied; not used for serial numbers
     * @param forgetAfter the second after which the list forgets the entry
     * @param encoded     the entry as its authority digests it, without its key
     */
    record Entry(long before, long forgetAfter, byte[] encoded) {}

    private final long version;
    private final Page<String>[] serials;
    private final Page<Identity>[] identities;

    private DenyList(long version, Page<String>[] serials, Page<Identity>[] identities) {
        this.version = version;
        this.serials = serials;
        this.identities = identities;
    }

    /** A list on which nothing is. */
    static DenyList empty() {
        return new DenyList(0, pages(), pages());
    }

    long version() {
        return version;
    }

    /** Whether a certificate is denied, by its serial number or by its owner and start. */
    boolean denies(Identity identity, String serial, long notBefore) {
        return denies(serial) || denies(identity, notBefore);
    }

    /** Whether a certificate is denied by its serial number, 32 hexadecimal digits. */
    boolean denies(String serial) {
        return serials[pageOf(serial)].entries.containsKey(serial);
    }

    /** Whether certificates of this identity are denied that start at this second. */
    boolean denies(Identity identity, long notBefore) {
        Entry entry = identities[pageOf(identity)].entries.get(identity);
        return entry != null && notBefore < entry.before();
    }

    /** Whether an operator has denied an identity at this second or later. */
    boolean isRevokedSince(Identity identity, long second) {
        Entry entry = identities[pageOf(identity)].entries.get(identity);
        if (entry == null) {
            return false;
        }
        ByteBuffer encoded = ByteBuffer.wrap(entry.encoded());
        encoded.getLong();
        long at = encoded.getLong();
        return encoded.get() == BY_OPERATOR && second <= at;
    }

    /** Whether this list denies what a newer one does not, and what is not over at this second. */
    boolean outlasts(DenyList newer, long forgotten) {
        return hasMore(serials, newer.serials, forgotten, (own, known) -> own.forgetAfter() > known.forgetAfter())
                || hasMore(identities, newer.identities, forgotten, (own, known) -> own.before() > known.before());
    }

    private static <K extends Comparable<K>> boolean hasMore(Page<K>[] own, Page<K>[] newer, long forgotten,
            BiPredicate<Entry, Entry> deniesMore) {
        return IntStream.range(0, PAGES).filter(page -> own[page] != newer[page]).anyMatch(
                page -> own[page].entries.entrySet().stream().anyMatch(it -> {
                    Entry known = newer[page].entries.get(it.getKey());
                    boolean isOver = it.getValue().forgetAfter() < forgotten;
                    return !isOver && (known == null || deniesMore.test(it.getValue(), known));
                }));
    }

    /** This list with other entries, forgetting those that are over. */
    Changes change() {
        return new Changes(this);
    }

    /** The number of serial numbers on it. */
    int serialCount() {
        return count(serials);
    }

    /** The number of identities on it. */
    int identityCount() {
        return count(identities);
    }

    /** The digest of all entries, which the authority signs. */
    byte[] digest() {
        MessageDigest digest = sha256();
        digest.update(DIGEST_CONTEXT);
        for (Page<String> page : serials) {
            digest.update(page.digest(HEX::parseHex));
        }
        for (Page<Identity> page : identities) {
            digest.update(page.digest(DenyList::encode));
        }
        return digest.digest();
    }

    /** A list in the making. */
    static final class Changes {
        private final DenyList base;
        private final Page<String>[] serials;
        private final Page<Identity>[] identities;

        private Changes(DenyList base) {
            this.base = base;
            serials = base.serials.clone();
            identities = base.identities.clone();
        }

        void put(String serial, Entry entry) {
            put(serials, base.serials, pageOf(serial), serial, entry);
        }

        void put(Identity identity, Entry entry) {
            put(identities, base.identities, pageOf(identity), identity, entry);
        }

        private static <K extends Comparable<K>> void put(Page<K>[] pages, Page<K>[] old, int page, K key, Entry entry) {
            if (pages[page] == old[page]) {
                pages[page] = new Page<>(old[page].entries);
            }
            pages[page].entries.put(key, entry);
        }

        /** Forgets what is over at this second. */
        void forget(long second) {
            forget(serials, second);
            forget(identities, second);
        }

        private static <K extends Comparable<K>> void forget(Page<K>[] pages, long second) {
            for (int i = 0; i < pages.length; i++) {
                if (pages[i].entries.values().stream().anyMatch(entry -> entry.forgetAfter() < second)) {
                    pages[i] = new Page<>(pages[i].entries);
                    pages[i].entries.values().removeIf(entry -> entry.forgetAfter() < second);
                }
            }
        }

        DenyList made(long version) {
            return new DenyList(version, serials, identities);
        }
    }

    /** Some entries with their digest, which is computed once. */
    private static final class Page<K extends Comparable<K>> {
        private final TreeMap<K, Entry> entries;
        private byte[] digest;

        Page(TreeMap<K, Entry> entries) {
            this.entries = new TreeMap<>(entries);
        }

        byte[] digest(Function<K, byte[]> encode) {
            if (digest == null) {
                MessageDigest sha256 = sha256();
                entries.forEach((key, entry) -> {
                    sha256.update(encode.apply(key));
                    sha256.update(entry.encoded());
                });
                digest = sha256.digest();
            }
            return digest;
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static <K extends Comparable<K>> Page<K>[] pages() {
        Page<K>[] pages = new Page[PAGES];
        Arrays.fill(pages, new Page<K>(new TreeMap<>()));
        return pages;
    }

    private static <K extends Comparable<K>> int count(Page<K>[] pages) {
        return Arrays.stream(pages).mapToInt(page -> page.entries.size()).sum();
    }

    private static byte[] encode(Identity identity) {
        byte[] uri = identity.toString().getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(2 + uri.length).putShort((short) uri.length).put(uri).array();
    }

    /** The last bits of a serial number, which are random. */
    private static int pageOf(String serial) {
        return Integer.parseInt(serial, serial.length() - 4, serial.length(), 16) % PAGES;
    }

    /** FNV-1a of the URI, on which authority and receivers agree. */
    private static int pageOf(Identity identity) {
        long hash = 0xcbf29ce484222325L;
        for (byte b : identity.toString().getBytes(StandardCharsets.UTF_8)) {
            hash = (hash ^ Byte.toUnsignedLong(b)) * 0x100000001b3L;
        }
        return (int) Long.remainderUnsigned(hash, PAGES);
    }

    static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException("every Java has SHA-256", impossible);
        }
    }
}

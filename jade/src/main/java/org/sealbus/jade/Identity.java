package org.sealbus.jade;

import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Collection;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The subject of a certificate: a SPIFFE URI such as {@code spiffe://factory/agent/seller-3}.
 *
 * <p>The order is that of the entries of a deny list: agents, nodes, processes, authorities, and then by their parts.
 */
final class Identity implements Comparable<Identity> {
    private static final String NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}";
    private static final Pattern URI = Pattern.compile("spiffe://([a-z0-9][a-z0-9._-]{0,127})/(?:(agent|node|authority)/("
            + NAME + ")|node/(" + NAME + ")/process/([0-9a-f]{32}))");
    private static final List<String> KINDS = List.of("agent", "node", "process", "authority");
    /** The kind of name that is a URI (RFC 5280 section 4.2.1.6). */
    private static final int URI_NAME = 6;

    private final String uri;
    private final String platform;
    private final String kind;
    private final String name;
    /** Sorts as the parts do, one after another. */
    private final String order;

    private Identity(Matcher parts) {
        uri = parts.group();
        platform = parts.group(1);
        boolean isProcess = parts.group(2) == null;
        kind = isProcess ? "process" : parts.group(2);
        name = isProcess ? parts.group(4) : parts.group(3);
        String rest = isProcess ? "\0" + parts.group(5) : "";
        order = KINDS.indexOf(kind) + platform + "\0" + name + rest;
    }

    /**
     * Reads a URI.
     *
     * @throws IllegalArgumentException if it is not the URI of an identity
     */
    static Identity parse(String uri) {
        Matcher parts = URI.matcher(uri);
        if (!parts.matches()) {
            throw new IllegalArgumentException("not an identity of Sealbus");
        }
        return new Identity(parts);
    }

    /** The one identity that a certificate names. */
    static Identity of(X509Certificate certificate) throws CertificateException {
        Collection<List<?>> names = certificate.getSubjectAlternativeNames();
        List<String> uris = names == null ? List.of() : names.stream()
                .filter(name -> Integer.valueOf(URI_NAME).equals(name.get(0)))
                .map(name -> (String) name.get(1))
                .toList();
        if (uris.size() != 1) {
            throw new CertificateException("the certificate does not name one identity");
        }
        try {
            return parse(uris.get(0));
        } catch (IllegalArgumentException notOne) {
            throw new CertificateException(notOne.getMessage(), notOne);
        }
    }

    String platform() {
        return platform;
    }

    String kind() {
        return kind;
    }

    /** The agent's, node's or authority's name; of a process, its node's. */
    String name() {
        return name;
    }

    @Override
    public int compareTo(Identity other) {
        return order.compareTo(other.order);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Identity identity && uri.equals(identity.uri);
    }

    @Override
    public int hashCode() {
        return uri.hashCode();
    }

    @Override
    public String toString() {
        return uri;
    }
}

package org.sealbus.jade;

import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.List;

/** The agents of the Sealbus platform that may be containers of this JADE platform. */
final class Containers {
    private final Trust trust;
    private final List<String> names;

    /**
     * Containers by their names.
     *
     * @param names names separated by commas; a last {@code *} stands for any end of a name
     */
    Containers(Trust trust, String names) {
        this.trust = trust;
        this.names = Arrays.stream(names.split(",")).map(String::strip).filter(name -> !name.isEmpty()).toList();
    }

    /** Whether an agent of this name may be a container. */
    boolean includes(String name) {
        return names.stream().anyMatch(wanted -> wanted.endsWith("*")
                ? name.startsWith(wanted.substring(0, wanted.length() - 1))
                : name.equals(wanted));
    }

    /** Verifies the certificates of a container. */
    Trust.Peer verify(List<X509Certificate> chain) throws CertificateException {
        Trust.Peer peer = trust.verify(chain);
        if (!peer.identity().kind().equals("agent") || !includes(peer.identity().name())) {
            throw new CertificateException(peer.identity() + " may not be a container here: see -sealbus_containers");
        }
        return peer;
    }

    /** Checks that a container's certificate still holds. */
    void check(Trust.Peer peer) throws CertificateException {
        trust.check(peer);
    }
}

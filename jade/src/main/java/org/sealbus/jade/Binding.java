package org.sealbus.jade;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.Signature;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.ExtendedSSLSession;
import javax.net.ssl.SSLSocket;

/**
 * An agent's proof that it speaks over one connection: its certificates, and its signature over the connection's TLS exporter
 * (RFC 8446 section 7.5). The proof is worthless on every other connection.
 *
 * @param exporter the exporter of the connection
 * @param isClient whether this end opened the connection
 */
record Binding(byte[] exporter, boolean isClient) {
    private static final String LABEL = "EXPORTER-sealbus-agent-binding";
    private static final byte[] CONTEXT = "sealbus agent binding v1\0".getBytes(StandardCharsets.US_ASCII);
    private static final int SIGNATURE = 64;
    /** In the first byte: a proof that the issuance log has the certificate follows the certificates. */
    private static final int WITH_INCLUSION = 0x80;

    /** Whether this Java has TLS exporters: from Java 25 on. */
    static boolean isPossible() {
        try {
            ExtendedSSLSession.class.getMethod("exportKeyingMaterialData", String.class, byte[].class, int.class);
            return true;
        } catch (NoSuchMethodException older) {
            return false;
        }
    }

    /** The value to which proofs on a connection are bound, after its handshake. */
    static Binding of(SSLSocket tls, boolean isClient) throws IOException {
        try {
            Object exporter = ExtendedSSLSession.class
                    .getMethod("exportKeyingMaterialData", String.class, byte[].class, int.class)
                    .invoke(tls.getSession(), LABEL, null, 32);
            return new Binding((byte[]) exporter, isClient);
        } catch (NoSuchMethodException | IllegalAccessException | InvocationTargetException impossible) {
            throw new IOException("this Java has no TLS exporter; Java 25 has", impossible);
        }
    }

    private byte[] statement(boolean proverIsClient, X509Certificate leaf, Identity identity) throws GeneralSecurityException {
        return new Frame.Body().bytes(CONTEXT).bytes(new byte[] {0, Frame.Hello.VERSION, (byte) (proverIsClient ? 0 : 1), Frame.Hello.LEVEL})
                .bytes(exporter).bytes(DenyList.sha256().digest(leaf.getEncoded())).text(identity.toString()).done();
    }

    /** The proof of an agent at this end. */
    byte[] prove(Credential credential) throws GeneralSecurityException {
        X509Certificate leaf = credential.chain().get(0);
        Signature signature = Signature.getInstance("Ed25519");
        signature.initSign(credential.key());
        signature.update(statement(isClient, leaf, Identity.of(leaf)));
        Frame.Body proof = new Frame.Body().number(1, credential.chain().size());
        for (X509Certificate certificate : credential.chain()) {
            byte[] der = certificate.getEncoded();
            proof.bytes(new byte[] {(byte) (der.length >> 8), (byte) der.length}).bytes(der);
        }
        return proof.bytes(signature.sign()).done();
    }

    private static byte[] field(ByteBuffer proof) {
        // Most significant first, unlike the frame around it.
        byte[] field = new byte[Byte.toUnsignedInt(proof.get()) << 8 | Byte.toUnsignedInt(proof.get())];
        proof.get(field);
        return field;
    }

    /** Checks the proof of an agent at the other end. */
    Trust.Peer verify(ByteBuffer proof, Trust trust) throws GeneralSecurityException {
        try {
            List<byte[]> ders = new ArrayList<>();
            int head = Byte.toUnsignedInt(proof.get());
            for (int left = head & ~WITH_INCLUSION; left > 0; left--) {
                ders.add(field(proof));
            }
            if ((head & WITH_INCLUSION) != 0) {
                // It matters to those that check proofs of messages.
                field(proof);
            }
            byte[] signature = Frame.rest(proof);
            List<X509Certificate> chain = Credential.certificates(ders);
            Trust.Peer peer = trust.verify(chain);
            if (!peer.identity().kind().equals("agent") || signature.length != SIGNATURE) {
                throw new CertificateException(peer.identity() + " is not an agent");
            }
            Signature verifier = Signature.getInstance("Ed25519");
            verifier.initVerify(chain.get(0).getPublicKey());
            verifier.update(statement(!isClient, chain.get(0), peer.identity()));
            if (!verifier.verify(signature)) {
                throw new CertificateException("the proof of " + peer.identity() + " was not made for this connection");
            }
            return peer;
        } catch (BufferUnderflowException cut) {
            throw new CertificateException("a proof is cut short", cut);
        }
    }
}

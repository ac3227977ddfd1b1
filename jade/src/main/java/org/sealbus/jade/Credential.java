package org.sealbus.jade;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.List;

/**
 * A private key made here, and the chain that certifies it.
 *
 * @param key   the private key, which never leaves this JVM
 * @param chain the certificate and those above it, without the root
 */
record Credential(PrivateKey key, List<X509Certificate> chain) {
    private static final int MAX_CERTIFICATE = 4096;
    /** AlgorithmIdentifier of Ed25519 (RFC 8410 section 3). */
    private static final byte[] ED25519 = {0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70};

    static KeyPair newKey() throws GeneralSecurityException {
        return KeyPairGenerator.getInstance("Ed25519").generateKeyPair();
    }

    /** A signing request (PKCS#10, RFC 2986) that names nobody: the CA knows whom it is for. */
    static byte[] signingRequest(KeyPair key) throws GeneralSecurityException {
        byte[] version = {0x02, 0x01, 0x00};
        byte[] noName = {0x30, 0x00};
        byte[] noAttributes = {(byte) 0xa0, 0x00};
        byte[] info = der(0x30, version, noName, key.getPublic().getEncoded(), noAttributes);
        Signature signature = Signature.getInstance("Ed25519");
        signature.initSign(key.getPrivate());
        signature.update(info);
        byte[] noUnusedBits = {0x00};
        return der(0x30, info, ED25519, der(0x03, noUnusedBits, signature.sign()));
    }

    private static byte[] der(int tag, byte[]... parts) {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            content.writeBytes(part);
        }
        int length = content.size();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(tag);
        if (length < 0x80) {
            out.write(length);
        } else {
            // A signing request has fewer than 256 bytes.
            out.write(0x81);
            out.write(length);
        }
        out.writeBytes(content.toByteArray());
        return out.toByteArray();
    }

    static X509Certificate certificate(byte[] der) throws GeneralSecurityException {
        if (der.length > MAX_CERTIFICATE) {
            throw new GeneralSecurityException("a certificate of " + der.length + " bytes");
        }
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        return (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(der));
    }

    static List<X509Certificate> certificates(List<byte[]> ders) throws GeneralSecurityException {
        List<X509Certificate> chain = new ArrayList<>();
        for (byte[] der : ders) {
            chain.add(certificate(der));
        }
        return List.copyOf(chain);
    }
}

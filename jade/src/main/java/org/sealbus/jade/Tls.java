package org.sealbus.jade;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.List;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * TLS 1.3 with certificates of Sealbus. Each connection has a context of its own. A connection thus never resumes an earlier
 * one, whose other end may have been revoked since.
 */
final class Tls {
    /** How long a handshake may take, in milliseconds. */
    static final int HANDSHAKE = 30_000;
    /** How long a connection may take to open before that, in milliseconds. */
    private static final int CONNECTING = 10_000;

    /** The check of the other end's certificates. */
    interface Judge {
        void check(List<X509Certificate> chain) throws CertificateException;
    }

    private Tls() {}

    /** Connects a socket to an address: a host, an IPv6 address perhaps in brackets, and a port behind the last colon. */
    static void dial(Socket socket, String address) throws IOException {
        int colon = address.lastIndexOf(':');
        String host = address.substring(0, colon).replaceAll("^\\[|\\]$", "");
        socket.connect(new InetSocketAddress(host, Integer.parseInt(address.substring(colon + 1))), CONNECTING);
    }

    /** The opening end of a connection, after its handshake. Without a credential it shows no certificate. */
    static SSLSocket connect(Socket socket, Credential credential, Judge judge, String protocol) throws IOException {
        return handshake(socket, true, credential, judge, protocol);
    }

    /** The accepting end of a connection, after its handshake. The other end must show a certificate. */
    static SSLSocket accept(Socket socket, Credential credential, Judge judge, String protocol) throws IOException {
        return handshake(socket, false, credential, judge, protocol);
    }

    private static SSLSocket handshake(Socket socket, boolean client, Credential credential, Judge judge, String protocol)
            throws IOException {
        SSLContext context;
        try {
            context = SSLContext.getInstance("TLSv1.3");
            KeyManager[] keys = {new Shown(credential)};
            context.init(keys, new TrustManager[] {new Judged(judge)}, null);
        } catch (GeneralSecurityException impossible) {
            throw new IOException("this Java has no TLS 1.3", impossible);
        }
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(HANDSHAKE);
        String host = socket.getInetAddress().getHostAddress();
        SSLSocket tls = (SSLSocket) context.getSocketFactory().createSocket(socket, host, socket.getPort(), true);
        SSLParameters parameters = tls.getSSLParameters();
        parameters.setProtocols(new String[] {"TLSv1.3"});
        parameters.setApplicationProtocols(new String[] {protocol});
        // A server is known by its SPIFFE identity: no name is sent.
        parameters.setServerNames(List.of());
        parameters.setNeedClientAuth(!client);
        tls.setUseClientMode(client);
        tls.setSSLParameters(parameters);
        tls.startHandshake();
        if (!protocol.equals(tls.getApplicationProtocol())) {
            throw new IOException("the other end does not speak " + protocol);
        }
        tls.setSoTimeout(0);
        return tls;
    }

    /** The certificates that the other end of a finished handshake showed. */
    static List<X509Certificate> peerChain(SSLSocket tls) throws IOException {
        return Arrays.stream(tls.getSession().getPeerCertificates()).map(X509Certificate.class::cast).toList();
    }

    /** Shows one credential. */
    private static final class Shown extends X509ExtendedKeyManager {
        private static final String ALIAS = "sealbus";
        private final Credential credential;

        Shown(Credential credential) {
            this.credential = credential;
        }

        private String alias(String... keyTypes) {
            boolean fits = Arrays.stream(keyTypes).anyMatch(type -> type.equals("EdDSA") || type.equals("Ed25519"));
            return credential != null && fits ? ALIAS : null;
        }

        @Override
        public String chooseClientAlias(String[] keyTypes, Principal[] issuers, Socket socket) {
            return alias(keyTypes);
        }

        @Override
        public String chooseServerAlias(String keyType, Principal[] issuers, Socket socket) {
            return alias(keyType);
        }

        @Override
        public String chooseEngineClientAlias(String[] keyTypes, Principal[] issuers, SSLEngine engine) {
            return alias(keyTypes);
        }

        @Override
        public String chooseEngineServerAlias(String keyType, Principal[] issuers, SSLEngine engine) {
            return alias(keyType);
        }

        @Override
        public String[] getClientAliases(String keyType, Principal[] issuers) {
            return null;
        }

        @Override
        public String[] getServerAliases(String keyType, Principal[] issuers) {
            return null;
        }

        @Override
        public X509Certificate[] getCertificateChain(String alias) {
            return credential.chain().toArray(X509Certificate[]::new);
        }

        @Override
        public PrivateKey getPrivateKey(String alias) {
            return credential.key();
        }
    }

    /** Leaves the check to a judge. */
    private static final class Judged extends X509ExtendedTrustManager {
        private final Judge judge;

        Judged(Judge judge) {
            this.judge = judge;
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
            judge.check(List.of(chain));
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
            judge.check(List.of(chain));
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
            judge.check(List.of(chain));
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
            judge.check(List.of(chain));
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
            judge.check(List.of(chain));
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
            judge.check(List.of(chain));
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}

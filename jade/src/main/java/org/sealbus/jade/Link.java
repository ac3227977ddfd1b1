package org.sealbus.jade;

import jade.imtp.leap.ICP;
import jade.imtp.leap.LEAPSerializationException;
import java.io.IOException;
import java.net.Socket;
import java.security.cert.CertificateException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLSocket;

/** A connection between two containers that both have shown their certificates. It carries one command at a time. */
final class Link implements AutoCloseable {
    static final String PROTOCOL = "sealbus-jade/1";
    /** The accepting end writes this byte once it has let the other in. */
    private static final byte LET_IN = 1;
    /** The longest command or answer, in bytes. */
    private static final int MAX_FRAME = 64 * 1024 * 1024;
    /** The time between two looks at the connections that wait for an answer, in milliseconds. */
    private static final long LOOK = 500;
    /** The connections here whose answers are due at a certain time. */
    private static final Set<Link> AWAITED = ConcurrentHashMap.newKeySet();

    static {
        Door.start("sealbus-answers", Link::look);
    }

    private final Socket socket;
    private final SSLSocket tls;
    private final Trust.Peer peer;
    private final Credential credential;
    private volatile long used = System.nanoTime();
    /** When the answer to the last command is due, by {@link System#nanoTime()}. */
    private volatile long due;

    private Link(Socket socket, SSLSocket tls, Credential credential, Trust.Peer peer) {
        this.socket = socket;
        this.tls = tls;
        this.credential = credential;
        this.peer = peer;
    }

    /** The opening end. The other end has not let it in yet. */
    static Link open(Socket socket, Credential credential, Containers containers) throws IOException {
        return made(socket, Tls.connect(socket, credential, containers::verify, PROTOCOL), credential, containers);
    }

    /** The accepting end. */
    static Link accept(Socket socket, Credential credential, Containers containers) throws IOException {
        return made(socket, Tls.accept(socket, credential, containers::verify, PROTOCOL), credential, containers);
    }

    private static Link made(Socket socket, SSLSocket tls, Credential credential, Containers containers) throws IOException {
        try {
            return new Link(socket, tls, credential, containers.verify(Tls.peerChain(tls)));
        } catch (CertificateException refused) {
            throw new IOException(refused);
        }
    }

    Trust.Peer peer() {
        return peer;
    }

    /** The credential that this end showed. */
    Credential credential() {
        return credential;
    }

    /** When a command last ended, by {@link System#nanoTime()}. */
    long used() {
        return used;
    }

    void letIn() throws IOException {
        tls.getOutputStream().write(LET_IN);
        tls.getOutputStream().flush();
    }

    void awaitLetIn() throws IOException {
        socket.setSoTimeout(Tls.HANDSHAKE);
        if (tls.getInputStream().read() != LET_IN) {
            throw new IOException(peer.identity() + " does not let this container in");
        }
        socket.setSoTimeout(0);
    }

    /**
     * Sends a command, and waits for its answer, for so many seconds; 0: for as long as it takes.
     *
     * @throws IOException also if the answer is late. The text names the other end, and the connection has ended.
     */
    byte[] call(byte[] command, long patience) throws IOException {
        if (patience > 0) {
            due = System.nanoTime() + TimeUnit.SECONDS.toNanos(patience);
            AWAITED.add(this);
        }
        try {
            Frames.write(tls.getOutputStream(), command);
            byte[] answer = Frames.read(tls.getInputStream(), MAX_FRAME);
            used = System.nanoTime();
            return answer;
        } catch (IOException failed) {
            if (patience > 0 && isOverdue()) {
                throw new IOException(peer.identity() + " did not answer within " + patience + " s: see whether it still runs",
                        failed);
            }
            throw failed;
        } finally {
            AWAITED.remove(this);
        }
    }

    private boolean isOverdue() {
        return System.nanoTime() - due > 0;
    }

    /** Ends the connections whose answers are late. A limit for reads alone would leave a command that nobody reads. */
    private static void look() {
        while (true) {
            Door.pause(LOOK);
            for (Link link : AWAITED) {
                // The answer may have come just now.
                if (link.isOverdue() && AWAITED.remove(link)) {
                    link.close();
                }
            }
        }
    }

    /** Answers commands until the other end leaves. */
    void serve(ICP.Listener listener, Containers containers) throws IOException, CertificateException {
        while (true) {
            byte[] command = Frames.read(tls.getInputStream(), MAX_FRAME);
            containers.check(peer);
            try {
                Frames.write(tls.getOutputStream(), listener.handleCommand(command));
            } catch (LEAPSerializationException malformed) {
                throw new IOException("a command that JADE cannot read", malformed);
            }
        }
    }

    /** Ends the connection at once, also for whoever waits for an answer. */
    @Override
    public void close() {
        Door.shut(socket);
    }
}

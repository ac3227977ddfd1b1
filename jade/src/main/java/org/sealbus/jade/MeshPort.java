package org.sealbus.jade;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import javax.net.ssl.SSLSocket;

/** The port at which other processes reach this one. It accepts their connections, opens connections to them, and reads both. */
final class MeshPort implements AutoCloseable {
    /** How long a process may not be reached before its messages come back, in nanoseconds. */
    private static final long GIVE_UP = TimeUnit.SECONDS.toNanos(60);
    /** The least pause until a process is dialled again, in milliseconds. */
    private static final long PAUSE = 200;

    private final Mesh mesh;
    private final ServerSocket server;
    private Door door;

    MeshPort(Mesh mesh, String host) throws IOException {
        this.mesh = mesh;
        server = new ServerSocket(0, 0, InetAddress.getByName(host));
    }

    /** Where other processes reach it. */
    String address() {
        return inBrackets(server.getInetAddress().getHostAddress()) + ":" + server.getLocalPort();
    }

    /** A host as addresses contain it: an IPv6 address in brackets. */
    private static String inBrackets(String host) {
        return host.contains(":") ? "[" + host + "]" : host;
    }

    /** Takes connections from now on. */
    void open() {
        door = new Door(server, "sealbus-mesh-accept", this::serve);
    }

    /** A link has something to send. It gets a connection unless it has one. */
    void need(MeshLink link, long pause) {
        if (!mesh.isClosed() && !link.isConnected() && !link.isDialling && link.hasToSend()) {
            link.isDialling = true;
            if (pause == 0) {
                link.neededSince = System.nanoTime();
            }
            // Many processes that cannot be reached hold up no other work.
            mesh.later(() -> Door.start("sealbus-mesh-dial", () -> dial(link)), pause);
        }
    }

    /** Opens a connection for a link that has something to send. Never called under the lock. */
    private void dial(MeshLink link) {
        Frame.Hello hello;
        synchronized (mesh) {
            if (mesh.isClosed() || link.isConnected() || mesh.link(link.peer) != link) {
                link.isDialling = false;
                return;
            }
            hello = link.dial();
        }
        String why;
        Socket socket = new Socket();
        MeshConnection made = null;
        try {
            Tls.dial(socket, link.address);
            SSLSocket tls = Tls.connect(socket, mesh.membership.process().credential(), chain -> process(chain, link.peer),
                    Mesh.PROTOCOL);
            MeshConnection connection = new MeshConnection(socket, tls, process(Tls.peerChain(tls), link.peer), true);
            made = connection;
            tls.setSoTimeout(Tls.HANDSHAKE);
            tls.getOutputStream().write(hello.bytes());
            Frame.Hello answer = Frame.Hello.read(connection.in());
            tls.setSoTimeout(0);
            synchronized (mesh) {
                link.isDialling = false;
                if (mesh.isClosed() || !answer.process().equals(link.peer.toString()) || !link.answered(answer, connection)) {
                    throw new IOException("the process does not continue the session");
                }
            }
            Door.start("sealbus-mesh-read", () -> read(link, connection));
            return;
        } catch (IOException | CertificateException | RuntimeException | Error failed) {
            why = failed.getMessage();
            Mesh.LOG.log(Level.FINE, "no connection to " + link.peer, failed);
        }
        Door.shut(socket);
        synchronized (mesh) {
            link.isDialling = false;
            if (made != null && link.isConnectedBy(made)) {
                // There was no thread to read it.
                link.disconnected();
            }
            if (System.nanoTime() - link.neededSince > GIVE_UP) {
                String unreachable = "its process cannot be reached: " + why;
                mesh.routes.giveUp(link, unreachable);
                link.lose(unreachable);
            } else {
                need(link, PAUSE + Mesh.RANDOM.nextInt((int) PAUSE));
            }
        }
    }

    /** Verifies the certificates of a process, or of one certain process. */
    private Trust.Peer process(List<X509Certificate> chain, Identity expected) throws CertificateException {
        Trust.Peer peer = mesh.trust.verify(chain);
        String kind = peer.identity().kind();
        if (!kind.equals("process") && !kind.equals("node") || expected != null && !expected.equals(peer.identity())) {
            throw new CertificateException(peer.identity() + " answered where " + (expected == null ? "a process" : expected)
                    + " was expected");
        }
        return peer;
    }

    /** Where a process is reached: a proved one does not choose the machine to which this one connects. */
    private static String address(Trust.Peer peer, String claimed) {
        String host = peer.address();
        int colon = claimed.lastIndexOf(':');
        return host == null || colon < 0 ? claimed : inBrackets(host) + claimed.substring(colon);
    }

    private void serve(Socket socket, Runnable known) {
        try {
            SSLSocket tls = Tls.accept(socket, mesh.membership.process().credential(), chain -> process(chain, null),
                    Mesh.PROTOCOL);
            MeshConnection connection = new MeshConnection(socket, tls, process(Tls.peerChain(tls), null), false);
            tls.setSoTimeout(Tls.HANDSHAKE);
            Frame.Hello hello = Frame.Hello.read(connection.in());
            tls.setSoTimeout(0);
            Identity peer = connection.peer().identity();
            if (!hello.process().equals(peer.toString()) || peer.equals(mesh.own)) {
                throw new IOException(peer + " calls itself " + hello.process());
            }
            known.run();
            MeshLink link;
            synchronized (mesh) {
                link = mesh.link(peer, address(connection.peer(), hello.address()));
                if (mesh.isClosed() || !link.accept(hello, connection)) {
                    return;
                }
            }
            read(link, connection);
        } catch (IOException | CertificateException | RuntimeException failed) {
            Mesh.LOG.log(Level.FINE, "a connection came to nothing", failed);
        }
    }

    /** Reads a connection until it ends. Whatever fails, the link does not count as connected afterwards. */
    private void read(MeshLink link, MeshConnection connection) {
        Throwable why;
        try {
            while (true) {
                Frame frame = Frame.read(connection.in(), Frame.LONGEST_BODY);
                connection.noteHeard();
                boolean isLast = connection.in().available() == 0;
                synchronized (mesh) {
                    if (!link.isConnectedBy(connection)) {
                        return;
                    }
                    link.take(frame);
                    link.acknowledge(isLast);
                }
            }
        } catch (Throwable failed) {
            why = failed;
        } finally {
            connection.close();
        }
        boolean isOfPeer = why instanceof IOException || why instanceof MeshLink.Broken;
        synchronized (mesh) {
            if (link.isConnectedBy(connection)) {
                link.disconnected();
                if (isOfPeer) {
                    need(link, 0);
                } else {
                    // Nobody knows how much of a frame was taken, so the session cannot go on.
                    mesh.lose(link, "this container failed: " + why);
                }
            }
            if (why instanceof MeshLink.Broken) {
                link.log.warn("{0} breaks a rule, and its connection ends: {1}", link.peer, why.getMessage());
            }
        }
        Mesh.LOG.log(isOfPeer ? Level.FINE : Level.WARNING, "the connection to " + link.peer + " ended", why);
    }

    @Override
    public void close() {
        door.close();
    }
}

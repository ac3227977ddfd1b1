package org.sealbus.jade;

import java.io.Closeable;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Deque;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.Semaphore;
import java.util.logging.Level;
import java.util.logging.Logger;

/** A port that others connect to. Connections of strangers are few, so that they keep nobody out. */
final class Door implements AutoCloseable {
    private static final Logger LOG = Logger.getLogger("org.sealbus.jade");
    /** Most connections that are accepted at a time. */
    private static final int MOST_LINKS = 1024;
    /** Most connections whose other ends have not shown their certificates yet; the oldest one ends. */
    private static final int MOST_STRANGERS = 64;

    private final ServerSocket server;
    private final Host host;
    private final Semaphore accepted = new Semaphore(MOST_LINKS);
    /** Connections whose other ends have not shown their certificates yet, the oldest first. */
    private final Deque<Socket> strangers = new ConcurrentLinkedDeque<>();

    /** Serves a connection until it ends, in a thread of its own. The socket is closed afterwards. */
    interface Host {
        /** Serves a connection. {@code known} is run once the other end has shown its certificates. */
        void serve(Socket socket, Runnable known);
    }

    Door(ServerSocket server, String name, Host host) {
        this.server = server;
        this.host = host;
        start(name, this::accept);
    }

    private void accept() {
        while (!server.isClosed()) {
            try {
                Socket socket = server.accept();
                if (!accepted.tryAcquire()) {
                    socket.close();
                    continue;
                }
                strangers.addLast(socket);
                if (strangers.size() > MOST_STRANGERS) {
                    strangers.removeFirst().close();
                }
                start("sealbus-serve", () -> serve(socket));
            } catch (IOException failed) {
                if (!server.isClosed()) {
                    LOG.log(Level.WARNING, "a connection could not be accepted", failed);
                    pause(100);
                }
            }
        }
    }

    private void serve(Socket socket) {
        try {
            host.serve(socket, () -> strangers.remove(socket));
        } finally {
            strangers.remove(socket);
            accepted.release();
            shut(socket);
        }
    }

    /** Waits, unless the thread is interrupted. */
    static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Starts a thread that does not keep the JVM. */
    static void start(String name, Runnable work) {
        thread(name, work).start();
    }

    /** A thread that does not keep the JVM. */
    static Thread thread(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    /** Closes a socket, whatever state it is in. */
    static void shut(Closeable socket) {
        try {
            socket.close();
        } catch (IOException ignored) {
            // It is closed either way.
        }
    }

    @Override
    public void close() {
        shut(server);
    }
}

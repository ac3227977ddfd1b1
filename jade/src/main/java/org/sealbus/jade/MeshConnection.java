package org.sealbus.jade;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Level;
import javax.net.ssl.SSLSocket;

/** A connection between two processes whose ends have shown their certificates. A thread of its own writes. */
final class MeshConnection implements AutoCloseable {
    private static final byte[] LAST = {};
    /** Bytes that are written at once, if so many wait. */
    private static final int AT_ONCE = 64 << 10;
    /** Bytes that may wait to be written, each row of them with {@link #OVERHEAD}. Several windows fit. */
    private static final long MOST_WAITING = 48 << 20;
    private static final int OVERHEAD = 64;

    private final Socket socket;
    private final SSLSocket tls;
    private final Trust.Peer peer;
    private final Binding binding;
    private final InputStream in;
    private final LinkedBlockingQueue<byte[]> out = new LinkedBlockingQueue<>();
    private final AtomicLong waiting = new AtomicLong();
    private volatile long heard = System.nanoTime();

    MeshConnection(Socket socket, SSLSocket tls, Trust.Peer peer, boolean isClient) throws IOException {
        this.socket = socket;
        this.tls = tls;
        this.peer = peer;
        binding = Binding.of(tls, isClient);
        in = new BufferedInputStream(tls.getInputStream(), AT_ONCE);
    }

    Trust.Peer peer() {
        return peer;
    }

    Binding binding() {
        return binding;
    }

    InputStream in() {
        return in;
    }

    /** Notes that the peer has said something. */
    void noteHeard() {
        heard = System.nanoTime();
    }

    /** When the peer said something last, by {@link System#nanoTime()}. */
    long heard() {
        return heard;
    }

    /** Starts to write. */
    void begin() {
        Door.start("sealbus-mesh-write", this::write);
    }

    /** Writes soon, in order. A peer that does not read loses the connection, so that little waits for it. */
    void put(byte[] bytes) {
        long cost = bytes.length + OVERHEAD;
        long now = waiting.addAndGet(cost);
        if (now > MOST_WAITING) {
            if (now - cost <= MOST_WAITING) {
                Mesh.LOG.log(Level.WARNING, "{0} does not read: its connection ends", peer.identity());
            }
            close();
            return;
        }
        out.add(bytes);
    }

    /** Ends the connection once all has been written. */
    void end() {
        out.add(LAST);
    }

    private void write() {
        ByteArrayOutputStream row = new ByteArrayOutputStream();
        try {
            while (true) {
                byte[] next = out.take();
                while (next != null && next != LAST) {
                    waiting.addAndGet(-next.length - OVERHEAD);
                    row.writeBytes(next);
                    next = row.size() < AT_ONCE ? out.poll() : null;
                }
                tls.getOutputStream().write(row.toByteArray());
                row.reset();
                if (next == LAST) {
                    tls.close();
                    return;
                }
            }
        } catch (IOException | InterruptedException broken) {
            Mesh.LOG.log(Level.FINE, "a connection takes no more", broken);
        }
        close();
    }

    /** Ends the connection at once. */
    @Override
    public void close() {
        Door.shut(socket);
        // The thread that writes may wait for bytes.
        end();
    }
}

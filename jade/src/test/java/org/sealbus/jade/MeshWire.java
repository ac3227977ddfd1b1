package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;
import javax.net.ssl.SSLSocket;

/** The wire to the port of a container's mesh, for processes that keep none of its rules. */
final class MeshWire {
    private final InetSocketAddress port;
    private final Platform.Program main;

    MeshWire(InetSocketAddress port, Platform.Program main) {
        this.port = port;
        this.main = main;
    }

    /** A connection on which nothing was said. */
    Socket socket() throws IOException {
        Socket socket = new Socket();
        socket.connect(port);
        return socket;
    }

    /** A connection whose ends have shown certificates; this one a process's. */
    SSLSocket shown(Membership member) throws IOException {
        return Tls.connect(socket(), member.process().credential(), chain -> {}, Mesh.PROTOCOL);
    }

    /** A connection on which the session has begun. */
    SSLSocket begun(Membership member) throws IOException {
        SSLSocket tls = shown(member);
        tls.getOutputStream().write(hello(member, Mesh.token(), new byte[16], 1));
        Frame.Hello.read(tls.getInputStream());
        return tls;
    }

    /** Reads until the other end has ended the connection. */
    void awaitEnd(Socket tls) throws IOException {
        tls.setSoTimeout((int) Platform.LIMIT * 1000);
        try {
            InputStream in = tls.getInputStream();
            byte[] some = new byte[64 << 10];
            while (in.read(some) >= 0) {
                continue;
            }
        } catch (java.net.SocketTimeoutException open) {
            throw new AssertionError("the connection does not end\n" + main.output());
        } catch (IOException ended) {
            return;
        }
    }

    /** Reads all that comes, until the connection ends. */
    void readOn(SSLSocket tls) {
        Thread reader = new Thread(() -> {
            try {
                awaitEnd(tls);
            } catch (IOException | AssertionError ended) {
                return;
            }
        });
        reader.setDaemon(true);
        reader.start();
    }

    // ---- frames ----

    /** A frame for an agent that the container cannot take ends the session. The next session takes the same frame. */
    void endsSessionInTheMidstOfAFrame(Membership member, String agent) throws Exception {
        byte[] life = Mesh.token();
        byte[] frame = counted(0, Frame.TARGET, new Frame.Body().u32(0).text(agent + "@factory"));
        Frame.Hello begun;
        try (SSLSocket tls = shown(member)) {
            tls.getOutputStream().write(hello(member, life, new byte[16], 1));
            begun = Frame.Hello.read(tls.getInputStream());
            tls.getOutputStream().write(frame);
            awaitEnd(tls);
        }
        try (SSLSocket tls = shown(member)) {
            tls.getOutputStream().write(hello(member, life, begun.session(), 2));
            // The frame was not answered, so the session cannot go on behind it.
            assertFalse(Frame.Hello.read(tls.getInputStream()).resumed());
            tls.getOutputStream().write(frame);
            until(tls, Frame.ACCEPT);
        }
    }

    /** The first words of a process in one life of it. */
    static byte[] hello(Membership member, byte[] life, byte[] session, int connection) {
        return new Frame.Hello(false, life, session, new byte[16], 0, connection, Mesh.LARGEST_MESSAGE,
                member.process().peer().identity().toString(), "127.0.0.1:9").bytes();
    }

    static byte[] head(int length, int kind, int sequence) {
        return new Frame.Body().u32(length).number(1, kind).number(3, 0).u32(sequence).done();
    }

    static byte[] counted(int sequence, int kind, Frame.Body body) {
        return body.frame(kind, 0, sequence);
    }

    /** Messages in a row of a sender that was never bound, all of the same length: the first one and so many more. */
    static Frame.Body row(int length, int more) {
        return new Frame.Body().u32(7).u32(0).bytes(new byte[length]).bytes(new byte[2 * more]).number(2, length).number(2, length);
    }

    /** A frame for channels, written by the process. */
    static Frame.Body onChannels(Frame.Body frame) {
        return new Frame.Body().u32(-1).u32(0).bytes(frame.done());
    }

    /** The epoch in which the container speaks of channels, after a greeting as from this epoch. It may send so many bytes. */
    static long epoch(SSLSocket tls, long own, int credit) throws IOException {
        OutputStream out = tls.getOutputStream();
        out.write(counted(0, Frame.TARGET, new Frame.Body().u32(0).text("")));
        out.write(counted(1, Frame.MESSAGE, onChannels(new Frame.Body().number(1, 1).number(8, own).number(8, 0))));
        tls.setSoTimeout((int) Platform.LIMIT * 1000);
        while (true) {
            Frame frame = Frame.read(tls.getInputStream(), Frame.LONGEST_BODY);
            if (frame.kind() == Frame.TARGET) {
                out.write(counted(2, Frame.ACCEPT, new Frame.Body().u32(frame.in().getInt()).number(8, credit)));
            } else if (frame.kind() == Frame.MESSAGE && frame.body()[8] == 1) {
                return frame.in().getLong(9);
            }
        }
    }

    /** Reads until a frame of this kind has come. Returns those before it. */
    static List<Frame> until(SSLSocket tls, int kind) throws IOException {
        tls.setSoTimeout((int) Platform.LIMIT * 1000);
        List<Frame> before = new ArrayList<>();
        while (true) {
            Frame frame = Frame.read(tls.getInputStream(), Frame.LONGEST_BODY);
            if (frame.kind() == kind) {
                return before;
            }
            before.add(frame);
        }
    }

    /** Sends more frames than any bound, from this number on. */
    static void flood(SSLSocket tls, int first, IntFunction<byte[]> frame) throws IOException {
        for (int sequence = first; sequence < 5_000_000; ) {
            Frame.Body row = new Frame.Body();
            for (int i = 0; i < 1000; i++, sequence++) {
                row.bytes(frame.apply(sequence));
            }
            tls.getOutputStream().write(row.done());
        }
    }
}

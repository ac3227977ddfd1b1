package org.sealbus.jade;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;

/** Byte arrays on a stream: four bytes of length, most significant first, and the bytes. */
final class Frames {
    private Frames() {}

    /** The next frame. Memory grows as bytes come, not as the length announces. */
    static byte[] read(InputStream in, int limit) throws IOException {
        int length = new DataInputStream(in).readInt();
        if (length < 0 || length > limit) {
            throw new IOException("a frame of " + Integer.toUnsignedString(length) + " bytes; at most " + limit + " are read");
        }
        byte[] bytes = in.readNBytes(length);
        if (bytes.length < length) {
            throw new EOFException("a frame was cut short");
        }
        return bytes;
    }

    /** Writes a frame as one piece. */
    static void write(OutputStream out, byte[] bytes) throws IOException {
        out.write(ByteBuffer.allocate(4 + bytes.length).putInt(bytes.length).put(bytes).array());
        out.flush();
    }
}

package bench;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** The content of a message: 32 hexadecimal digits, for round (2), sender (6), number (8) and time (16). */
final class Payload {
    static final int BYTES = 32;
    private static final byte[] DIGITS = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

    private Payload() {}

    static byte[] filled(int size) {
        byte[] content = new byte[size];
        Arrays.fill(content, (byte) 'x');
        return content;
    }

    static void write(byte[] out, int round, int sender, int number, long timeNs) {
        digits(out, 0, 2, round);
        digits(out, 2, 8, sender);
        digits(out, 8, 16, number);
        digits(out, 16, 32, timeNs);
    }

    private static void digits(byte[] out, int from, int to, long value) {
        for (int place = to - 1; place >= from; place--) {
            out[place] = DIGITS[(int) (value & 15)];
            value >>>= 4;
        }
    }

    static boolean isOurs(byte[] content) {
        for (int place = 0; place < BYTES; place++) {
            if (Character.digit(content[place], 16) < 0) {
                return false;
            }
        }
        return true;
    }

    private static long read(byte[] content, int from, int to) {
        long value = 0;
        for (int place = from; place < to; place++) {
            value = value << 4 | Character.digit(content[place], 16);
        }
        return value;
    }

    static int round(byte[] content) {
        return (int) read(content, 0, 2);
    }

    static int sender(byte[] content) {
        return (int) read(content, 2, 8);
    }

    static int number(byte[] content) {
        return (int) read(content, 8, 16);
    }

    static long timeNs(byte[] content) {
        return read(content, 16, 32);
    }
}

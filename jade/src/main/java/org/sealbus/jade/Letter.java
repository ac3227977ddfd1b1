package org.sealbus.jade;

/**
 * A message on its way out.
 *
 * @param sender   local name of the agent here that wrote it; null for a frame of the process itself
 * @param receiver whole name of the receiver
 * @param payload  the message in the bit-efficient encoding
 */
record Letter(String sender, String receiver, byte[] payload) {
    /** The part of its receiver's credit that a message costs beside its bytes. */
    private static final int OVERHEAD = 64;

    /** The cost of a message of so many bytes, in its receiver's credit. */
    static long cost(int length) {
        return (long) length + OVERHEAD;
    }

    long cost() {
        return cost(payload.length);
    }
}

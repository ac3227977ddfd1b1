package org.sealbus.jade;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.stream.Stream;

/** The way to one agent of the platform, or to the bus of one process: its messages in order. The mesh guards it. */
final class Route {
    /** How far the way is known. */
    enum State {
        /** The receiver's process is being looked up. */
        LOOKING,
        /** The process was asked whether the receiver is there. */
        OPENING,
        /** The receiver has proved itself, and messages may go. */
        OPEN,
        /** No more is sent there, and undelivered messages come back. */
        CLOSING
    }

    /** The messages that were sent: nothing else may come back, and each as often as it was sent. */
    static final class Memory {
        /** Most messages that are remembered: about as many as a receiver's credit allows to be unread. */
        private static final int MOST = 4096;

        final String receiver;
        /** The hashes of the latest messages that have not come back, the oldest first. */
        private final Deque<Long> remembered = new ArrayDeque<>();
        /** Messages that were sent before those, at most so many. */
        private long forgotten;

        Memory(String receiver) {
            this.receiver = receiver;
        }

        void add(Letter letter) {
            remembered.add(hash(letter));
            if (remembered.size() > MOST) {
                remembered.poll();
                forgotten++;
            }
        }

        /** Whether a message that comes back was sent. */
        boolean has(Letter letter) {
            return remembered.removeFirstOccurrence(hash(letter));
        }

        /** Whether a message may have been sent so long ago that it is not remembered. */
        boolean mayHaveHad() {
            return forgotten > 0 && forgotten-- > 0;
        }

        private static long hash(Letter letter) {
            MessageDigest sha256 = DenyList.sha256();
            sha256.update(letter.sender().getBytes(StandardCharsets.UTF_8));
            return ByteBuffer.wrap(sha256.digest(letter.payload())).getLong();
        }
    }

    final String receiver;
    Memory memory;
    /** Messages that have not gone yet, the oldest first. */
    final Deque<Letter> waiting = new ArrayDeque<>();
    /** Messages that came back, in order, while the way closes. */
    final Deque<Letter> returned = new ArrayDeque<>();
    State state = State.LOOKING;
    MeshLink link;
    int handle;
    /** Which of the session's routes it is, from 1. */
    int number;
    /** Bytes that may be sent in all, and were sent. */
    long limit;
    long sent;
    /** Bytes that wait. */
    long queued;
    Trust.Peer proved;
    /** Pieces of a message that is coming back. */
    final Frame.Body piece = new Frame.Body();
    /** The process that said last that the receiver is not there. */
    Identity deniedBy;
    /** When the receiver was first not found, by {@link System#nanoTime()}; 0 if it was found. */
    long missedSince;
    boolean isAsked;

    Route(String receiver) {
        this.receiver = receiver;
        memory = new Memory(receiver);
    }

    void add(Letter letter) {
        waiting.add(letter);
        queued += letter.cost();
    }

    Letter take() {
        Letter letter = waiting.poll();
        if (letter != null) {
            queued -= letter.cost();
        }
        return letter;
    }

    /** The message that was added last does not go. */
    void removeLast() {
        queued -= waiting.removeLast().cost();
    }

    /** Nothing that waits goes. */
    void clear() {
        waiting.clear();
        queued = 0;
    }

    /** The number of an agent's messages that have not gone, or have come back. */
    long letters(String agent) {
        return Stream.concat(waiting.stream(), returned.stream()).filter(letter -> agent.equals(letter.sender())).count();
    }

    /** Begins to look for the receiver again. Messages that came back go first. */
    void lookAgain() {
        while (!returned.isEmpty()) {
            Letter letter = returned.pollLast();
            waiting.addFirst(letter);
            queued += letter.cost();
        }
        state = State.LOOKING;
        link = null;
        limit = 0;
        sent = 0;
        memory = new Memory(receiver);
        // The rest of a message in pieces does not come over another link.
        piece.clear();
        proved = null;
    }
}

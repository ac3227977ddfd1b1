package org.sealbus.jade;

import java.util.ArrayDeque;
import java.util.Deque;

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

    final String receiver;
    /** Messages that have not gone yet, the oldest first. */
    final Deque<Letter> waiting = new ArrayDeque<>();
    /** Messages that came back, in order, while the way closes. */
    final Deque<Letter> returned = new ArrayDeque<>();
    State state = State.LOOKING;
    MeshLink link;
    int handle;
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
        proved = null;
    }
}

package bench;

/** The messages that one receiver has got in a round. */
final class Tally {
    long received;
    long duplicated;
    long disordered;
    long late;
    long corrupt;
    long lastNs;
    Times times = new Times();
    private int round;
    private int messages;
    private long[][] seen = {};
    private int[] highest = {};

    synchronized void begin(int round, int senders, int messages) {
        this.round = round;
        this.messages = messages;
        seen = new long[senders][messages / 64 + 1];
        highest = new int[senders];
        java.util.Arrays.fill(highest, -1);
        received = duplicated = disordered = late = corrupt = lastNs = 0;
        times = new Times();
    }

    synchronized void count(byte[] content, int size) {
        long now = System.nanoTime();
        if (content.length != size || size < Payload.BYTES || !Payload.isOurs(content)) {
            corrupt++;
            return;
        }
        if (Payload.round(content) != round) {
            late++;
            return;
        }
        int sender = Payload.sender(content);
        int number = Payload.number(content);
        if (sender >= seen.length || number < 0 || number >= messages) {
            corrupt++;
            return;
        }
        long bit = 1L << (number % 64);
        if ((seen[sender][number / 64] & bit) != 0) {
            duplicated++;
            return;
        }
        seen[sender][number / 64] |= bit;
        if (number < highest[sender]) {
            disordered++;
        } else {
            highest[sender] = number;
        }
        received++;
        lastNs = now;
        times.record(now - Payload.timeNs(content));
    }

    synchronized long soFar() {
        return received;
    }
}

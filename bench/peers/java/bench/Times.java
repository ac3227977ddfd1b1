package bench;

import org.json.JSONArray;

/** Times in buckets: each power of two is divided into 128. */
final class Times {
    private static final int PER_OCTAVE = 128;
    private final long[] counts = new long[(64 - 7) * PER_OCTAVE + PER_OCTAVE];
    private long total;
    private double sum;

    void record(long nanoseconds) {
        long value = Math.max(0, nanoseconds);
        int shift = Math.max(0, 64 - Long.numberOfLeadingZeros(value) - 8);
        counts[shift * PER_OCTAVE + (int) (value >>> shift)]++;
        total++;
        sum += value;
    }

    void add(Times other) {
        for (int bucket = 0; bucket < counts.length; bucket++) {
            counts[bucket] += other.counts[bucket];
        }
        total += other.total;
        sum += other.sum;
    }

    double mean() {
        return total == 0 ? 0 : sum / total;
    }

    JSONArray pairs() {
        JSONArray pairs = new JSONArray();
        for (int bucket = 0; bucket < counts.length; bucket++) {
            if (counts[bucket] > 0) {
                int shift = bucket < 2 * PER_OCTAVE ? 0 : bucket / PER_OCTAVE - 1;
                long low = (long) (bucket - shift * PER_OCTAVE) << shift;
                pairs.put(new JSONArray().put(low).put(counts[bucket]));
            }
        }
        return pairs;
    }
}

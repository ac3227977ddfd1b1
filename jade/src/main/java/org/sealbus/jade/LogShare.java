package org.sealbus.jade;

import java.util.concurrent.TimeUnit;
import java.util.logging.Level;

/**
 * The share of one other process in the log: so many lines at once, and then one more a minute (as in
 * {@code crates/bus/src/refusal/shares.rs}). The mesh guards it.
 */
final class LogShare {
    private static final int AT_ONCE = 5;
    private static final long EVERY = TimeUnit.MINUTES.toNanos(1);

    private int left = AT_ONCE;
    private long since = System.nanoTime();
    private long leftOut;

    /** Warns of what the process does, unless its share is used up. */
    void warn(String text, Object... what) {
        long now = System.nanoTime();
        long more = (now - since) / EVERY;
        if (more > 0) {
            left = (int) Math.min(AT_ONCE, left + more);
            since = now;
        }
        if (left == 0) {
            leftOut++;
            return;
        }
        left--;
        String before = leftOut == 0 ? "" : " (" + leftOut + " lines about this process were left out before)";
        leftOut = 0;
        Mesh.LOG.log(Level.WARNING, text + before, what);
    }
}

package org.sealbus.jade;

import java.nio.charset.StandardCharsets;

/**
 * A subscription of an agent of JADE to channels of Sealbus ({@link SealbusHelper#subscribe}). It lasts until it is closed, or the
 * agent ends or moves away.
 */
public final class ChannelSubscription implements AutoCloseable {
    private static final int LONGEST_PATTERN = 512;
    private static final int LONGEST_LEVEL = 128;
    private static final int MOST_LEVELS = 16;

    private final Mesh mesh;
    private final int number;
    private final String agent;
    private final String pattern;
    private final SubscriptionOptions options;
    /** Since when publishers here wait for its agent, by {@link System#nanoTime()}; 0 if none does. The mesh guards it. */
    long stalledSince;

    ChannelSubscription(Mesh mesh, int number, String agent, String pattern, SubscriptionOptions options) {
        check(pattern);
        options.check();
        this.options = options;
        this.mesh = mesh;
        this.number = number;
        this.agent = agent;
        this.pattern = pattern;
    }

    /** The channels: a path, in which {@code *} stands for any level, and a last {@code **} for all further ones. */
    public String pattern() {
        return pattern;
    }

    /** The wishes of the agent for them. */
    public SubscriptionOptions options() {
        return options;
    }

    /** Ends the subscription. No event comes from now on, except those that the agent has not read yet. */
    @Override
    public void close() {
        mesh.channels.unsubscribe(this);
    }

    int number() {
        return number;
    }

    String agent() {
        return agent;
    }

    FarSubscription.Same same() {
        return new FarSubscription.Same(agent, pattern, options.filter(), true, options.answers(), options.readsLogs());
    }

    /** The rules of {@code crates/channels/src/path.rs}. */
    static void check(String pattern) {
        String[] levels = pattern.split("/", -1);
        boolean isPath = pattern.startsWith("/") && levels.length <= MOST_LEVELS + 1
                && pattern.getBytes(StandardCharsets.UTF_8).length <= LONGEST_PATTERN;
        for (int i = 1; i < levels.length; i++) {
            String level = levels[i];
            boolean isRest = level.equals("**") && i == levels.length - 1;
            boolean isName = !level.isEmpty() && !level.equals(".") && !level.equals("..") && !level.contains("*")
                    && level.getBytes(StandardCharsets.UTF_8).length <= LONGEST_LEVEL
                    && level.codePoints().noneMatch(c -> Character.isISOControl(c) || Character.isWhitespace(c)
                            || Character.isSpaceChar(c));
            isPath &= isRest || isName || level.equals("*");
        }
        if (!isPath) {
            throw new IllegalArgumentException(pattern + " is no pattern of channels, such as /dates/business or /dates/**");
        }
    }

    /** Whether a pattern means a channel. */
    static boolean matches(String pattern, String channel) {
        String[] wanted = pattern.split("/", -1);
        String[] levels = channel.split("/", -1);
        for (int i = 0; i < wanted.length; i++) {
            if (wanted[i].equals("**")) {
                return true;
            }
            if (i >= levels.length || !wanted[i].equals("*") && !wanted[i].equals(levels[i])) {
                return false;
            }
        }
        return wanted.length == levels.length;
    }
}

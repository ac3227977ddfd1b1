package org.sealbus.jade;

import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * The quality of service of a message on a channel, in the words of docs/channels.md. The crate {@code channels} has the same
 * in {@code qos}.
 */
final class Qos {
    static final List<String> RELIABILITIES = List.of("best-effort", "at-least-once", "exactly-once");
    static final int BEST_EFFORT = 0;
    /** The words for what a publisher waits for, by the number on the wire and 1. */
    private static final List<String> ACKNOWLEDGEMENTS = List.of("none", "process", "agent", "disk", "majority");
    static final int NO_ACK = 0;
    static final int ACK_AGENT = 2;
    private static final int ACK_DISK = 3;
    private static final List<String> LEVELS = List.of("none", "tls", "auth", "signed", "sealed");
    private static final int AUTH = 2;
    private static final int LONGEST = 256;
    private static final DateTimeFormatter MOMENT = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmssSSS'Z'");

    /** A moment, in milliseconds since 1970, or a length of time from the publication on. */
    record Time(long millis, boolean isMoment) {
        long from(long published) {
            return isMoment ? millis : published + millis;
        }
    }

    int reliability = 2;
    boolean isOrdered = true;
    boolean isPersistent;
    /** How long a persistent event is kept, in milliseconds; -1: as the channel says. */
    long lifetime = -1;
    int priority = 4;
    Time validFrom;
    Time expiry;
    /** The number of the lowest level; -1: the platform's. */
    int level = -1;
    int acknowledgement = NO_ACK;

    /** The default. */
    Qos() {}

    private Qos(Qos other) {
        reliability = other.reliability;
        isOrdered = other.isOrdered;
        isPersistent = other.isPersistent;
        lifetime = other.lifetime;
        priority = other.priority;
        validFrom = other.validFrom;
        expiry = other.expiry;
        level = other.level;
        acknowledgement = other.acknowledgement;
    }

    /**
     * This quality with what a text states otherwise.
     *
     * @throws IllegalArgumentException if the text is none
     */
    Qos with(String text) {
        if (text.getBytes(StandardCharsets.UTF_8).length > LONGEST) {
            throw new IllegalArgumentException("a quality of service is longer than " + LONGEST + " bytes");
        }
        Qos made = new Qos(this);
        Set<String> given = new HashSet<>();
        if (!text.isEmpty()) {
            for (String word : text.split(",", -1)) {
                String about = made.read(word);
                if (!given.add(about)) {
                    throw new IllegalArgumentException(text + ": " + about + " is given twice");
                }
            }
        }
        return made;
    }

    /** This quality without a wait for acknowledgements. */
    Qos unacknowledged() {
        Qos made = new Qos(this);
        made.acknowledgement = NO_ACK;
        return made;
    }

    /** This quality, which expires at this moment at the latest. */
    Qos until(long moment, long published) {
        Qos made = new Qos(this);
        made.expiry = new Time(expiry == null ? moment : Math.min(moment, expiry.from(published)), true);
        return made;
    }

    /** Takes a word over. Returns what it is about. */
    private String read(String word) {
        int equals = word.indexOf('=');
        String name = equals < 0 ? word : word.substring(0, equals);
        String value = equals < 0 ? null : word.substring(equals + 1);
        if (RELIABILITIES.contains(word)) {
            reliability = RELIABILITIES.indexOf(word);
            return "the reliability";
        }
        switch (value == null ? name : name + "=") {
            case "ordered", "unordered" -> {
                isOrdered = name.equals("ordered");
                return "the order";
            }
            case "transient", "persistent" -> {
                isPersistent = name.equals("persistent");
                lifetime = -1;
                return "the persistence";
            }
            case "persistent=" -> {
                isPersistent = true;
                lifetime = length(value, word);
                return "the persistence";
            }
            case "priority=" -> {
                if (!value.matches("[0-9]")) {
                    throw new IllegalArgumentException(word + ": a priority is a number from 0 to 9");
                }
                priority = value.charAt(0) - '0';
                return "the priority";
            }
            case "valid-from=" -> validFrom = time(value, word);
            case "expiry=" -> expiry = time(value, word);
            case "level=" -> level = Math.max(level, one(LEVELS, value, word));
            case "ack=" -> {
                acknowledgement = one(ACKNOWLEDGEMENTS, value, word);
                return "the acknowledgement";
            }
            default -> throw new IllegalArgumentException(word + " is no word of a quality of service");
        }
        return name;
    }

    private static int one(List<String> names, String value, String word) {
        int found = names.indexOf(value);
        if (found < 0) {
            throw new IllegalArgumentException(word + ": there are " + String.join(", ", names));
        }
        return found;
    }

    private static Time time(String value, String word) {
        if (value.matches("[0-9]{8}T[0-9]{9}Z")) {
            try {
                return new Time(LocalDateTime.parse(value, MOMENT).toInstant(ZoneOffset.UTC).toEpochMilli(), true);
            } catch (DateTimeException none) {
                throw new IllegalArgumentException(word + ": there is no such date", none);
            }
        }
        return new Time(length(value, word), false);
    }

    /** A length of time, in milliseconds. */
    private static long length(String value, String word) {
        int digits = 0;
        while (digits < value.length() && Character.digit(value.charAt(digits), 10) >= 0) {
            digits++;
        }
        long unit = switch (value.substring(digits)) {
            case "ms" -> 1;
            case "s" -> 1000;
            case "m" -> 60_000;
            case "h" -> 3_600_000;
            case "d" -> 86_400_000;
            default -> 0;
        };
        if (digits == 0 || digits > 12 || unit == 0) {
            throw new IllegalArgumentException(word + ": a length of time is a whole number with ms, s, m, h or d, such as 90s");
        }
        return Long.parseLong(value.substring(0, digits)) * unit;
    }

    /** The part that an agent of JADE cannot have; null if there is none. {@code declared}: the quality of the channel. */
    String obstacle(Qos declared) {
        if (level > AUTH) {
            return "level=" + LEVELS.get(level) + ": agents of JADE sign and seal nothing";
        }
        if (level >= 0 && level < Math.max(AUTH, declared.level)) {
            return "level=" + LEVELS.get(level) + " is below the level of the platform or of the channel";
        }
        if (acknowledgement > ACK_DISK) {
            return "ack=" + ACKNOWLEDGEMENTS.get(acknowledgement) + ": this platform does not give it";
        }
        if (acknowledgement == ACK_DISK && !isPersistent) {
            return "ack=disk of what is not persistent: add persistent";
        }
        return null;
    }
}

package org.sealbus.jade;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/**
 * A one-time ticket, as {@code sealbus ticket NAME} prints it.
 *
 * @param secret    the secret that the node is shown, base64url
 * @param root      SHA-256 of the platform's root certificate
 * @param platform  the platform's name
 * @param name      the agent that the ticket is for
 * @param addresses the node's addresses as {@code host:port}, to be tried in order
 */
record Ticket(String secret, byte[] root, String platform, String name, List<String> addresses) {
    private static final String PREFIX = "sealbus-ticket:";
    private static final int VERSION = 1;
    private static final int MAX_LENGTH = 4096;

    /**
     * Reads a ticket.
     *
     * @throws IllegalArgumentException if the text is not a ticket
     */
    static Ticket parse(String text) {
        String word = text.strip();
        if (!word.startsWith(PREFIX) || word.length() > MAX_LENGTH) {
            throw new IllegalArgumentException("not a ticket: copy the whole word that begins with " + PREFIX);
        }
        try {
            ByteBuffer bytes = ByteBuffer.wrap(Base64.getUrlDecoder().decode(word.substring(PREFIX.length())));
            if (bytes.get() != VERSION) {
                throw new IllegalArgumentException("not a ticket: it has a version that is not known here");
            }
            byte[] secret = new byte[32];
            bytes.get(secret);
            byte[] root = new byte[32];
            bytes.get(root);
            String platform = text(bytes);
            String name = text(bytes);
            List<String> addresses = new ArrayList<>();
            while (bytes.hasRemaining()) {
                addresses.add(text(bytes));
            }
            if (name.isEmpty() || addresses.isEmpty()) {
                throw new IllegalArgumentException("not a ticket: it names no agent or no address");
            }
            String shown = Base64.getUrlEncoder().withoutPadding().encodeToString(secret);
            return new Ticket(shown, root, platform, name, List.copyOf(addresses));
        } catch (BufferUnderflowException short_) {
            throw new IllegalArgumentException("not a ticket: it is cut short", short_);
        }
    }

    private static String text(ByteBuffer bytes) {
        byte[] text = new byte[Byte.toUnsignedInt(bytes.get())];
        bytes.get(text);
        return new String(text, StandardCharsets.UTF_8);
    }

    /** Leaves the secret out. */
    @Override
    public String toString() {
        return "ticket of " + name + "@" + platform;
    }
}

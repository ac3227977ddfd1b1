package org.sealbus.jade;

import static org.sealbus.jade.BitEfficient.ACTS;
import static org.sealbus.jade.BitEfficient.CONTENT;
import static org.sealbus.jade.BitEfficient.CONVERSATION_ID;
import static org.sealbus.jade.BitEfficient.DECIMAL;
import static org.sealbus.jade.BitEfficient.DIGITS;
import static org.sealbus.jade.BitEfficient.ENCODING;
import static org.sealbus.jade.BitEfficient.END;
import static org.sealbus.jade.BitEfficient.IN_REPLY_TO;
import static org.sealbus.jade.BitEfficient.LANGUAGE;
import static org.sealbus.jade.BitEfficient.MAX_DEPTH;
import static org.sealbus.jade.BitEfficient.MOMENT;
import static org.sealbus.jade.BitEfficient.ONTOLOGY;
import static org.sealbus.jade.BitEfficient.PROTOCOL;
import static org.sealbus.jade.BitEfficient.RECEIVER;
import static org.sealbus.jade.BitEfficient.REPLY_BY;
import static org.sealbus.jade.BitEfficient.REPLY_TO;
import static org.sealbus.jade.BitEfficient.REPLY_WITH;
import static org.sealbus.jade.BitEfficient.SENDER;
import static org.sealbus.jade.BitEfficient.STRING;
import static org.sealbus.jade.BitEfficient.WORD;

import jade.core.AID;
import jade.lang.acl.ACLMessage;
import jade.util.leap.Iterator;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.Locale;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;

/** Writes one message, or event, in the bit-efficient encoding. */
final class BitEfficientWriter {
    /** Words that every reader takes for words. */
    private static final Pattern PLAIN_WORD = Pattern.compile("[A-Za-z_][A-Za-z0-9_.:/@-]*");
    /** Numbers that every reader holds as they are. */
    private static final Pattern NUMBER = Pattern.compile("-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,6})?");

    private final ByteArrayOutputStream out = new ByteArrayOutputStream(512);
    private final UnaryOperator<String> rename;
    private final boolean hasValues;

    BitEfficientWriter(UnaryOperator<String> rename, boolean hasValues) {
        this.rename = rename;
        this.hasValues = hasValues;
    }

    byte[] message(ACLMessage message) {
        out.write(0xfa);
        out.write(0x10);
        String act = ACLMessage.getPerformative(message.getPerformative()).toLowerCase(Locale.ROOT);
        int code = ACTS.indexOf(act) + 1;
        out.write(code);
        if (code == 0) {
            word(act);
        }
        if (message.getSender() != null) {
            out.write(SENDER);
            agent(message.getSender(), MAX_DEPTH);
        }
        agents(RECEIVER, message.getAllReceiver());
        expression(ONTOLOGY, message.getOntology());
        expression(ENCODING, message.getEncoding());
        expression(CONVERSATION_ID, message.getConversationId());
        agents(REPLY_TO, message.getAllReplyTo());
        if (message.getReplyByDate() != null) {
            out.write(REPLY_BY);
            moment(message.getReplyByDate().toInstant());
        }
        expression(IN_REPLY_TO, message.getInReplyTo());
        expression(REPLY_WITH, message.getReplyWith());
        expression(LANGUAGE, message.getLanguage());
        if (message.getProtocol() != null) {
            out.write(PROTOCOL);
            word(message.getProtocol());
        }
        for (Map.Entry<Object, Object> more : message.getAllUserDefinedParameters().entrySet()) {
            out.write(0x00);
            word((String) more.getKey());
            value((String) more.getValue());
        }
        if (message.hasByteSequenceContent()) {
            out.write(CONTENT);
            bytes(message.getByteSequenceContent());
        } else if (message.getContent() != null) {
            content(message.getContent());
        }
        out.write(END);
        return out.toByteArray();
    }

    private void agents(int parameter, Iterator agents) {
        if (agents.hasNext()) {
            out.write(parameter);
            agents(agents, MAX_DEPTH);
        }
    }

    private void agents(Iterator agents, int depth) {
        while (agents.hasNext()) {
            agent((AID) agents.next(), depth);
        }
        out.write(END);
    }

    private void agent(AID agent, int depth) {
        if (depth == 0) {
            throw new IllegalArgumentException("agent identifiers within each other too deep");
        }
        out.write(0x02);
        word(rename.apply(agent.getName()));
        Iterator addresses = agent.getAllAddresses();
        if (addresses.hasNext()) {
            out.write(0x02);
            while (addresses.hasNext()) {
                word((String) addresses.next());
            }
            out.write(END);
        }
        Iterator resolvers = agent.getAllResolvers();
        if (resolvers.hasNext()) {
            out.write(0x03);
            agents(resolvers, depth - 1);
        }
        for (Map.Entry<Object, Object> more : agent.getAllUserDefinedSlot().entrySet()) {
            out.write(0x04);
            word((String) more.getKey());
            string((String) more.getValue());
        }
        out.write(END);
    }

    private void expression(int parameter, String text) {
        if (text == null) {
            return;
        }
        out.write(parameter);
        if (PLAIN_WORD.matcher(text).matches()) {
            word(text);
        } else {
            string(text);
        }
    }

    private void value(String text) {
        if (hasValues && NUMBER.matcher(text).matches()) {
            out.write(DECIMAL);
            digits(text);
        } else if (hasValues && (text.equals("true") || text.equals("false"))) {
            word(text);
        } else {
            string(text);
        }
    }

    /** Two to a byte, up to a zero. */
    private void digits(String text) {
        String ended = text + (text.length() % 2 == 0 ? "\0\0" : "\0");
        for (int i = 0; i < ended.length(); i += 2) {
            out.write(DIGITS.indexOf(ended.charAt(i)) << 4 | DIGITS.indexOf(ended.charAt(i + 1)));
        }
    }

    private void content(String text) {
        out.write(CONTENT);
        if (text.indexOf('\0') >= 0) {
            bytes(text.getBytes(StandardCharsets.UTF_8));
        } else if (text.startsWith("\"") || text.startsWith("#")) {
            // Readers would take it for a string in quotes.
            string(text);
        } else {
            ended(STRING, text);
        }
    }

    private void string(String text) {
        int length = text.getBytes(StandardCharsets.UTF_8).length;
        // Quotes cannot end a text that ends in a backslash.
        ended(STRING, text.endsWith("\\") ? "#" + length + "\"" + text : "\"" + text.replace("\"", "\\\"") + "\"");
    }

    private void word(String text) {
        ended(WORD, text);
    }

    private void ended(int tag, String text) {
        if (text.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("a text with a zero character");
        }
        out.write(tag);
        out.writeBytes(text.getBytes(StandardCharsets.UTF_8));
        out.write(0);
    }

    private void bytes(byte[] bytes) {
        if (bytes.length < 1 << 8) {
            out.write(0x16);
            out.write(bytes.length);
        } else if (bytes.length < 1 << 16) {
            out.write(0x17);
            out.writeBytes(ByteBuffer.allocate(2).putShort((short) bytes.length).array());
        } else {
            out.write(0x19);
            out.writeBytes(ByteBuffer.allocate(4).putInt(bytes.length).array());
        }
        out.writeBytes(bytes);
    }

    private void moment(Instant moment) {
        out.write(0x24);
        digits(MOMENT.format(moment.atZone(ZoneOffset.UTC)));
        out.write('Z');
    }
}

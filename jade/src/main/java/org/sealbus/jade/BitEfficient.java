package org.sealbus.jade;

import jade.core.AID;
import jade.lang.acl.ACLMessage;
import jade.util.leap.Iterator;
import java.io.ByteArrayOutputStream;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Date;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;

/** JADE's messages in FIPA's bit-efficient encoding (FIPA00069), in which they travel between processes of Sealbus. */
final class BitEfficient {
    /** The acts in the order of their codes, from 1 on. */
    private static final List<String> ACTS = List.of("accept-proposal", "agree", "cancel", "cfp", "confirm", "disconfirm",
            "failure", "inform", "inform-if", "inform-ref", "not-understood", "propagate", "propose", "proxy", "query-if",
            "query-ref", "refuse", "reject-proposal", "request", "request-when", "request-whenever", "subscribe");
    private static final int SENDER = 0x02;
    private static final int RECEIVER = 0x03;
    private static final int CONTENT = 0x04;
    private static final int REPLY_WITH = 0x05;
    private static final int REPLY_BY = 0x06;
    private static final int IN_REPLY_TO = 0x07;
    private static final int REPLY_TO = 0x08;
    private static final int LANGUAGE = 0x09;
    private static final int ENCODING = 0x0a;
    private static final int ONTOLOGY = 0x0b;
    private static final int PROTOCOL = 0x0c;
    private static final int CONVERSATION_ID = 0x0d;
    private static final int END = 0x01;
    private static final int WORD = 0x10;
    private static final int DECIMAL = 0x12;
    private static final int STRING = 0x14;
    private static final int LIST = 0x60;
    private static final int END_OF_LIST = 0x40;
    private static final int TEXT_OF_EXPRESSION = 0xff;
    /** The tags of words, numbers and strings. */
    private static final Set<Integer> TEXTS = Set.of(WORD, DECIMAL, 0x13, STRING, TEXT_OF_EXPRESSION);
    /** Lists, or resolvers of agents, within each other that are read. */
    private static final int MAX_DEPTH = 64;
    private static final String DIGITS = "\0" + "0123456789" + "\0" + "+e-.";
    /** Words that every reader takes for words. */
    private static final Pattern PLAIN_WORD = Pattern.compile("[A-Za-z_][A-Za-z0-9_.:/@-]*");
    /** Numbers that every reader holds as they are. */
    private static final Pattern NUMBER = Pattern.compile("-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,6})?");
    private static final DateTimeFormatter MOMENT = DateTimeFormatter.ofPattern("yyyyMMddHHmmssSSS");

    private BitEfficient() {}

    /** Bytes that are no message. */
    static final class Malformed extends Exception {
        Malformed(String what) {
            super(what);
        }
    }

    /**
     * Writes a message. {@code rename} gives each agent's name as it goes out.
     *
     * @throws IllegalArgumentException if the encoding cannot carry the message
     */
    static byte[] write(ACLMessage message, UnaryOperator<String> rename) {
        return new Writer(rename, false).message(message);
    }

    /** The same of an event. User-defined parameters that look like numbers or truth values are such, for filters. */
    static byte[] writeEvent(ACLMessage message, UnaryOperator<String> rename) {
        return new Writer(rename, true).message(message);
    }

    /** The name of the sender that a message states. */
    static String sender(byte[] bytes) throws Malformed {
        AID sender = read(bytes, UnaryOperator.identity()).getSender();
        if (sender == null) {
            throw new Malformed("no sender");
        }
        return sender.getName();
    }

    /** Reads a message. {@code rename} gives each agent's name as it comes in. */
    static ACLMessage read(byte[] bytes, UnaryOperator<String> rename) throws Malformed {
        try {
            return new Reader(ByteBuffer.wrap(bytes), rename).message();
        } catch (BufferUnderflowException | IndexOutOfBoundsException | IllegalArgumentException | DateTimeException
                | CharacterCodingException wrong) {
            throw new Malformed("not an ACL message: " + wrong);
        }
    }

    private static final class Writer {
        private final ByteArrayOutputStream out = new ByteArrayOutputStream(512);
        private final UnaryOperator<String> rename;
        private final boolean hasValues;

        Writer(UnaryOperator<String> rename, boolean hasValues) {
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

    private static final class Reader {
        private final ByteBuffer in;
        private final UnaryOperator<String> rename;

        Reader(ByteBuffer in, UnaryOperator<String> rename) {
            this.in = in;
            this.rename = rename;
        }

        private int next() {
            return Byte.toUnsignedInt(in.get());
        }

        private int peek() {
            return Byte.toUnsignedInt(in.get(in.position()));
        }

        private static IllegalArgumentException unexpected(String what, int found) {
            return new IllegalArgumentException("not " + what + ": " + Integer.toHexString(found));
        }

        ACLMessage message() throws CharacterCodingException {
            if (next() != 0xfa || next() >> 4 != 1) {
                throw new IllegalArgumentException("not the bit-efficient encoding without a code table");
            }
            int code = next();
            if (code > ACTS.size()) {
                throw unexpected("an act", code);
            }
            String act = code == 0 ? word() : ACTS.get(code - 1);
            // JADE knows the standard's acts alone: it takes another one for `unknown`.
            ACLMessage message = new ACLMessage(ACLMessage.getInteger(act.toUpperCase(Locale.ROOT)));
            while (true) {
                int parameter = next();
                switch (parameter) {
                    case END -> {
                        if (in.hasRemaining()) {
                            throw new IllegalArgumentException("bytes after the message");
                        }
                        return message;
                    }
                    case 0x00 -> parameter(message);
                    case SENDER -> message.setSender(agent(MAX_DEPTH));
                    case RECEIVER -> agents(message::addReceiver, MAX_DEPTH);
                    case REPLY_TO -> agents(message::addReplyTo, MAX_DEPTH);
                    case CONTENT -> content(message);
                    case REPLY_WITH -> message.setReplyWith(expression());
                    case REPLY_BY -> message.setReplyByDate(moment());
                    case IN_REPLY_TO -> message.setInReplyTo(expression());
                    case LANGUAGE -> message.setLanguage(expression());
                    case ENCODING -> message.setEncoding(expression());
                    case ONTOLOGY -> message.setOntology(expression());
                    case PROTOCOL -> message.setProtocol(expression());
                    case CONVERSATION_ID -> message.setConversationId(expression());
                    default -> throw unexpected("a parameter", parameter);
                }
            }
        }

        private void parameter(ACLMessage message) throws CharacterCodingException {
            String name = word();
            // JADE's message would hold the last of two chains alone, and any expression as text.
            if (Delegation.isIn(name) && (!TEXTS.contains(peek()) || message.getUserDefinedParameter(name) != null)) {
                throw new IllegalArgumentException(name + " is no text, or is there twice");
            }
            message.addUserDefinedParameter(name, expression());
        }

        private void agents(Consumer<AID> each, int depth) throws CharacterCodingException {
            while (peek() != END) {
                each.accept(agent(depth));
            }
            in.get();
        }

        private AID agent(int depth) throws CharacterCodingException {
            int start = next();
            if (start != 0x02 || depth == 0) {
                throw unexpected("an agent identifier", start);
            }
            AID agent = new AID(rename.apply(word()), AID.ISGUID);
            while (true) {
                int part = next();
                switch (part) {
                    case END -> {
                        return agent;
                    }
                    case 0x02 -> {
                        while (peek() != END) {
                            agent.addAddresses(word());
                        }
                        in.get();
                    }
                    case 0x03 -> agents(agent::addResolvers, depth - 1);
                    case 0x04 -> agent.addUserDefinedSlot(word(), expression());
                    default -> throw unexpected("a part of an agent identifier", part);
                }
            }
        }

        private void content(ACLMessage message) throws CharacterCodingException {
            int tag = peek();
            if (tag <= CONVERSATION_ID) {
                // One encoder writes empty content as no bytes at all.
                message.setContent("");
            } else if (tag == 0x16 || tag == 0x17 || tag == 0x19) {
                in.get();
                message.setByteSequenceContent(bytes(tag));
            } else if (tag == STRING) {
                in.get();
                byte[] content = ended();
                try {
                    message.setContent(unquoted(text(content)));
                } catch (CharacterCodingException noText) {
                    message.setByteSequenceContent(content);
                }
            } else {
                message.setContent(expression());
            }
        }

        private String word() throws CharacterCodingException {
            int tag = next();
            if (tag != WORD) {
                throw unexpected("a word", tag);
            }
            return text(ended());
        }

        /** An expression as text, in the form of the string encoding (FIPA00070). */
        private String expression() throws CharacterCodingException {
            if (peek() == TEXT_OF_EXPRESSION) {
                in.get();
                return atom(next() & 0x0f, false);
            }
            StringBuilder out = new StringBuilder();
            int depth = 0;
            do {
                int tag = next();
                if (tag == LIST) {
                    open(out);
                    depth++;
                } else if (tag == END_OF_LIST && depth > 0) {
                    out.append(')');
                    depth--;
                } else {
                    switch (tag >> 4) {
                        case 1 -> {}
                        case 5 -> {
                            out.append(')');
                            depth--;
                        }
                        case 7 -> {
                            open(out);
                            depth++;
                        }
                        default -> throw unexpected("an expression", tag);
                    }
                    // In brackets the long byte string is 8, and else 9.
                    int kind = tag >> 4 != 1 && (tag & 0x0f) == 8 ? 9 : tag & 0x0f;
                    boolean isPart = depth > 0;
                    if (isPart && out.charAt(out.length() - 1) != '(') {
                        out.append(' ');
                    }
                    out.append(atom(kind, isPart));
                }
                if (depth < 0 || depth > MAX_DEPTH) {
                    throw unexpected("an expression", tag);
                }
            } while (depth > 0);
            return out.toString();
        }

        private static void open(StringBuilder out) {
            boolean isFirst = out.length() == 0 || out.charAt(out.length() - 1) == '(';
            out.append(isFirst ? "(" : " (");
        }

        /** An atom of this kind. As a part of a list a string keeps its quotes. */
        private String atom(int kind, boolean isPart) throws CharacterCodingException {
            return switch (kind) {
                case 0 -> text(ended());
                case 2 -> number();
                case 3 -> "0x" + Long.toHexString(Long.parseUnsignedLong(number()));
                case 4 -> {
                    String text = text(ended());
                    yield isPart ? text : unquoted(text);
                }
                case 6, 7, 9 -> {
                    String text = text(bytes(0x10 | kind));
                    yield isPart ? "#" + text.getBytes(StandardCharsets.UTF_8).length + "\"" + text : text;
                }
                default -> throw unexpected("an expression", kind);
            };
        }

        private String number() {
            StringBuilder digits = new StringBuilder();
            while (true) {
                int pair = next();
                for (int digit : new int[] {pair >> 4, pair & 0x0f}) {
                    if (digit == 0) {
                        return digits.toString();
                    }
                    digits.append(DIGITS.charAt(digit));
                }
            }
        }

        private byte[] bytes(int tag) {
            long length = switch (tag) {
                case 0x16 -> next();
                case 0x17 -> Short.toUnsignedInt(in.getShort());
                default -> Integer.toUnsignedLong(in.getInt());
            };
            if (length > in.remaining()) {
                throw new BufferUnderflowException();
            }
            byte[] bytes = new byte[(int) length];
            in.get(bytes);
            return bytes;
        }

        private byte[] ended() {
            int start = in.position();
            int end = start;
            while (in.get(end) != 0) {
                end++;
            }
            byte[] text = new byte[end - start];
            in.get(text).get();
            return text;
        }

        private static String text(byte[] utf8) throws CharacterCodingException {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString();
        }

        /** The text behind {@code "…"} or {@code #N"…}, if the whole has one of these forms. */
        private static String unquoted(String text) {
            int last = text.length() - 1;
            if (text.startsWith("\"") && last > 0) {
                int end = 1;
                while (end <= last && (text.charAt(end) != '"' || text.charAt(end - 1) == '\\' && end > 1)) {
                    end++;
                }
                return end == last ? text.substring(1, last).replace("\\\"", "\"") : text;
            }
            int quote = text.indexOf('"');
            if (text.startsWith("#") && quote > 1 && quote < 10 && text.substring(1, quote).chars().allMatch(Character::isDigit)) {
                String counted = text.substring(quote + 1);
                int length = counted.getBytes(StandardCharsets.UTF_8).length;
                return length == Integer.parseInt(text.substring(1, quote)) ? counted : text;
            }
            return text;
        }

        private Date moment() {
            int tag = next();
            if (tag < 0x20 || tag > 0x26 || tag == 0x23) {
                throw unexpected("a moment", tag);
            }
            StringBuilder digits = new StringBuilder();
            for (int i = 0; i < 9; i++) {
                int pair = next();
                digits.append(DIGITS.charAt(pair >> 4)).append(DIGITS.charAt(pair & 0x0f));
            }
            // One encoder writes four digits of milliseconds.
            String known = digits.charAt(17) == '\0' ? digits.substring(0, 17) : digits.substring(0, 14) + digits.substring(15);
            ZoneId zone = (tag & 0x04) != 0 && next() == 'Z' ? ZoneOffset.UTC : ZoneId.systemDefault();
            if ((tag & 0x03) != 0) {
                throw new IllegalArgumentException("a moment that is not of the calendar");
            }
            return Date.from(LocalDateTime.parse(known, MOMENT).atZone(zone).toInstant());
        }
    }
}

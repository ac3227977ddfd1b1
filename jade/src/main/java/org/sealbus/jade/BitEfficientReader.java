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
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.Date;
import java.util.Locale;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;

/** Reads one message in the bit-efficient encoding, from bytes that anyone may have written. */
final class BitEfficientReader {
    private static final int LIST = 0x60;
    private static final int END_OF_LIST = 0x40;
    private static final int TEXT_OF_EXPRESSION = 0xff;
    /** The tags of words, numbers and strings. */
    private static final Set<Integer> TEXTS = Set.of(WORD, DECIMAL, 0x13, STRING, TEXT_OF_EXPRESSION);

    private final ByteBuffer in;
    private final UnaryOperator<String> rename;

    BitEfficientReader(ByteBuffer in, UnaryOperator<String> rename) {
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

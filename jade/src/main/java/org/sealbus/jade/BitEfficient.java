package org.sealbus.jade;

import jade.core.AID;
import jade.lang.acl.ACLMessage;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.time.DateTimeException;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.function.UnaryOperator;

/** JADE's messages in FIPA's bit-efficient encoding (FIPA00069), in which they travel between processes of Sealbus. */
final class BitEfficient {
    /** The acts in the order of their codes, from 1 on. */
    static final List<String> ACTS = List.of("accept-proposal", "agree", "cancel", "cfp", "confirm", "disconfirm",
            "failure", "inform", "inform-if", "inform-ref", "not-understood", "propagate", "propose", "proxy", "query-if",
            "query-ref", "refuse", "reject-proposal", "request", "request-when", "request-whenever", "subscribe");
    static final int SENDER = 0x02;
    static final int RECEIVER = 0x03;
    static final int CONTENT = 0x04;
    static final int REPLY_WITH = 0x05;
    static final int REPLY_BY = 0x06;
    static final int IN_REPLY_TO = 0x07;
    static final int REPLY_TO = 0x08;
    static final int LANGUAGE = 0x09;
    static final int ENCODING = 0x0a;
    static final int ONTOLOGY = 0x0b;
    static final int PROTOCOL = 0x0c;
    static final int CONVERSATION_ID = 0x0d;
    static final int END = 0x01;
    static final int WORD = 0x10;
    static final int DECIMAL = 0x12;
    static final int STRING = 0x14;
    /** Lists, or resolvers of agents, within each other that are read. */
    static final int MAX_DEPTH = 64;
    static final String DIGITS = "\0" + "0123456789" + "\0" + "+e-.";
    static final DateTimeFormatter MOMENT = DateTimeFormatter.ofPattern("yyyyMMddHHmmssSSS");

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
        return new BitEfficientWriter(rename, false).message(message);
    }

    /** The same of an event. User-defined parameters that look like numbers or truth values are such, for filters. */
    static byte[] writeEvent(ACLMessage message, UnaryOperator<String> rename) {
        return new BitEfficientWriter(rename, true).message(message);
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
            return new BitEfficientReader(ByteBuffer.wrap(bytes), rename).message();
        } catch (BufferUnderflowException | IndexOutOfBoundsException | IllegalArgumentException | DateTimeException
                | CharacterCodingException wrong) {
            throw new Malformed("not an ACL message: " + wrong);
        }
    }
}

package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jade.core.AID;
import jade.lang.acl.ACLMessage;
import java.util.Arrays;
import java.util.Date;
import java.util.HexFormat;
import java.util.Random;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;

/** The encoding in which messages of JADE travel on Sealbus. */
class BitEfficientTest {
    private static AID agent(String name) {
        AID agent = new AID(name, AID.ISGUID);
        agent.addAddresses("http://192.0.2.1:7778/acc");
        return agent;
    }

    private static ACLMessage message() {
        ACLMessage message = new ACLMessage(ACLMessage.QUERY_REF);
        message.setSender(agent("asker@jade"));
        message.addReceiver(agent("df@factory"));
        message.addReceiver(agent("seller@factory"));
        message.addReplyTo(agent("asker@jade"));
        message.setContent("((all ?x (price ?x)))");
        message.setOntology("prices");
        message.setLanguage("fipa-sl");
        message.setEncoding("two words");
        message.setProtocol("fipa-query");
        message.setConversationId("say \"c 1\"\\");
        message.setReplyWith("r-1");
        message.setInReplyTo("4711");
        message.setReplyByDate(new Date(1_795_400_000_123L));
        message.addUserDefinedParameter("X-more", "50 % (\"half\")");
        return message;
    }

    private static ACLMessage again(ACLMessage message) throws BitEfficient.Malformed {
        return BitEfficient.read(BitEfficient.write(message, UnaryOperator.identity()), UnaryOperator.identity());
    }

    @Test
    void allFieldsComeBack() throws Exception {
        ACLMessage message = message();
        assertEquals(message.toString(), again(message).toString());
    }

    @Test
    void everyActComesBack() throws Exception {
        for (int act = ACLMessage.ACCEPT_PROPOSAL; act <= ACLMessage.PROPAGATE; act++) {
            assertEquals(act, again(new ACLMessage(act)).getPerformative());
        }
    }

    @Test
    void textsAndBytesComeBackAsTheyWere() throws Exception {
        for (String text : new String[] {"", "\"quoted\"", "\"open", "a\0b", "#3\"abc", "ends in \\", "\u00e4\ud83d\ude00", "\"\\"}) {
            ACLMessage message = new ACLMessage(ACLMessage.INFORM);
            message.setContent(text);
            ACLMessage read = again(message);
            assertEquals(text, read.hasByteSequenceContent() ? new String(read.getByteSequenceContent(), "UTF-8") : read.getContent());
        }
        for (int length : new int[] {0, 255, 256, 70_000}) {
            ACLMessage message = new ACLMessage(ACLMessage.INFORM);
            message.setByteSequenceContent(new byte[length]);
            assertArrayEquals(new byte[length], again(message).getByteSequenceContent());
        }
    }

    @Test
    void namesAreChangedOnTheWay() throws Exception {
        byte[] bytes = BitEfficient.write(message(), name -> name.replace("@jade", "@factory"));
        assertEquals("asker@factory", BitEfficient.read(bytes, UnaryOperator.identity()).getSender().getName());
        assertEquals("asker@jade", BitEfficient.read(bytes, name -> name.replace("asker@factory", "asker@jade")).getSender().getName());
    }

    @Test
    void expressionsOfOthersAreRead() throws Exception {
        // Reply-with is the list (a (b "c d") 12.5), and the user's parameter the hexadecimal number 0xff.
        byte[] bytes = HexFormat.of().parseHex("fa1008" + "05" + "706100" + "706200" + "1422632064220040"
                + "12" + "23f60" + "0" + "40" + "00" + "105800" + "13" + "3660" + "01");
        ACLMessage read = BitEfficient.read(bytes, UnaryOperator.identity());
        assertEquals("(a (b \"c d\") 12.5)", read.getReplyWith());
        assertEquals("0xff", read.getUserDefinedParameter("X"));
    }

    @Test
    void noBytesDoHarm() {
        byte[] bytes = BitEfficient.write(message(), UnaryOperator.identity());
        for (int length = 0; length < bytes.length; length++) {
            byte[] cut = Arrays.copyOf(bytes, length);
            assertThrows(BitEfficient.Malformed.class, () -> BitEfficient.read(cut, UnaryOperator.identity()));
        }
        Random random = new Random(1);
        for (int i = 0; i < 20_000; i++) {
            byte[] changed = bytes.clone();
            for (int changes = 1 + random.nextInt(4); changes > 0; changes--) {
                changed[random.nextInt(changed.length)] = (byte) random.nextInt(256);
            }
            try {
                BitEfficient.read(changed, UnaryOperator.identity());
            } catch (BitEfficient.Malformed refused) {
                continue;
            }
        }
    }

    @Test
    void parametersOfEventsAreValues() throws Exception {
        for (String value : new String[] {"7", "-7.25", "0", "123456789012345", "true", "false", "007", "1e5", "1.", "tea", "",
            "1234567890123456", "12.3456789"}) {
            ACLMessage message = new ACLMessage(ACLMessage.INFORM);
            message.addUserDefinedParameter("X-price", value);
            byte[] event = BitEfficient.writeEvent(message, name -> name);
            assertEquals(value, BitEfficient.read(event, name -> name).getUserDefinedParameter("X-price"));
            boolean isValue = value.matches("7|-7.25|0|123456789012345|true|false");
            assertEquals(isValue, event.length != BitEfficient.write(message, name -> name).length, value);
        }
    }
}

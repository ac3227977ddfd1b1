package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jade.lang.acl.ACLMessage;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;

/** On whose behalf messages ask, as the crate {@code bus} has it. */
class DelegationTest {
    private static ACLMessage request(String... chains) {
        ACLMessage message = new ACLMessage(ACLMessage.REQUEST);
        for (int i = 0; i < chains.length; i++) {
            String name = i == 0 ? Delegation.ON_BEHALF_OF : Delegation.ON_BEHALF_OF.toLowerCase(java.util.Locale.ROOT);
            message.addUserDefinedParameter(name, chains[i]);
        }
        return message;
    }

    private static String refused(String sender, String... chains) {
        return assertThrows(Mesh.Refused.class, () -> Delegation.of(request(chains), sender)).reason;
    }

    @Test
    void aChainIsAListOfNames() throws Exception {
        assertEquals(List.of(), Delegation.of(request(), "store@a"));
        assertEquals(List.of("boss@a", "clerk@b"), Delegation.of(request("boss@a clerk@b"), "store@a"));
        ACLMessage message = new ACLMessage(ACLMessage.REQUEST);
        message.addUserDefinedParameter("x-sealbus-on-behalf-of", "boss@a");
        assertEquals(List.of("boss@a"), Delegation.of(message, "store@a"));
        byte[] bytes = BitEfficient.write(request("boss@a clerk@b"), UnaryOperator.identity());
        ACLMessage read = BitEfficient.read(bytes, UnaryOperator.identity());
        assertEquals(List.of("boss@a", "clerk@b"), Delegation.of(read, "store@a"));
    }

    @Test
    void aChainHasAnEnd() throws Exception {
        String most = String.join(" ", Collections.nCopies(2, "a@p b@p c@p d@p"));
        assertEquals(Delegation.MOST_ASKERS, Delegation.of(request(most), "store@p").size());
        assertEquals("not-permitted", refused("store@p", most + " e@p"));
        assertEquals("not-permitted", refused("store@p", "a@p" + " b@p".repeat(1_000_000)));
    }

    @Test
    void noCircleGoesOn() throws Exception {
        // An agent is asked back once.
        assertEquals(3, Delegation.of(request("a@p b@p c@p"), "a@p").size());
        assertEquals("not-permitted", refused("a@p", "a@p b@p a@p c@p"));
        assertEquals("not-permitted", refused("b@p", "a@p b@p"));
        assertEquals("not-permitted", refused("c@p", "a@p b@p a@p b@p a@p"));
    }

    @Test
    void whatIsNoChainIsRefused() {
        String tooLong = "\u00e4".repeat(Delegation.LONGEST_ASKER / 2 + 1);
        for (String wrong : new String[] {"", " ", "a@p ", " a@p", "c@p  d@p", "c@p\td@p", "c@p\u00a0d", "c@p\u0085", tooLong}) {
            assertEquals("malformed", refused("b@p", wrong), wrong);
        }
        assertEquals("malformed", refused("x@p", "a@p", "b@p"));
    }

    @Test
    void bytesWithAChainThatIsNoTextOrIsThereTwiceAreNoMessage() {
        String name = "0010" + HexFormat.of().formatHex(Delegation.ON_BEHALF_OF.getBytes()) + "00";
        String boss = "10" + HexFormat.of().formatHex("boss@a".getBytes()) + "00";
        String once = "fa1013" + name + boss;
        assertEquals("boss@a", read(once + "01").getUserDefinedParameter(Delegation.ON_BEHALF_OF));
        for (String wrong : new String[] {once + name + boss, "fa1013" + name + "60" + boss + "40", "fa1013" + name + "160161"}) {
            assertThrows(IllegalArgumentException.class, () -> read(wrong + "01"), wrong);
        }
    }

    private static ACLMessage read(String hex) {
        try {
            return BitEfficient.read(HexFormat.of().parseHex(hex), UnaryOperator.identity());
        } catch (BitEfficient.Malformed wrong) {
            throw new IllegalArgumentException(wrong);
        }
    }
}

package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jade.core.AID;
import jade.core.GenericCommand;
import jade.core.messaging.GenericMessage;
import jade.core.messaging.MessagingSlice;
import jade.lang.acl.ACLMessage;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Messages of agents of JADE that claim what only the service says. */
class FactsTest {
    /** As later versions of JADE have it: several messages to one agent come at once. */
    public static final class Several extends GenericMessage {
        private final transient List<GenericMessage> messages;

        Several(List<GenericMessage> messages) {
            this.messages = messages;
        }

        public List<GenericMessage> getMessages() {
            return messages;
        }
    }

    private static ACLMessage forged() {
        ACLMessage message = new ACLMessage(ACLMessage.REQUEST);
        message.setContent("near");
        message.addUserDefinedParameter(SealbusService.PROVENANCE, SealbusService.PROVED);
        message.addUserDefinedParameter(Post.NUMBER, "7");
        return message;
    }

    private static void come(GenericMessage brought) {
        GenericCommand command = new GenericCommand(MessagingSlice.SEND_MESSAGE, MessagingSlice.NAME, null);
        command.addParam(new AID("mallory@jade", AID.ISGUID));
        command.addParam(brought);
        assertTrue(new Facts().accept(command));
    }

    private static void isCleaned(ACLMessage message) {
        assertEquals(SealbusHelper.Provenance.JADE, SealbusHelper.provenance(message));
        assertNull(message.getUserDefinedParameter(Post.NUMBER));
        assertEquals("near", message.getContent());
    }

    @Test
    void nobodyElseSaysHowASenderIsKnown() {
        ACLMessage message = forged();
        come(new GenericMessage(message));
        isCleaned(message);
    }

    @Test
    void nobodyElseSaysItInOneOfMany() {
        List<ACLMessage> messages = List.of(forged(), forged());
        come(new Several(messages.stream().map(GenericMessage::new).toList()));
        messages.forEach(FactsTest::isCleaned);
    }
}

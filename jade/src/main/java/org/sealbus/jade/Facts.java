package org.sealbus.jade;

import jade.core.Filter;
import jade.core.VerticalCommand;
import jade.core.messaging.GenericMessage;
import jade.core.messaging.MessagingSlice;
import jade.lang.acl.ACLMessage;
import java.util.List;

/**
 * The parameters in which the service says what it knows of a message. As a filter it sees what agents of JADE send to those of this
 * container, and removes what they wrote into these parameters.
 */
final class Facts extends Filter {
    private static final List<String> NAMES = List.of(SealbusService.PROVENANCE, Post.NUMBER, Post.AGAIN,
            SealbusHelper.CHANNEL, SealbusHelper.EVENT, SealbusHelper.TASK, SealbusHelper.QUESTION);

    /** Removes what a sender wrote into the parameters. */
    static void remove(ACLMessage message) {
        NAMES.forEach(message::removeUserDefinedParameter);
    }

    @Override
    protected boolean accept(VerticalCommand command) {
        if (command.getName().equals(MessagingSlice.SEND_MESSAGE)) {
            for (GenericMessage one : messages((GenericMessage) command.getParam(1))) {
                if (one.getACLMessage() != null) {
                    remove(one.getACLMessage());
                }
            }
        }
        return true;
    }

    /** The messages that one command brings. Later versions of JADE bring several at once, in a class that JADE 4.3 does not have. */
    private static List<GenericMessage> messages(GenericMessage brought) {
        if (brought.getClass() == GenericMessage.class) {
            return List.of(brought);
        }
        try {
            List<?> several = (List<?>) brought.getClass().getMethod("getMessages").invoke(brought);
            return several.stream().map(GenericMessage.class::cast).toList();
        } catch (NoSuchMethodException one) {
            return List.of(brought);
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException("the messages of " + brought.getClass() + " cannot be read", impossible);
        }
    }
}

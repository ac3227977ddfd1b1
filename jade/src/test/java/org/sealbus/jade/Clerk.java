package org.sealbus.jade;

import jade.core.AID;
import jade.core.ServiceException;
import jade.lang.acl.ACLMessage;
import java.io.IOException;

/**
 * Writes one message for each argument, and then prints what it gets as a caller does. An argument names the receiver, the text and
 * the chain with a {@code +} between two agents, if there is one. With {@code !} before it, the message goes past the rules of this container.
 */
public class Clerk extends Caller {
    @Override
    protected void begin() {
        for (Object argument : getArguments()) {
            String[] words = ((String) argument).split("/", 3);
            ACLMessage request = new ACLMessage(ACLMessage.REQUEST);
            String receiver = words[0].replace("!", "");
            request.addReceiver(new AID(receiver, AID.ISGUID));
            request.setContent(words[1]);
            request.setReplyWith(words[1]);
            if (words.length > 2) {
                request.addUserDefinedParameter(Delegation.ON_BEHALF_OF, words[2].replace('+', ' '));
            }
            if (words[0].startsWith("!")) {
                smuggle(request, receiver);
            } else {
                send(request);
            }
        }
    }

    private void smuggle(ACLMessage request, String receiver) {
        request.setSender(getAID());
        try {
            SealbusService service = SealbusHelper.of(this).service();
            service.mesh().routes.send(new Letter(getLocalName(), receiver, service.write(request)));
        } catch (ServiceException | IOException | InterruptedException failed) {
            System.out.println(getLocalName() + " failed: " + failed);
        }
    }
}

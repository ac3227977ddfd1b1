package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.lang.acl.ACLMessage;

/**
 * Writes its second argument to the agent that the first one names, in its own name or in that of a third argument; a
 * fourth one says how the sender is known. Then it prints all that it gets.
 */
public class Caller extends Agent {
    @Override
    protected void setup() {
        begin();
        addBehaviour(new jade.core.behaviours.CyclicBehaviour(this) {
            @Override
            public void action() {
                ACLMessage message = receive();
                if (message == null) {
                    block();
                    return;
                }
                System.out.println(getLocalName() + " got " + ACLMessage.getPerformative(message.getPerformative()) + " from "
                        + message.getSender().getName() + ", "
                        + message.getUserDefinedParameter(SealbusService.PROVENANCE) + ", to "
                        + message.getInReplyTo() + ": " + message.getContent());
            }
        });
    }

    /** Writes. */
    protected void begin() {
        Object[] arguments = getArguments();
        ACLMessage request = new ACLMessage(ACLMessage.REQUEST);
        request.addReceiver(new AID((String) arguments[0], AID.ISGUID));
        request.setContent((String) arguments[1]);
        request.setConversationId("c 1");
        request.setReplyWith("r1");
        if (arguments.length > 2) {
            String claimed = (String) arguments[2];
            request.setSender(new AID(claimed, claimed.contains("@") ? AID.ISGUID : AID.ISLOCALNAME));
        }
        if (arguments.length > 3) {
            request.addUserDefinedParameter(SealbusService.PROVENANCE, (String) arguments[3]);
        }
        send(request);
    }
}

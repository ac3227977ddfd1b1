package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.lang.acl.ACLMessage;

/** Writes to the agent that its argument names, and ends at once. */
public class Hasty extends Agent {
    @Override
    protected void setup() {
        ACLMessage message = new ACLMessage(ACLMessage.INFORM);
        message.addReceiver(new AID((String) getArguments()[0], AID.ISGUID));
        message.setContent("last words");
        send(message);
        doDelete();
    }
}

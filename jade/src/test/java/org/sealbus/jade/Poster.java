package org.sealbus.jade;

import jade.core.AID;
import jade.core.ServiceException;
import jade.lang.acl.ACLMessage;

/**
 * Sends its second argument, to be kept, to the agent that the first one names, on behalf of the agent that a third one names. Then
 * it prints what it gets as a caller does.
 */
public class Poster extends Caller {
    @Override
    protected void begin() {
        ACLMessage message = new ACLMessage(ACLMessage.REQUEST);
        message.addReceiver(new AID((String) getArguments()[0], AID.ISGUID));
        message.setContent((String) getArguments()[1]);
        message.setReplyWith("r1");
        if (getArguments().length > 2) {
            message.addUserDefinedParameter(Delegation.ON_BEHALF_OF, (String) getArguments()[2]);
        }
        try {
            SealbusHelper sealbus = SealbusHelper.of(this);
            System.out.println(sealbus.name().getName() + " is at level " + sealbus.level() + " of " + sealbus.platform());
            sealbus.sendPersistent(message, SealbusHelper.Delivery.KEPT.receipt(SealbusHelper.Receipt.AGENT));
            System.out.println(getLocalName() + "'s message is kept");
        } catch (ServiceException | SealbusHelper.NotKept refused) {
            System.out.println(getLocalName() + "'s message is not kept: " + refused.getMessage());
        }
    }
}

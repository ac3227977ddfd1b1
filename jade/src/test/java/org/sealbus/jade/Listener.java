package org.sealbus.jade;

import jade.core.Agent;
import jade.core.ServiceException;
import jade.core.behaviours.CyclicBehaviour;
import jade.lang.acl.ACLMessage;

/** Subscribes to the pattern that its argument names, and prints the events it gets. */
public class Listener extends Agent {
    private transient ChannelSubscription made;

    @Override
    protected void setup() {
        try {
            made = SealbusHelper.of(this).subscribe((String) getArguments()[0]);
            System.out.println(getLocalName() + " listens to " + made.pattern());
        } catch (ServiceException | IllegalArgumentException | IllegalStateException refused) {
            System.out.println(getLocalName() + " does not listen: " + refused.getMessage());
        }
        addBehaviour(new CyclicBehaviour(this) {
            @Override
            public void action() {
                ACLMessage event = receive();
                if (event == null) {
                    block();
                    return;
                }
                String content = event.getContent();
                System.out.println(getLocalName() + " heard " + content.substring(0, Math.min(content.length(), 20)) + " on "
                        + SealbusHelper.channel(event) + " from " + event.getSender().getName() + ", "
                        + SealbusHelper.provenance(event));
                if (content.equals("enough, " + getLocalName())) {
                    made.close();
                    System.out.println(getLocalName() + " listens no more");
                }
            }
        });
    }
}

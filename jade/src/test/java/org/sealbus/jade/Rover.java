package org.sealbus.jade;

import jade.core.Agent;
import jade.core.ContainerID;
import jade.core.ServiceException;
import jade.core.behaviours.OneShotBehaviour;
import jade.lang.acl.MessageTemplate;

/** Subscribes to the pattern that its first argument names. When it is told to go, it moves to the container that the second one names. */
public class Rover extends Agent {
    @Override
    protected void setup() {
        try {
            SealbusHelper.of(this).subscribe((String) getArguments()[0]);
        } catch (ServiceException missing) {
            throw new IllegalStateException(missing);
        }
        System.out.println(getLocalName() + " listens");
        addBehaviour(new OneShotBehaviour(this) {
            @Override
            public void action() {
                blockingReceive(MessageTemplate.MatchContent("go"));
                System.out.println(getLocalName() + " goes");
                doMove(new ContainerID((String) getArguments()[1], null));
            }
        });
    }
}

package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.core.Location;
import jade.core.ContainerID;
import jade.core.behaviours.OneShotBehaviour;
import jade.domain.DFService;
import jade.domain.FIPAAgentManagement.DFAgentDescription;
import jade.domain.FIPAAgentManagement.ServiceDescription;
import jade.domain.FIPAException;
import jade.lang.acl.MessageTemplate;

/**
 * Registers a service of the type that its first argument names with the DF of the Sealbus platform, and lists what that DF has
 * of it. When it is told to go, it moves to the container that a second argument names.
 */
public class Registrar extends Agent {
    @Override
    protected void setup() {
        String type = (String) getArguments()[0];
        addBehaviour(new OneShotBehaviour(this) {
            @Override
            public void action() {
                AID df = new AID("df@factory", AID.ISGUID);
                ServiceDescription service = new ServiceDescription();
                service.setType(type);
                service.setName(type);
                DFAgentDescription entry = new DFAgentDescription();
                // The name that agents of Sealbus know.
                entry.setName(new AID(getLocalName() + "@factory", AID.ISGUID));
                entry.addServices(service);
                DFAgentDescription wanted = new DFAgentDescription();
                wanted.addServices(service);
                try {
                    DFService.register(myAgent, df, entry);
                    for (DFAgentDescription found : DFService.search(myAgent, df, wanted)) {
                        System.out.println(getLocalName() + " found " + found.getName().getName());
                    }
                } catch (FIPAException refused) {
                    System.out.println(getLocalName() + " failed: " + refused.getMessage());
                }
                if (getArguments().length > 1) {
                    blockingReceive(MessageTemplate.MatchContent("go"));
                    Location there = new ContainerID((String) getArguments()[1], null);
                    doMove(there);
                }
            }
        });
    }

    @Override
    protected void afterMove() {
        System.out.println(getLocalName() + " is at " + here().getName());
    }
}

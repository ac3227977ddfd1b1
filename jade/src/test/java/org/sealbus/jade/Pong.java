package org.sealbus.jade;

import jade.core.Agent;
import jade.core.behaviours.CyclicBehaviour;
import jade.domain.DFService;
import jade.domain.FIPAAgentManagement.DFAgentDescription;
import jade.domain.FIPAAgentManagement.ServiceDescription;
import jade.domain.FIPAException;
import jade.lang.acl.ACLMessage;

/** An agent as it is written for JADE: it registers with the DF, and answers each request with its content. */
public class Pong extends Agent {
    @Override
    protected void setup() {
        ServiceDescription service = new ServiceDescription();
        service.setType("pong");
        service.setName("pong");
        DFAgentDescription description = new DFAgentDescription();
        description.setName(getAID());
        description.addServices(service);
        try {
            DFService.register(this, description);
        } catch (FIPAException refused) {
            throw new IllegalStateException(refused);
        }
        addBehaviour(new CyclicBehaviour(this) {
            @Override
            public void action() {
                ACLMessage request = receive();
                if (request == null) {
                    block();
                    return;
                }
                ACLMessage reply = request.createReply();
                reply.setPerformative(ACLMessage.INFORM);
                reply.setContent(request.getContent());
                send(reply);
            }
        });
    }
}

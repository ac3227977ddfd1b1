package org.sealbus.jade;

import jade.core.Agent;
import jade.core.behaviours.CyclicBehaviour;
import jade.domain.DFService;
import jade.domain.FIPAAgentManagement.DFAgentDescription;
import jade.domain.FIPAAgentManagement.ServiceDescription;
import jade.domain.FIPAException;
import jade.lang.acl.ACLMessage;
import java.util.Arrays;
import java.util.stream.Collectors;

/**
 * Has an entry in JADE's DF, with a service of the type that its argument names, and knows nothing of Sealbus. Requests tell it
 * to change the entry, to remove it, or to say what JADE's DF has of a type.
 */
public class Entrant extends Agent {
    @Override
    protected void setup() {
        try {
            DFService.register(this, entry((String) getArguments()[0]));
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
                try {
                    reply.setContent(obey(request.getContent().split(" ")));
                } catch (FIPAException refused) {
                    reply.setContent("refused: " + refused.getMessage());
                }
                send(reply);
            }
        });
    }

    private static DFAgentDescription entry(String type) {
        ServiceDescription service = new ServiceDescription();
        service.setType(type);
        service.setName(type);
        DFAgentDescription entry = new DFAgentDescription();
        entry.addServices(service);
        return entry;
    }

    private String obey(String[] words) throws FIPAException {
        switch (words[0]) {
            case "modify" -> DFService.modify(this, entry(words[1]));
            case "deregister" -> DFService.deregister(this);
            default -> {
                return "found " + Arrays.stream(DFService.search(this, entry(words[1])))
                        .map(found -> found.getName().getName()).sorted().collect(Collectors.joining(" ")) + ".";
            }
        }
        return "done";
    }
}

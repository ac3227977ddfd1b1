package org.sealbus.jade;

import jade.core.Agent;
import jade.core.behaviours.OneShotBehaviour;
import jade.domain.DFService;
import jade.domain.FIPAAgentManagement.DFAgentDescription;
import jade.domain.FIPAAgentManagement.ServiceDescription;
import jade.domain.FIPAException;
import jade.lang.acl.ACLMessage;
import jade.lang.acl.MessageTemplate;

/**
 * Finds a pong in the DF, and asks it again and again: as often as its first argument says, with as many milliseconds between
 * as the second one says.
 */
public class Ping extends Agent {
    @Override
    protected void setup() {
        int requests = Integer.parseInt((String) getArguments()[0]);
        long pause = Long.parseLong((String) getArguments()[1]);
        addBehaviour(new OneShotBehaviour(this) {
            @Override
            public void action() {
                try {
                    ask(requests, pause);
                } catch (FIPAException | InterruptedException failed) {
                    System.out.println("ping failed: " + failed);
                }
            }
        });
    }

    private void ask(int requests, long pause) throws FIPAException, InterruptedException {
        ServiceDescription service = new ServiceDescription();
        service.setType("pong");
        DFAgentDescription wanted = new DFAgentDescription();
        wanted.addServices(service);
        DFAgentDescription[] found = {};
        while (found.length == 0) {
            found = DFService.search(this, wanted);
            Thread.sleep(100);
        }
        for (int i = 1; i <= requests; i++) {
            ACLMessage request = new ACLMessage(ACLMessage.REQUEST);
            request.addReceiver(found[0].getName());
            request.setContent("ball " + i);
            request.setReplyWith("r" + i);
            send(request);
            ACLMessage reply = blockingReceive(MessageTemplate.MatchInReplyTo("r" + i), Platform.LIMIT * 1000);
            if (reply == null || !request.getContent().equals(reply.getContent())) {
                System.out.println("ping lost ball " + i + ": " + reply);
                return;
            }
            System.out.println("ping got ball " + i + ".");
            Thread.sleep(pause);
        }
        System.out.println("ping has " + requests + " answers of " + found[0].getName().getName());
    }
}

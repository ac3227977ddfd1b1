import jade.core.AID;
import jade.core.Agent;
import jade.core.behaviours.CyclicBehaviour;
import jade.lang.acl.ACLMessage;
import jade.lang.acl.MessageTemplate;

/**
 * Passes each request on to the agent whose name and address are its arguments, with the trace that it belongs to, and the
 * answer back in the same way.
 */
public class Messenger extends Agent {
    @Override
    protected void setup() {
        addBehaviour(new CyclicBehaviour(this) {
            @Override
            public void action() {
                ACLMessage request = receive(MessageTemplate.MatchPerformative(ACLMessage.REQUEST));
                if (request == null) {
                    block();
                    return;
                }
                ACLMessage onward = new ACLMessage(ACLMessage.REQUEST);
                AID to = new AID((String) getArguments()[0], AID.ISGUID);
                to.addAddresses((String) getArguments()[1]);
                onward.addReceiver(to);
                onward.setContent(request.getContent());
                onward.setReplyWith("passed on: " + request.getReplyWith());
                pass(request, onward);
                ACLMessage answer = blockingReceive(MessageTemplate.MatchInReplyTo(onward.getReplyWith()));
                ACLMessage back = request.createReply();
                back.setPerformative(answer.getPerformative());
                back.setContent(answer.getContent());
                pass(answer, back);
            }
        });
    }

    private void pass(ACLMessage from, ACLMessage message) {
        for (String name : new String[] {"traceparent", "tracestate"}) {
            String value = from.getUserDefinedParameter(name);
            if (value != null) {
                message.addUserDefinedParameter(name, value);
            }
        }
        send(message);
    }
}

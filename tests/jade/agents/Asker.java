import jade.core.AID;
import jade.core.Agent;
import jade.lang.acl.ACLMessage;

/** Asks a tool of the agent whose name and address are its arguments, as any agent of FIPA asks, and prints the answer. */
public class Asker extends Agent {
    @Override
    protected void setup() {
        ACLMessage request = new ACLMessage(ACLMessage.REQUEST);
        AID model = new AID((String) getArguments()[0], AID.ISGUID);
        model.addAddresses((String) getArguments()[1]);
        request.addReceiver(model);
        request.setProtocol("fipa-request");
        request.setConversationId("completion");
        request.setContent("{\"text\": \"agents\", \"words\": 5}");
        send(request);
        ACLMessage answer;
        do {
            answer = blockingReceive();
        } while (answer.getPerformative() == ACLMessage.AGREE);
        System.out.println("heard " + ACLMessage.getPerformative(answer.getPerformative()) + " " + answer.getContent());
    }
}

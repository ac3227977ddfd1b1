import jade.core.Agent;
import jade.domain.FIPANames.InteractionProtocol;
import jade.domain.FIPAAgentManagement.FailureException;
import jade.domain.FIPAAgentManagement.RefuseException;
import jade.lang.acl.ACLMessage;
import jade.lang.acl.MessageTemplate;
import jade.proto.AchieveREResponder;
import jade.proto.ContractNetResponder;

/** Does what it is asked by JADE's own protocol classes: FIPA-Request, and FIPA-Contract-Net with the price it was started with. */
public class Participant extends Agent {
    @Override
    protected void setup() {
        final String price = getArguments() == null ? "0" : (String) getArguments()[0];
        addBehaviour(new AchieveREResponder(this, AchieveREResponder.createMessageTemplate(InteractionProtocol.FIPA_REQUEST)) {
            @Override
            protected ACLMessage handleRequest(ACLMessage request) throws RefuseException {
                if ("impossible".equals(request.getContent())) {
                    throw new RefuseException("not me");
                }
                ACLMessage agree = request.createReply();
                agree.setPerformative(ACLMessage.AGREE);
                return agree;
            }

            @Override
            protected ACLMessage prepareResultNotification(ACLMessage request, ACLMessage response) throws FailureException {
                ACLMessage inform = request.createReply();
                inform.setPerformative(ACLMessage.INFORM);
                inform.setContent("done " + request.getContent());
                return inform;
            }
        });
        MessageTemplate calls = MessageTemplate.and(
            MessageTemplate.MatchProtocol(InteractionProtocol.FIPA_CONTRACT_NET),
            MessageTemplate.MatchPerformative(ACLMessage.CFP));
        addBehaviour(new ContractNetResponder(this, calls) {
            @Override
            protected ACLMessage handleCfp(ACLMessage cfp) {
                ACLMessage propose = cfp.createReply();
                propose.setPerformative(ACLMessage.PROPOSE);
                propose.setContent(price);
                return propose;
            }

            @Override
            protected ACLMessage handleAcceptProposal(ACLMessage cfp, ACLMessage propose, ACLMessage accept) {
                ACLMessage inform = accept.createReply();
                inform.setPerformative(ACLMessage.INFORM);
                inform.setContent("sold for " + price);
                return inform;
            }
        });
    }
}

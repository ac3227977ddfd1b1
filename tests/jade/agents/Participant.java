import jade.core.Agent;
import jade.core.behaviours.Behaviour;
import jade.core.behaviours.TickerBehaviour;
import jade.domain.FIPANames.InteractionProtocol;
import jade.domain.FIPAAgentManagement.FailureException;
import jade.domain.FIPAAgentManagement.RefuseException;
import jade.lang.acl.ACLMessage;
import jade.lang.acl.MessageTemplate;
import jade.proto.AchieveREResponder;
import jade.proto.ContractNetResponder;
import jade.proto.ProposeResponder;
import jade.proto.SSIteratedContractNetResponder;
import jade.proto.SSResponderDispatcher;
import jade.proto.SubscriptionResponder;

/**
 * Does what it is asked by JADE's own protocol classes: FIPA-Request, FIPA-Query, FIPA-Request-When, FIPA-Subscribe, FIPA-Propose, and
 * FIPA-Contract-Net with the price it was started with. In FIPA-Iterated-Contract-Net it takes off 2 in each further round.
 */
public class Participant extends Agent {
    @Override
    protected void setup() {
        final String price = getArguments() == null ? "0" : (String) getArguments()[0];
        achieve(InteractionProtocol.FIPA_REQUEST);
        achieve(InteractionProtocol.FIPA_QUERY);
        achieve(InteractionProtocol.FIPA_REQUEST_WHEN);
        negotiate(Integer.parseInt(price));
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
        addBehaviour(new SubscriptionResponder(this, SubscriptionResponder.createMessageTemplate(ACLMessage.SUBSCRIBE)) {
            private TickerBehaviour ticker;

            @Override
            protected ACLMessage handleSubscription(ACLMessage subscription) throws RefuseException {
                if ("nothing".equals(subscription.getContent())) {
                    throw new RefuseException("nothing");
                }
                final Subscription subscribed = createSubscription(subscription);
                ticker = new TickerBehaviour(myAgent, 20) {
                    @Override
                    protected void onTick() {
                        ACLMessage inform = new ACLMessage(ACLMessage.INFORM);
                        inform.setContent(String.valueOf(getTickCount()));
                        subscribed.notify(inform);
                    }
                };
                myAgent.addBehaviour(ticker);
                ACLMessage agree = subscription.createReply();
                agree.setPerformative(ACLMessage.AGREE);
                return agree;
            }

            @Override
            protected ACLMessage handleCancel(ACLMessage cancel) {
                ticker.stop();
                ACLMessage inform = cancel.createReply();
                inform.setPerformative(ACLMessage.INFORM);
                return inform;
            }
        });
        addBehaviour(new ProposeResponder(this, ProposeResponder.createMessageTemplate(InteractionProtocol.FIPA_PROPOSE)) {
            @Override
            protected ACLMessage prepareResponse(ACLMessage proposal) {
                ACLMessage answer = proposal.createReply();
                boolean good = "good".equals(proposal.getContent());
                answer.setPerformative(good ? ACLMessage.ACCEPT_PROPOSAL : ACLMessage.REJECT_PROPOSAL);
                return answer;
            }
        });
    }

    private void achieve(String protocol) {
        addBehaviour(new AchieveREResponder(this, AchieveREResponder.createMessageTemplate(protocol)) {
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
    }

    private void negotiate(final int price) {
        MessageTemplate calls = MessageTemplate.and(
            MessageTemplate.MatchProtocol(InteractionProtocol.FIPA_ITERATED_CONTRACT_NET),
            MessageTemplate.MatchPerformative(ACLMessage.CFP));
        addBehaviour(new SSResponderDispatcher(this, calls) {
            @Override
            protected Behaviour createResponder(ACLMessage call) {
                return new SSIteratedContractNetResponder(myAgent, call) {
                    private int asked = price;

                    @Override
                    protected ACLMessage handleCfp(ACLMessage cfp) {
                        if ("cheaper".equals(cfp.getContent())) {
                            asked -= 2;
                        }
                        ACLMessage propose = cfp.createReply();
                        propose.setPerformative(ACLMessage.PROPOSE);
                        propose.setContent(String.valueOf(asked));
                        return propose;
                    }

                    @Override
                    protected ACLMessage handleAcceptProposal(ACLMessage cfp, ACLMessage propose, ACLMessage accept) {
                        ACLMessage inform = accept.createReply();
                        inform.setPerformative(ACLMessage.INFORM);
                        inform.setContent("sold for " + asked);
                        return inform;
                    }
                };
            }
        });
    }
}

import java.util.Date;
import java.util.Enumeration;
import java.util.Iterator;
import java.util.Vector;

import jade.core.AID;
import jade.core.Agent;
import jade.core.behaviours.CyclicBehaviour;
import jade.domain.FIPANames.InteractionProtocol;
import jade.lang.acl.ACLMessage;
import jade.lang.acl.MessageTemplate;
import jade.proto.AchieveREInitiator;
import jade.proto.ContractNetInitiator;
import jade.proto.ProposeInitiator;
import jade.proto.SubscriptionInitiator;

/**
 * Begins protocols when it is told to, by JADE's own classes, and tells who told it how they ended.
 *
 * The order is a message without protocol: "request …", "query-if …", "query-ref …", "request-when …", "subscribe …", "propose …",
 * "contract-net" or "iterated-contract-net", its reply-to the agents to speak with.
 */
public class Initiator extends Agent {
    @Override
    protected void setup() {
        final MessageTemplate orders = MessageTemplate.MatchOntology("order");
        addBehaviour(new CyclicBehaviour(this) {
            @Override
            public void action() {
                ACLMessage order = receive(orders);
                if (order == null) {
                    block();
                } else if (order.getContent().startsWith("request ")) {
                    request(order, ACLMessage.REQUEST, InteractionProtocol.FIPA_REQUEST);
                } else if (order.getContent().startsWith("query-if ")) {
                    request(order, ACLMessage.QUERY_IF, InteractionProtocol.FIPA_QUERY);
                } else if (order.getContent().startsWith("query-ref ")) {
                    request(order, ACLMessage.QUERY_REF, InteractionProtocol.FIPA_QUERY);
                } else if (order.getContent().startsWith("request-when ")) {
                    request(order, ACLMessage.REQUEST_WHEN, InteractionProtocol.FIPA_REQUEST_WHEN);
                } else if (order.getContent().startsWith("subscribe ")) {
                    subscribe(order);
                } else if (order.getContent().startsWith("propose ")) {
                    suggest(order);
                } else if (order.getContent().startsWith("iterated")) {
                    call(order, InteractionProtocol.FIPA_ITERATED_CONTRACT_NET);
                } else {
                    call(order, InteractionProtocol.FIPA_CONTRACT_NET);
                }
            }
        });
    }

    private void report(ACLMessage order, String what) {
        ACLMessage report = new ACLMessage(ACLMessage.INFORM);
        report.addReceiver(order.getSender());
        report.setConversationId(order.getConversationId());
        report.setContent(what);
        send(report);
    }

    private ACLMessage first(ACLMessage order, int performative, String protocol) {
        ACLMessage first = new ACLMessage(performative);
        first.setProtocol(protocol);
        for (Iterator<?> all = order.getAllReplyTo(); all.hasNext();) {
            first.addReceiver((AID) all.next());
        }
        first.setReplyByDate(new Date(System.currentTimeMillis() + 60000));
        return first;
    }

    private void request(final ACLMessage order, int performative, String protocol) {
        ACLMessage request = first(order, performative, protocol);
        request.setContent(order.getContent().substring(order.getContent().indexOf(' ') + 1));
        addBehaviour(new AchieveREInitiator(this, request) {
            private String heard = "";

            @Override
            protected void handleAgree(ACLMessage agree) {
                heard += "agree ";
            }

            @Override
            protected void handleRefuse(ACLMessage refuse) {
                report(order, heard + "refuse");
            }

            @Override
            protected void handleInform(ACLMessage inform) {
                report(order, heard + "inform " + inform.getContent());
            }

            @Override
            protected void handleFailure(ACLMessage failure) {
                report(order, heard + "failure " + failure.getContent());
            }
        });
    }

    private void subscribe(final ACLMessage order) {
        ACLMessage subscription = first(order, ACLMessage.SUBSCRIBE, InteractionProtocol.FIPA_SUBSCRIBE);
        subscription.setContent(order.getContent().substring("subscribe ".length()));
        addBehaviour(new SubscriptionInitiator(this, subscription) {
            private String heard = "";
            private int count = 0;

            @Override
            protected void handleAgree(ACLMessage agree) {
                heard += "agree ";
            }

            @Override
            protected void handleRefuse(ACLMessage refuse) {
                report(order, heard + "refuse");
            }

            @Override
            protected void handleInform(ACLMessage inform) {
                heard += inform.getContent() + " ";
                count += 1;
                if (count == 3) {
                    cancel(inform.getSender(), false);
                    report(order, heard + "cancel");
                }
            }

            @Override
            protected void handleFailure(ACLMessage failure) {
                report(order, heard + "failure");
            }
        });
    }

    private void suggest(final ACLMessage order) {
        ACLMessage proposal = first(order, ACLMessage.PROPOSE, InteractionProtocol.FIPA_PROPOSE);
        proposal.setContent(order.getContent().substring("propose ".length()));
        addBehaviour(new ProposeInitiator(this, proposal) {
            @Override
            protected void handleAcceptProposal(ACLMessage accept) {
                report(order, "accepted");
            }

            @Override
            protected void handleRejectProposal(ACLMessage reject) {
                report(order, "rejected");
            }
        });
    }

    /** An iterated contract net has two rounds: all that made a proposal are called again. */
    private void call(final ACLMessage order, final String protocol) {
        ACLMessage call = first(order, ACLMessage.CFP, protocol);
        call.setContent("box");
        addBehaviour(new ContractNetInitiator(this, call) {
            private boolean again = InteractionProtocol.FIPA_ITERATED_CONTRACT_NET.equals(protocol);

            @Override
            protected void handleAllResponses(Vector responses, Vector acceptances) {
                if (again) {
                    again = false;
                    Vector<ACLMessage> calls = new Vector<>();
                    for (Enumeration<?> all = responses.elements(); all.hasMoreElements();) {
                        ACLMessage response = (ACLMessage) all.nextElement();
                        if (response.getPerformative() == ACLMessage.PROPOSE) {
                            ACLMessage next = response.createReply();
                            next.setPerformative(ACLMessage.CFP);
                            next.setContent("cheaper");
                            next.setReplyByDate(new Date(System.currentTimeMillis() + 60000));
                            calls.addElement(next);
                        }
                    }
                    newIteration(calls);
                    return;
                }
                ACLMessage best = null;
                for (Enumeration<?> all = responses.elements(); all.hasMoreElements();) {
                    ACLMessage response = (ACLMessage) all.nextElement();
                    if (response.getPerformative() != ACLMessage.PROPOSE) {
                        continue;
                    }
                    if (best == null || price(response) < price(best)) {
                        best = response;
                    }
                }
                for (Enumeration<?> all = responses.elements(); all.hasMoreElements();) {
                    ACLMessage response = (ACLMessage) all.nextElement();
                    if (response.getPerformative() == ACLMessage.PROPOSE) {
                        ACLMessage answer = response.createReply();
                        answer.setPerformative(response == best ? ACLMessage.ACCEPT_PROPOSAL : ACLMessage.REJECT_PROPOSAL);
                        acceptances.addElement(answer);
                    }
                }
            }

            @Override
            protected void handleInform(ACLMessage inform) {
                report(order, inform.getSender().getLocalName() + " " + inform.getContent());
            }
        });
    }

    private static int price(ACLMessage proposal) {
        return Integer.parseInt(proposal.getContent());
    }
}

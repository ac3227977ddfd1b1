import java.util.Iterator;

import jade.content.lang.sl.SLCodec;
import jade.content.onto.basic.Action;
import jade.core.AID;
import jade.core.Agent;
import jade.core.behaviours.OneShotBehaviour;
import jade.core.behaviours.CyclicBehaviour;
import jade.core.behaviours.ThreadedBehaviourFactory;
import jade.domain.DFService;
import jade.domain.DFGUIManagement.DFAppletOntology;
import jade.domain.DFGUIManagement.Federate;
import jade.domain.FIPAAgentManagement.DFAgentDescription;
import jade.domain.FIPAAgentManagement.SearchConstraints;
import jade.domain.FIPAAgentManagement.ServiceDescription;
import jade.domain.FIPANames;
import jade.domain.FIPAService;
import jade.lang.acl.ACLMessage;
import jade.lang.acl.MessageTemplate;

/**
 * Uses DFs as it is told to, with JADE's own classes, and tells who told it what came of it.
 *
 * The order is "register TYPE", "deregister", "search TYPE DEPTH", "await TYPE" or "federate"; its reply-to is the DF, or nobody for JADE's own.
 */
public class Directory extends Agent {
    @Override
    protected void setup() {
        final MessageTemplate orders = MessageTemplate.MatchOntology("order");
        final ThreadedBehaviourFactory threads = new ThreadedBehaviourFactory();
        getContentManager().registerLanguage(new SLCodec(0), FIPANames.ContentLanguage.FIPA_SL0);
        getContentManager().registerOntology(DFAppletOntology.getInstance());
        addBehaviour(new CyclicBehaviour(this) {
            @Override
            public void action() {
                final ACLMessage order = receive(orders);
                if (order == null) {
                    block();
                    return;
                }
                // JADE's calls wait for the answer.
                addBehaviour(threads.wrap(new OneShotBehaviour(myAgent) {
                    @Override
                    public void action() {
                        ACLMessage report = new ACLMessage(ACLMessage.INFORM);
                        report.addReceiver(order.getSender());
                        report.setConversationId(order.getConversationId());
                        try {
                            report.setContent(obey(order));
                        } catch (Exception problem) {
                            report.setContent(problem.toString());
                        }
                        send(report);
                    }
                }));
            }
        });
    }

    private String obey(ACLMessage order) throws Exception {
        String[] words = order.getContent().split(" ");
        Iterator<?> all = order.getAllReplyTo();
        AID df = all.hasNext() ? (AID) all.next() : getDefaultDF();
        switch (words[0]) {
            case "register":
                DFService.register(this, df, description(words[1]));
                return "registered";
            case "deregister":
                DFService.deregister(this, df);
                return "deregistered";
            case "federate":
                return federate(df);
            default:
                SearchConstraints constraints = new SearchConstraints();
                constraints.setMaxResults(-1L);
                DFAgentDescription template = new DFAgentDescription();
                ServiceDescription service = new ServiceDescription();
                service.setType(words[1]);
                template.addServices(service);
                if (words[0].equals("await")) {
                    return found(DFService.searchUntilFound(this, df, template, constraints, 600_000));
                }
                constraints.setMaxDepth(Long.valueOf(words[2]));
                return found(DFService.search(this, df, template, constraints));
        }
    }

    private String found(DFAgentDescription[] entries) {
        StringBuilder found = new StringBuilder("found");
        for (DFAgentDescription entry : entries) {
            found.append(' ').append(entry.getName().getName());
            Iterator<?> addresses = entry.getName().getAllAddresses();
            found.append('=').append(addresses.hasNext() ? addresses.next() : "");
        }
        return found.toString();
    }

    private DFAgentDescription description(String type) {
        DFAgentDescription description = new DFAgentDescription();
        description.setName(getAID());
        ServiceDescription service = new ServiceDescription();
        service.setName(type);
        service.setType(type);
        description.addServices(service);
        return description;
    }

    /** Has JADE's DF register with another one, as its window does. */
    private String federate(AID df) throws Exception {
        ServiceDescription service = new ServiceDescription();
        service.setName("df-service");
        service.setType("fipa-df");
        service.addOntologies(FIPANames.ContentLanguage.FIPA_SL0);
        DFAgentDescription description = new DFAgentDescription();
        description.setName(getDefaultDF());
        description.addServices(service);
        Federate federate = new Federate();
        federate.setDf(df);
        federate.setDescription(description);
        ACLMessage request = new ACLMessage(ACLMessage.REQUEST);
        request.addReceiver(getDefaultDF());
        request.setProtocol(FIPANames.InteractionProtocol.FIPA_REQUEST);
        request.setLanguage(FIPANames.ContentLanguage.FIPA_SL0);
        request.setOntology(DFAppletOntology.getInstance().getName());
        getContentManager().fillContent(request, new Action(getDefaultDF(), federate));
        FIPAService.doFipaRequestClient(this, request);
        return "federated";
    }
}

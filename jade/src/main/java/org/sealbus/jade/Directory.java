package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.core.ServiceException;
import jade.core.behaviours.CyclicBehaviour;
import jade.core.behaviours.OneShotBehaviour;
import jade.core.behaviours.TickerBehaviour;
import jade.core.behaviours.WakerBehaviour;
import jade.domain.DFService;
import jade.domain.FIPAAgentManagement.DFAgentDescription;
import jade.domain.FIPAAgentManagement.SearchConstraints;
import jade.domain.FIPAAgentManagement.ServiceDescription;
import jade.domain.FIPAException;
import jade.lang.acl.ACLMessage;
import jade.lang.acl.MessageTemplate;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Carries entries between the DF of JADE and that of the Sealbus platform. The agent has the container's name, and each
 * container whose agents have names on Sealbus has one.
 *
 * <p>When an agent of this container registers with JADE's DF, its entry is registered with the DF of Sealbus in that agent's own
 * name and with its own proof. In a main container, entries of Sealbus' agents are also registered with JADE's DF. An entry that
 * came from a JADE platform names that platform's AMS as its resolver, so that it does not come back.
 */
public final class Directory extends Agent {
    private static final Logger LOG = Logger.getLogger("org.sealbus.jade");
    /** The type of service of a DF (FIPA00023). Entries of other DFs are not carried. */
    private static final String DF_SERVICE = "fipa-df";
    private static final String REGISTER = "register";
    private static final String MODIFY = "modify";
    private static final String DEREGISTER = "deregister";
    private static final long PATIENCE = 30_000;
    private static final long RETRY = 5_000;
    private static final long LOOK = 500;

    private transient SealbusService service;
    private AID theirs;
    /** JADE's DF takes two subscriptions of one conversation for one, whoever they are from. */
    private String conversation;
    /** Entries of JADE's DF by the local names of the agents of this container that have names on Sealbus. */
    private final Map<String, DFAgentDescription> ours = new HashMap<>();
    /** Names of entries that were carried to JADE's DF. */
    private final Set<String> carried = new HashSet<>();
    private long asked;

    /** Made by JADE. */
    public Directory() {}

    @Override
    protected void setup() {
        try {
            service = SealbusHelper.of(this).service();
        } catch (ServiceException missing) {
            throw new IllegalStateException(missing);
        }
        theirs = new AID("df@" + service.platform(), AID.ISGUID);
        conversation = "sealbus-directory-" + getName();
        service.hasDirectory(this);
        addBehaviour(new CyclicBehaviour(this) {
            @Override
            public void action() {
                ACLMessage message = receive();
                if (message == null) {
                    block();
                } else {
                    take(message);
                }
            }
        });
        // JADE tells no service that an agent has moved here.
        addBehaviour(new TickerBehaviour(this, LOOK) {
            @Override
            protected void onTick() {
                service.lookForArrivals();
            }
        });
        subscribe(getDefaultDF());
        synchronise();
    }

    /** Another thread lets this agent carry the entry of an agent that has a name on Sealbus now. */
    void began(String agent) {
        soon(() -> carry(agent));
    }

    /** Another thread lets this agent ask the DF of Sealbus anew: what it told this agent meanwhile may be lost. */
    void attachedAgain() {
        soon(() -> {
            synchronise();
            ours.keySet().forEach(this::carry);
        });
    }

    private void soon(Runnable work) {
        addBehaviour(new OneShotBehaviour(this) {
            @Override
            public void action() {
                work.run();
            }
        });
    }

    private void subscribe(AID df) {
        SearchConstraints all = new SearchConstraints();
        all.setMaxResults(-1L);
        ACLMessage subscription = DFService.createSubscriptionMessage(this, df, new DFAgentDescription(), all);
        // A second one replaces the first.
        subscription.setConversationId(conversation);
        send(subscription);
    }

    private void synchronise() {
        if (!service.isMain()) {
            return;
        }
        subscribe(theirs);
        for (String name : List.copyOf(carried)) {
            try {
                if (DFService.search(this, theirs, entry(new AID(name, AID.ISGUID))).length == 0) {
                    remove(name);
                }
            } catch (FIPAException unanswered) {
                LOG.log(Level.WARNING, "the DF of Sealbus did not say whether it has " + name, unanswered);
            }
        }
    }

    private void take(ACLMessage message) {
        boolean isTheirs = theirs.equals(message.getSender());
        boolean isDf = isTheirs || getDefaultDF().equals(message.getSender());
        if (!isDf || !conversation.equals(message.getConversationId())) {
            if (message.getPerformative() == ACLMessage.REQUEST) {
                ACLMessage answer = message.createReply();
                answer.setPerformative(ACLMessage.NOT_UNDERSTOOD);
                answer.setContent("this agent carries entries between directory facilitators, and answers nobody else");
                send(answer);
            }
            return;
        }
        try {
            switch (message.getPerformative()) {
                case ACLMessage.INFORM -> {
                    for (DFAgentDescription entry : DFService.decodeNotification(message.getContent())) {
                        if (isTheirs) {
                            carryIn(entry);
                        } else {
                            carryOut(entry);
                        }
                    }
                }
                case ACLMessage.AGREE -> {}
                default -> LOG.log(Level.WARNING, "{0} tells this container of no entries: {1}",
                        new Object[] {message.getSender().getName(), message.getContent()});
            }
        } catch (FIPAException unreadable) {
            LOG.log(Level.WARNING, "a notification of " + message.getSender().getName() + " cannot be read", unreadable);
        }
    }

    /** An entry of this name alone. */
    private static DFAgentDescription entry(AID name) {
        DFAgentDescription entry = new DFAgentDescription();
        entry.setName(name);
        return entry;
    }

    /** Both DFs report an entry that was removed as a description with its name alone. */
    private static boolean isGone(DFAgentDescription entry) {
        return !entry.getAllServices().hasNext() && !entry.getAllLanguages().hasNext() && !entry.getAllOntologies().hasNext()
                && !entry.getAllProtocols().hasNext();
    }

    // ---- from JADE to Sealbus ----

    private void carryOut(DFAgentDescription entry) {
        AID name = entry.getName();
        String agent = name.getLocalName();
        if (!service.isNamed(agent) || !name.getName().equals(agent + "@" + getHap())) {
            return;
        }
        if (isGone(entry)) {
            ours.remove(agent);
        } else {
            AID outside = new AID(agent + "@" + service.platform(), AID.ISGUID);
            outside.addResolvers(getAMS());
            entry.setName(outside);
            ours.put(agent, entry);
        }
        carry(agent);
    }

    /** Brings the DF of Sealbus up to date about an agent. The entries of agents that have left it removes itself. */
    private void carry(String agent) {
        if (!service.isPresent(agent)) {
            return;
        }
        DFAgentDescription entry = ours.get(agent);
        String why;
        if (entry == null) {
            why = ask(agent, DEREGISTER, entry(new AID(agent + "@" + service.platform(), AID.ISGUID)));
            why = why != null && why.contains("not-registered") ? null : why;
        } else {
            why = ask(agent, REGISTER, entry);
            if (why != null && why.contains("already-registered")) {
                why = ask(agent, MODIFY, entry);
            }
        }
        if (why != null) {
            LOG.log(Level.WARNING, "the DF of Sealbus does not take the entry of {0}: {1}", new Object[] {agent, why});
            addBehaviour(new WakerBehaviour(this, RETRY) {
                @Override
                protected void onWake() {
                    // Unless it has changed, and was carried then.
                    if (ours.get(agent) == entry) {
                        carry(agent);
                    }
                }
            });
        }
    }

    /** Asks the DF of Sealbus in the name of an agent. Returns why it was refused; null if it was done. */
    private String ask(String agent, String action, DFAgentDescription entry) {
        ACLMessage request = DFService.createRequestMessage(this, theirs, action, entry, null);
        request.setSender(new AID(agent + "@" + getHap(), AID.ISGUID));
        asked++;
        request.setReplyWith(service.errand() + asked);
        service.send(request.getSender(), request, theirs);
        ACLMessage answer = blockingReceive(MessageTemplate.MatchInReplyTo(request.getReplyWith()), PATIENCE);
        if (answer == null) {
            return "no answer within " + PATIENCE / 1000 + " s";
        }
        return answer.getPerformative() == ACLMessage.INFORM ? null : answer.getContent();
    }

    // ---- from Sealbus to JADE ----

    private void carryIn(DFAgentDescription entry) throws FIPAException {
        String name = entry.getName().getName();
        // Agents of other platforms only claim their names.
        if (!name.endsWith("@" + service.platform())) {
            return;
        }
        if (isGone(entry) || isFromHere(entry) || isOfDf(entry)) {
            if (carried.contains(name)) {
                remove(name);
            }
            return;
        }
        // JADE's DF logs what it refuses with a trace.
        boolean isNew = carried.add(name);
        String refused = ask(isNew ? REGISTER : MODIFY, entry);
        if (refused.contains("already-registered") || refused.contains("not-registered")) {
            ask(isNew ? MODIFY : REGISTER, entry);
        }
    }

    private void remove(String name) throws FIPAException {
        carried.remove(name);
        ask(DEREGISTER, entry(new AID(name, AID.ISGUID)));
    }

    /** Asks JADE's DF. Returns why it was refused, and nothing if it was done. */
    private String ask(String action, DFAgentDescription entry) throws FIPAException {
        ACLMessage request = DFService.createRequestMessage(this, getDefaultDF(), action, entry, null);
        asked++;
        request.setReplyWith(conversation + asked);
        send(request);
        ACLMessage answer = blockingReceive(MessageTemplate.MatchInReplyTo(request.getReplyWith()), PATIENCE);
        if (answer == null) {
            throw new FIPAException("JADE's DF did not answer");
        }
        return answer.getPerformative() == ACLMessage.INFORM ? "" : answer.getContent();
    }

    private boolean isFromHere(DFAgentDescription entry) {
        for (Iterator<?> resolvers = entry.getName().getAllResolvers(); resolvers.hasNext(); ) {
            if (getAMS().equals(resolvers.next())) {
                return true;
            }
        }
        return false;
    }

    private static boolean isOfDf(DFAgentDescription entry) {
        for (Iterator<?> services = entry.getAllServices(); services.hasNext(); ) {
            if (services.next() instanceof ServiceDescription offered && DF_SERVICE.equals(offered.getType())) {
                return true;
            }
        }
        return false;
    }
}

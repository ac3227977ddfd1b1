package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.core.ServiceException;
import jade.core.ServiceHelper;
import jade.lang.acl.ACLMessage;
import jade.util.leap.Iterator;
import java.io.IOException;
import java.time.Duration;
import java.util.List;

/**
 * The abilities of an agent of JADE with a name on Sealbus beside those that JADE has: its name there, how a sender is known,
 * messages that are kept for receivers that are away, and channels.
 *
 * <pre>{@code
 * SealbusHelper sealbus = SealbusHelper.of(this);
 * ACLMessage order = new ACLMessage(ACLMessage.REQUEST);
 * order.addReceiver(new AID("seller@factory", AID.ISGUID));
 * order.setContent("two tons of tea");
 * sealbus.sendPersistent(order, SealbusHelper.Delivery.KEPT.expiry(Duration.ofDays(1)));
 * }</pre>
 *
 * <p>Its methods are for the agent's own thread.
 */
public final class SealbusHelper implements ServiceHelper {
    /** The parameters of a message that came by a channel: the channel, and a number if its publisher waits until it is read. */
    static final String CHANNEL = "X-Sealbus-channel";
    static final String EVENT = "X-Sealbus-event";
    /** The number of an event that the agent handles as the member of a group, and of a question to it. */
    static final String TASK = "X-Sealbus-task";
    static final String QUESTION = "X-Sealbus-question";

    private final SealbusService service;
    private final Agent agent;

    SealbusHelper(SealbusService service, Agent agent) {
        this.service = service;
        this.agent = agent;
    }

    /** How the sender of a message is known. */
    public enum Provenance {
        /** An agent of the Sealbus platform, which has proved its name by its certificate. */
        PROVED,
        /** An agent of another platform, whose message came through the gateway of this one. Its name is only claimed. */
        FOREIGN,
        /** An agent of this JADE platform, or JADE itself. Its name is only claimed. */
        JADE
    }

    /** When the sender of a persistent message hears of it: an {@code inform} from the AMS of Sealbus. */
    public enum Receipt {
        /** Never, unless the message comes back. */
        NONE,
        /** The message is in the receiver's process. */
        PROCESS,
        /** The receiver has taken the message. */
        AGENT
    }

    /** Nothing was put on a channel, or not all is well with it. The text says what. */
    public static final class NotPublished extends Exception {
        NotPublished(String why) {
            super(why);
        }
    }

    /**
     * Where an event went.
     *
     * @param here      subscriptions of agents in this container
     * @param processes other processes with subscriptions
     * @param groups    queue groups, of each of which one member gets it
     * @param kept      the number in the log of this container's node; 0 if the event is not persistent
     */
    public record Reach(int here, int processes, int groups, long kept) {}

    /**
     * The outcome of a question.
     *
     * @param answers the answers, in the order in which they came
     * @param missing whole or local names of the agents that were asked and did not answer
     */
    public record Replies(List<ACLMessage> answers, List<String> missing) {}

    /** A message is not kept. The text says why. */
    public static final class NotKept extends Exception {
        NotKept(String why) {
            super(why);
        }
    }

    /**
     * How a message is kept.
     *
     * @param expiry    how long it waits, to the millisecond, until it comes back to its sender as a {@code FAILURE}; null for
     *                  the platform's seven days; 30 days at most
     * @param validFrom how long it is held back first; null for not at all
     * @param receipt   what the sender hears of it
     */
    public record Delivery(Duration expiry, Duration validFrom, Receipt receipt) {
        /** For seven days, without a receipt. */
        public static final Delivery KEPT = new Delivery(null, null, Receipt.NONE);

        /** The same with another expiry. */
        public Delivery expiry(Duration other) {
            return new Delivery(other, validFrom, receipt);
        }

        /** The same, held back for a time. */
        public Delivery validFrom(Duration other) {
            return new Delivery(expiry, other, receipt);
        }

        /** The same with a receipt. */
        public Delivery receipt(Receipt other) {
            return new Delivery(expiry, validFrom, other);
        }
    }

    /**
     * The helper of an agent.
     *
     * @throws ServiceException if the agent's container is not on Sealbus, or names no agents there
     */
    public static SealbusHelper of(Agent agent) throws ServiceException {
        return (SealbusHelper) agent.getHelper(SealbusService.NAME);
    }

    /** JADE calls it. */
    @Override
    public void init(Agent agent) {}

    SealbusService service() {
        return service;
    }

    /** The name of the Sealbus platform. */
    public String platform() {
        return service.platform();
    }

    /** The security level of the Sealbus platform, as its manifest names it: {@code auth}. */
    public String level() {
        return service.level();
    }

    /** Whether the agent has a name on Sealbus now: its container's ticket names it, and it was not revoked. */
    public boolean isNamed() {
        return service.isPresent(agent.getLocalName());
    }

    /** The agent's name on Sealbus, which agents of Sealbus know. Null without one. */
    public AID name() {
        return isNamed() ? new AID(agent.getLocalName() + "@" + platform(), AID.ISGUID) : null;
    }

    /** How the sender of a message is known that this agent got. */
    public static Provenance provenance(ACLMessage message) {
        String told = message.getUserDefinedParameter(SealbusService.PROVENANCE);
        if (told == null) {
            return Provenance.JADE;
        }
        return told.equals(SealbusService.PROVED) ? Provenance.PROVED : Provenance.FOREIGN;
    }

    /** The channel by which a message came that this agent got. Null if it came by none. */
    public static String channel(ACLMessage message) {
        return message.getUserDefinedParameter(CHANNEL);
    }

    private void checkNamed() {
        if (!isNamed()) {
            throw new IllegalStateException(unnamed());
        }
    }

    private String unnamed() {
        return agent.getName() + " has no name on the Sealbus platform " + platform() + ": the ticket of its container must name it";
    }

    /**
     * Subscribes to channels. Events that agents publish there come as messages of this agent from now on, each with its
     * {@linkplain #channel channel} and with the publisher that proved itself as its sender. If the agent does not read them,
     * publishers wait.
     *
     * @param pattern a path such as {@code /dates/business}, in which {@code *} stands for any level and a last {@code **} for all
     *                further ones
     * @throws IllegalArgumentException if the pattern is none
     * @throws IllegalStateException    if the agent has no name on Sealbus now, or there are 1,024 subscriptions in this container
     */
    public ChannelSubscription subscribe(String pattern) {
        return subscribe(pattern, SubscriptionOptions.EVENTS);
    }

    /**
     * The same with a filter, as a member of a group, with questions, or from what is kept on.
     *
     * @throws IllegalArgumentException also if the options do not fit each other, or the filter is none; the text has the place
     * @throws IllegalStateException    also if the node cannot say whether the filter is one
     */
    public ChannelSubscription subscribe(String pattern, SubscriptionOptions options) {
        checkNamed();
        ChannelSubscription.check(pattern);
        if (!options.filter().isEmpty()) {
            try {
                String problem = service.mesh().channels.logs.judge(agent.getLocalName(), List.of(options.filter()), null, null)
                        .get(options.filter()).problem();
                if (problem != null) {
                    throw new IllegalArgumentException(problem);
                }
            } catch (IOException unsaid) {
                throw new IllegalStateException("the node does not say whether it is a filter: " + unsaid.getMessage(), unsaid);
            }
        }
        ChannelSubscription made = service.mesh().channels.subscribe(agent.getLocalName(), pattern, options);
        service.mesh().channels.awaitListed();
        return made;
    }

    /**
     * This agent, as the member of a group, has handled an event: it gets the next one. An event that is not handled when the agent
     * or its subscription ends goes to another member. Nothing happens with any other message.
     */
    public void handled(ACLMessage event) {
        String task = event.getUserDefinedParameter(TASK);
        if (task != null) {
            service.mesh().channels.read(agent.getLocalName(), task);
        }
    }

    /** Publishes an event with the channel's quality of service. */
    public Reach publish(String channel, ACLMessage event) throws NotPublished {
        return publish(channel, event, "");
    }

    /**
     * Publishes an event to all subscriptions whose pattern and filter match, in the name of this agent, which proves itself to each
     * of their processes. Waits while a subscription that pushes back has no room, and for what {@code ack} says. If the event
     * does not reach a subscription after all, this agent gets a {@code FAILURE} from its AMS.
     *
     * @param channel a path such as {@code /dates/business}
     * @param qos     how the event differs from the channel's quality of service, such as {@code expiry=1h,ack=agent}
     *                (docs/channels.md)
     * @throws IllegalArgumentException if the path or the quality of service is none
     * @throws NotPublished             if it is not published, or not acknowledged by all; the text says why
     */
    public Reach publish(String channel, ACLMessage event, String qos) throws NotPublished {
        Qos whole = service.mesh().qos(channel).with(qos);
        return service.mesh().channels.publisher.publish(agent.getLocalName(), channel, whole, sign(event));
    }

    /**
     * Asks all agents that answer questions on a channel. Returns when each has answered or will not, after the timeout, or after so
     * many answers.
     *
     * @param qos  as for {@link #publish(String, ACLMessage, String)}
     * @param most the most answers wanted
     * @throws NotPublished if nobody was asked; the text says why
     */
    public Replies request(String channel, ACLMessage question, String qos, Duration timeout, int most) throws NotPublished {
        Qos whole = service.mesh().qos(channel).with(qos);
        Questions.Asking asked = service.mesh().channels.publisher.ask(agent.getLocalName(), channel, whole, sign(question),
                timeout.toMillis(), most);
        synchronized (service.mesh()) {
            return new Replies(asked.answers(), asked.missing());
        }
    }

    /** Whether a message is a question that this agent got by a channel. */
    public static boolean isQuestion(ACLMessage message) {
        return message.getUserDefinedParameter(QUESTION) != null;
    }

    /**
     * Answers a question that this agent got by a channel, once.
     *
     * @return false if nobody waits for the answer any more
     * @throws NotPublished if the agent may not answer there, or the answer is too long
     */
    public boolean reply(ACLMessage question, ACLMessage answer) throws NotPublished {
        byte[] body = sign(answer);
        Mesh mesh = service.mesh();
        mesh.channels.publisher.checkLength(body);
        synchronized (mesh) {
            Questions.Asker asker = mesh.channels.questions.take(agent.getLocalName(), question.getUserDefinedParameter(QUESTION));
            if (asker == null) {
                return false;
            }
            Head head = asker.question();
            if (!mesh.may(agent.getLocalName(), "answer", head.channel())) {
                asker.decline();
                throw new NotPublished("the policy does not let " + agent.getLocalName() + " answer on " + head.channel());
            }
            return asker.answer(agent.getLocalName(), head.answer(System.currentTimeMillis()), body);
        }
    }

    /** Does not answer a question. The asker does not wait for this agent any more. */
    public void decline(ACLMessage question) {
        synchronized (service.mesh()) {
            Questions.Asker asker = service.mesh().channels.questions.take(agent.getLocalName(),
                    question.getUserDefinedParameter(QUESTION));
            if (asker != null) {
                asker.decline();
            }
        }
    }

    /** A message of this agent as it goes to Sealbus, in its own name. */
    private byte[] sign(ACLMessage message) throws NotPublished {
        checkNamed();
        String forged = forged(message);
        if (forged != null) {
            throw new NotPublished(forged);
        }
        return service.writeEvent(message);
    }

    /** A message without a sender is this agent's. Returns why a message is not this agent's, or null. */
    private String forged(ACLMessage message) {
        if (message.getSender() == null) {
            message.setSender(agent.getAID());
        }
        return message.getSender().equals(agent.getAID()) ? null
                : agent.getName() + " wrote under the name of " + message.getSender().getName();
    }

    /** Whether a message may have come before, to a process of this agent that ended. Only persistent messages may. */
    public static boolean mayBeAgain(ACLMessage message) {
        return message.getUserDefinedParameter(Post.AGAIN) != null;
    }

    /**
     * Sends a message that is kept for its receivers while they are away. When the method returns, the message is on the disk of
     * this container's node, for each receiver.
     *
     * @throws NotKept if it is not kept for one of its receivers, which the text names. It is kept for those before that one.
     */
    public void sendPersistent(ACLMessage message, Delivery delivery) throws NotKept {
        String wrong = forged(message);
        wrong = wrong == null && !isNamed() ? unnamed() : wrong;
        if (wrong != null) {
            throw new NotKept(wrong);
        }
        List<String> askers;
        try {
            askers = service.askers(message);
        } catch (Mesh.Refused refused) {
            throw new NotKept(refused.getMessage());
        }
        for (Iterator receivers = message.getAllReceiver(); receivers.hasNext(); ) {
            service.post().send(agent.getLocalName(), ((AID) receivers.next()).getName(), service.write(message), askers, delivery);
        }
    }
}

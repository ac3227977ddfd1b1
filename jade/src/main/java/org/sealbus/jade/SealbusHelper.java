package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.core.ServiceException;
import jade.core.ServiceHelper;
import jade.lang.acl.ACLMessage;
import jade.util.leap.Iterator;
import java.time.Duration;

/**
 * The abilities of an agent of JADE with a name on Sealbus beside those that JADE has: its name there, how a sender is known,
 * messages that are kept for receivers that are away, and subscriptions to channels.
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

    /**
     * Subscribes to channels. Events that agents of Sealbus publish there come as messages of this agent from now on, each with its
     * {@linkplain #channel channel} and with the publisher that proved itself as its sender. If the agent does not read them,
     * publishers wait.
     *
     * @param pattern a path such as {@code /dates/business}, in which {@code *} stands for any level and a last {@code **} for all
     *                further ones
     * @throws IllegalArgumentException if the pattern is none
     * @throws IllegalStateException    if the agent has no name on Sealbus now, or there are 1,024 subscriptions in this container
     */
    public ChannelSubscription subscribe(String pattern) {
        if (!isNamed()) {
            throw new IllegalStateException(agent.getName() + " has no name on the Sealbus platform " + platform()
                    + ": the ticket of its container must name it");
        }
        return service.mesh().subscribe(agent.getLocalName(), pattern);
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
        if (message.getSender() == null) {
            message.setSender(agent.getAID());
        }
        if (!message.getSender().equals(agent.getAID())) {
            throw new NotKept(agent.getName() + " wrote under the name of " + message.getSender().getName());
        }
        if (!isNamed()) {
            throw new NotKept(agent.getName() + " has no name on the Sealbus platform " + platform()
                    + ": the ticket of its container must name it");
        }
        for (Iterator receivers = message.getAllReceiver(); receivers.hasNext(); ) {
            service.post().send(agent.getLocalName(), ((AID) receivers.next()).getName(), service.write(message), delivery);
        }
    }
}

package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.core.AgentContainer;
import jade.core.VerticalCommand;
import jade.core.management.AgentManagementSlice;
import jade.core.mobility.AgentMobilityHelper;
import jade.lang.acl.ACLMessage;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

/**
 * The agents here that JADE is ending, moving or copying. JADE holds such an agent until the network has answered, and whoever gives
 * the agent a message waits as long: the mesh does not.
 */
final class Parting {
    /** The pause until such an agent is told something, in milliseconds. */
    static final long PAUSE = 200;
    private static final Set<String> COMMANDS = Set.of(AgentManagementSlice.INFORM_KILLED, AgentMobilityHelper.INFORM_MOVED,
            AgentMobilityHelper.INFORM_CLONED);

    private final AgentContainer container;
    private final Set<String> agents = ConcurrentHashMap.newKeySet();
    /** The work that runs if an agent ends and has not read a message. A message that nobody has any more is forgotten. */
    private final Map<ACLMessage, Runnable> awaited = Collections.synchronizedMap(new WeakHashMap<>());

    Parting(AgentContainer container) {
        this.container = container;
    }

    /** Whether JADE ends, moves or copies an agent by a command. */
    static boolean isBy(VerticalCommand command) {
        return COMMANDS.contains(command.getName());
    }

    /** Whether an agent of this local name is one of them. */
    boolean has(String agent) {
        return agents.contains(agent);
    }

    void begin(String agent) {
        agents.add(agent);
    }

    void end(String agent) {
        agents.remove(agent);
    }

    /** Does something with an agent, which JADE does not take away meanwhile. {@code absent}: the agent is not here. */
    private <T> T with(AID agent, T absent, Function<Agent, T> work) {
        Agent local = container.acquireLocalAgent(agent);
        if (local == null) {
            return absent;
        }
        try {
            return work.apply(local);
        } finally {
            // Also if the agent's own queue fails: nobody else could ever reach the agent.
            container.releaseLocalAgent(agent);
        }
    }

    /** Gives an agent a message. False: the agent is not here. */
    boolean give(ACLMessage message, AID agent) {
        return with(agent, false, local -> {
            local.postMessage(message);
            return true;
        });
    }

    /** The number of messages that an agent has not read. */
    int unreadCount(AID agent) {
        return with(agent, 0, Agent::getCurQueueSize);
    }

    /** An agent gets a message. This runs if the agent ends and has not read it. */
    void await(ACLMessage message, Runnable unread) {
        awaited.put(message, unread);
    }

    /** An agent has read a message. */
    void read(ACLMessage message) {
        awaited.remove(message);
    }

    /** An agent ends and has not read a message. False: it is not known here how the message came. */
    boolean giveBack(ACLMessage message) {
        Runnable unread = awaited.remove(message);
        if (unread != null) {
            unread.run();
        }
        return unread != null;
    }

    /** The messages to an agent alone that it has not read. The node has those that are kept, and an event is for many. */
    List<ACLMessage> unread(AID agent) {
        jade.util.leap.List all = new jade.util.leap.ArrayList();
        with(agent, false, local -> {
            container.fillListFromMessageQueue(all, local);
            return true;
        });
        return Arrays.stream(all.toArray()).map(ACLMessage.class::cast)
                .filter(message -> message.getUserDefinedParameter(Post.NUMBER) == null && SealbusHelper.channel(message) == null)
                .toList();
    }
}

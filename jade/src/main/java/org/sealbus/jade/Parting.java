package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.core.AgentContainer;
import jade.core.VerticalCommand;
import jade.core.management.AgentManagementSlice;
import jade.core.mobility.AgentMobilityHelper;
import jade.lang.acl.ACLMessage;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

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

    /** Gives an agent a message. False: the agent is not here. */
    boolean give(ACLMessage message, AID agent) {
        Agent local = container.acquireLocalAgent(agent);
        if (local == null) {
            return false;
        }
        try {
            local.postMessage(message);
            return true;
        } finally {
            // Also if the agent's own queue fails: nobody else could ever reach the agent.
            container.releaseLocalAgent(agent);
        }
    }

    /** The messages to an agent alone that it has not read. The node has those that are kept, and an event is for many. */
    List<ACLMessage> unread(AID agent) {
        jade.util.leap.List all = new jade.util.leap.ArrayList();
        Agent local = container.acquireLocalAgent(agent);
        if (local != null) {
            try {
                container.fillListFromMessageQueue(all, local);
            } finally {
                container.releaseLocalAgent(agent);
            }
        }
        return Arrays.stream(all.toArray()).map(ACLMessage.class::cast)
                .filter(message -> SealbusHelper.provenance(message) == SealbusHelper.Provenance.PROVED)
                .filter(message -> message.getUserDefinedParameter(Post.NUMBER) == null && SealbusHelper.channel(message) == null)
                .toList();
    }
}

package org.sealbus.jade;

import jade.lang.acl.ACLMessage;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * On whose behalf a message asks: its chain of agents, the one that asked first in front (its form and its limits:
 * {@code crates/bus/src/delegation.rs}). The transport proves the sender. Each name before it is the word of the agents after it.
 */
final class Delegation {
    /** The parameter with the agents' names, with a space between two of them. */
    static final String ON_BEHALF_OF = "X-Sealbus-On-Behalf-Of";
    /** The most agents on whose behalf a message may ask. */
    static final int MOST_ASKERS = 8;
    /** The longest name in a chain, in bytes. */
    static final int LONGEST_ASKER = 512;
    /** How often an agent may stand in a chain, its sender included. An agent may be asked back once. */
    private static final int MOST_TURNS = 2;
    /** Names of a chain that are looked at. */
    private static final int MOST_READ = 4 * MOST_ASKERS;

    private Delegation() {}

    /** Whether a parameter of a message is the one with the chain. */
    static boolean isIn(String parameter) {
        return parameter.equalsIgnoreCase(ON_BEHALF_OF);
    }

    /**
     * The agents on whose behalf a message asks, by their whole names. None: its sender asks for itself.
     *
     * @param sender the whole name of the message's sender
     * @throws Mesh.Refused if the chain is none, is too long, or goes in a circle
     */
    static List<String> of(ACLMessage message, String sender) throws Mesh.Refused {
        List<String> askers = List.of();
        boolean isKnown = false;
        for (Map.Entry<Object, Object> parameter : message.getAllUserDefinedParameters().entrySet()) {
            if (isIn((String) parameter.getKey())) {
                if (isKnown) {
                    throw malformed();
                }
                isKnown = true;
                askers = read((String) parameter.getValue());
            }
        }
        checkTurns(askers, sender);
        return askers;
    }

    private static Mesh.Refused malformed() {
        return new Mesh.Refused("malformed", ON_BEHALF_OF + " is not a list of agents' names with one space between two of them");
    }

    private static List<String> read(String chain) throws Mesh.Refused {
        List<String> all = List.of(chain.split(" ", MOST_READ + 1));
        List<String> askers = all.subList(0, Math.min(all.size(), MOST_READ));
        if (!askers.stream().allMatch(Delegation::isName)) {
            throw malformed();
        }
        if (askers.size() > MOST_ASKERS) {
            throw new Mesh.Refused("not-permitted", "it is asked on behalf of " + askers.size() + " agents one after the other ("
                    + String.join(", ", askers) + "), and at most " + MOST_ASKERS + " are allowed");
        }
        return askers;
    }

    private static boolean isName(String name) {
        return !name.isEmpty() && name.getBytes(StandardCharsets.UTF_8).length <= LONGEST_ASKER
                && name.chars().noneMatch(one -> Character.isSpaceChar(one) || Character.isISOControl(one));
    }

    /** Checks that no agent comes again and again. */
    private static void checkTurns(List<String> askers, String sender) throws Mesh.Refused {
        List<String> chain = new ArrayList<>(askers);
        chain.add(sender);
        for (int at = 0; at < askers.size(); at++) {
            String agent = askers.get(at);
            // An agent asks nobody by itself.
            boolean asksItself = at == askers.size() - 1 && agent.equals(sender);
            if (asksItself || chain.stream().filter(agent::equals).count() > MOST_TURNS) {
                throw new Mesh.Refused("not-permitted", "it is asked in a circle, " + String.join(", ", chain) + ": " + agent
                        + " would ask on its own behalf");
            }
        }
    }
}

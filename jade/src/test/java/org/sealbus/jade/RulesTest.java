package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertFalse;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The manifest's rules for messages of agents of a real JADE. */
class RulesTest {
    private static final String RULES = """
            [[permission.rule]]
            allow = { from = ["clerk", "teller"], to = ["vault"], on-behalf-of = ["boss"] }

            [[permission.rule]]
            deny = { from = ["*"], to = ["vault"] }

            [[permission.rule]]
            deny = { from = ["*"], to = ["*"], on-behalf-of = ["guest"] }
            """;

    @TempDir
    Path folder;

    @Test
    void rulesSayOnWhoseBehalfAgentsMayAsk() throws Exception {
        try (Platform factory = new Platform(folder, RULES)) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main vault desk", port, "-agents",
                    "vault:org.sealbus.jade.Pong;desk:org.sealbus.jade.Pong");
            Platform.await(() -> factory.shows("vault", "active") && factory.shows("desk", "active"), "vault and desk", main);
            Platform.Program other = factory.container("jade-1 clerk", port, "-container", "-agents",
                    "clerk:org.sealbus.jade.Clerk(vault@factory/own,vault@factory/boss/boss@factory,"
                            + "vault@factory/two/boss@factory+guest@factory,desk@factory/free,desk@factory/guest/guest@factory,"
                            + "desk@factory/circle/clerk@factory,"
                            // The receiver's container asks the rules again.
                            + "!vault@factory/own-2,!vault@factory/boss-2/boss@factory,!vault@factory/two-2/boss@factory+guest@factory,"
                            + "!desk@factory/free-2,!desk@factory/guest-2/guest@factory,!desk@factory/circle-2/clerk@factory,"
                            + "!desk@factory/wrong-2/boss@factory++guest@factory)");
            other.says("clerk got INFORM from vault@factory, proved, to boss: boss");
            other.says("clerk got INFORM from desk@factory, proved, to free: free");
            other.says("vault@factory: the policy does not let clerk@factory write to vault@factory\"");
            other.says("desk@factory: the policy does not let clerk@factory write to desk@factory on behalf of guest@factory\"");
            for (String refused : new String[] {"own", "two", "guest", "circle"}) {
                other.says(", null, to " + refused + ": ((action");
                other.says(", null, to " + refused + "-2: ((action");
            }
            other.says("clerk got INFORM from vault@factory, proved, to boss-2: boss-2");
            other.says("clerk got INFORM from desk@factory, proved, to free-2: free-2");
            other.says("vault@factory: the receiver's process refused it: not-permitted\"");
            other.says("desk@factory: the receiver's process refused it: malformed\"");
            for (String refused : new String[] {"own", "two", "guest", "circle", "wrong"}) {
                assertFalse(other.output().contains("proved, to " + refused), other::output);
            }
        }
    }

    @Test
    void whatDoesNotRightlySayOnWhoseBehalfIsNotHeardOnChannels() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Platform.Program main = factory.mainContainer("jade-main speaker ear", Platform.freePort(), "-agents",
                    "speaker:org.sealbus.jade.Puppet;ear:org.sealbus.jade.Listener(/offers/**)");
            main.says("speaker waits for orders");
            main.says("ear listens to /offers/**");
            for (String chain : new String[] {"speaker@factory", "boss@factory"}) {
                factory.run("send", "speaker", "publish\n/offers/tea\n\nfor " + chain + "\n" + Delegation.ON_BEHALF_OF.substring(2)
                        + "=" + chain, "--performative", "request", "--timeout", "120s");
            }
            main.says("ear heard for boss@factory on /offers/tea");
            main.says("speaker got FAILURE: ");
            main.says("ear refused it: not-permitted");
            assertFalse(main.output().contains("ear heard for speaker@factory"), main::output);
        }
    }

    @Test
    void rulesHoldWithinAContainer() throws Exception {
        try (Platform factory = new Platform(folder, RULES)) {
            Platform.Program main = factory.mainContainer("jade-main vault teller", Platform.freePort(), "-agents",
                    "vault:org.sealbus.jade.Pong;teller:org.sealbus.jade.Clerk(vault@factory/own,vault@factory/boss/boss@factory,"
                            + "vault@factory/circle/teller@factory)");
            // The vault answers under its name in JADE.
            main.says("teller got INFORM from vault@");
            main.says(", null, to boss: boss");
            main.says(", null, to own: ((action");
            main.says("vault@factory: the policy does not let teller@factory write to vault@factory\"");
            main.says("teller@factory would ask on its own behalf\"");
            assertFalse(main.output().contains("to own: own"), main::output);
        }
    }
}

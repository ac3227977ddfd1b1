package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Entries of the DF of a real JADE and of that of a real Sealbus platform. */
class DirectoryTest {
    @TempDir
    Path folder;

    private static String entries(Platform factory, String type) {
        return factory.run("df", "search", "--type", type);
    }

    private static String tell(Platform factory, String agent, String what) {
        return factory.run("send", agent, what, "--performative", "request", "--timeout", "120s");
    }

    @Test
    void whatAnAgentTellsJadesDirectoryIsInThatOfSealbusToo() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            factory.mainContainer("jade-main early", port, "-agents", "early:org.sealbus.jade.Entrant(milk)");
            Platform.Program other = factory.container("jade-1 entrant", port, "-container", "-agents",
                    "entrant:org.sealbus.jade.Entrant(tea);nobody:org.sealbus.jade.Entrant(tea)");
            Platform.await(() -> entries(factory, "tea").contains("entrant@factory"), "the entry", other);
            // The other one has no name on Sealbus.
            assertFalse(entries(factory, "tea").contains("nobody"), () -> entries(factory, "tea"));
            // In JADE's DF the agent has its own name alone.
            assertTrue(tell(factory, "entrant", "search tea").matches("(?s).*found entrant@\\S+ nobody@\\S+\\..*"),
                    other::output);
            assertFalse(tell(factory, "entrant", "search tea").contains("found entrant@factory"));

            tell(factory, "entrant", "modify coffee");
            Platform.await(() -> entries(factory, "coffee").contains("entrant@factory"), "the changed entry", other);
            assertFalse(entries(factory, "tea").contains("entrant@factory"));

            // Each container goes on to hear of its own agents.
            tell(factory, "early", "modify water");
            Platform.await(() -> entries(factory, "water").contains("early@factory"), "the other container's entry", other);

            tell(factory, "entrant", "deregister");
            Platform.await(() -> !entries(factory, "coffee").contains("entrant@factory"), "the end of the entry", other);
            assertTrue(factory.shows("entrant", "active"), other::output);
            assertFalse(other.output().contains("does not take the entry"), other::output);
        }
    }

    @Test
    void whatAgentsOfSealbusOfferIsInTheDirectoriesOfEachJade() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            // To the second JADE, agents of the first one are agents of Sealbus.
            int first = Platform.freePort();
            factory.mainContainer("jade-first tea", first, "-platform-id", "plat1", "-agents",
                    "tea:org.sealbus.jade.Entrant(drink)");
            int second = Platform.freePort();
            Platform.Program other = factory.mainContainer("jade-second coffee", second, "-platform-id", "plat2", "-agents",
                    "coffee:org.sealbus.jade.Entrant(drink)");
            Platform.await(() -> tell(factory, "coffee", "search drink").contains("found coffee@plat2 tea@factory."),
                    "the first one's entry in the second one's DF", other);
            Platform.await(() -> tell(factory, "tea", "search drink").contains("found coffee@factory tea@plat1."),
                    "the second one's entry in the first one's DF", other);

            tell(factory, "tea", "modify food");
            Platform.await(() -> tell(factory, "coffee", "search food").contains("found tea@factory."),
                    "the changed entry", other);
            assertTrue(tell(factory, "coffee", "search drink").contains("found coffee@plat2."));
            tell(factory, "tea", "deregister");
            Platform.await(() -> tell(factory, "coffee", "search food").contains("found ."), "the end of the entry", other);

            // An agent that is gone has no entry any more.
            Platform.await(() -> tell(factory, "tea", "search drink").contains("coffee@factory"), "the entry", other);
            factory.run("ca", "revoke", "coffee");
            Platform.await(() -> tell(factory, "tea", "search drink").contains("found ."), "the end of the agent", other);
        }
    }

    @Test
    void entriesAreCarriedAgainAfterTheNodeWasAway() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main tea", port, "-platform-id", "plat1", "-agents",
                    "tea:org.sealbus.jade.Entrant(drink)");
            Platform.await(() -> entries(factory, "drink").contains("tea@factory"), "the entry", main);
            factory.killNode();
            main.says("attached to the node again");
            Platform.await(() -> entries(factory, "drink").contains("tea@factory"), "the entry again", main);
            Platform.Program other = factory.mainContainer("jade-other coffee", Platform.freePort(), "-platform-id", "plat2",
                    "-agents", "coffee:org.sealbus.jade.Entrant(drink)");
            Platform.await(() -> tell(factory, "tea", "search drink").contains("found coffee@factory tea@plat1."),
                    "the new entry", other);
        }
    }
}

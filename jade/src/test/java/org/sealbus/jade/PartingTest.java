package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Agents of a real JADE that end, move or cannot be reached, and what becomes of messages. */
class PartingTest {
    @TempDir
    Path folder;

    private static String order(Platform factory, String agent, String... words) {
        return factory.run("send", agent, String.join("\n", words), "--performative", "request", "--timeout", "120s");
    }

    @Test
    void theLastWordsOfAnAgentThatEndsAtOnceArrive() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main inside", port, "-agents", "inside:org.sealbus.jade.Inside");
            Platform.await(() -> factory.shows("inside", "active"), "inside", main);
            Platform.Program other = factory.container("jade-1 hasty", port, "-container", "-agents",
                    "hasty:org.sealbus.jade.Hasty(inside@factory)");
            main.says("inside got INFORM from hasty@factory: last words");
            Platform.await(() -> !factory.shows("hasty", "active"), "the end of hasty", other);
        }
    }

    /** In another container and in its own, and although the agents that end may not write to it. */
    @Test
    void theAuthorOfAMessageThatAnAgentLeavesUnreadHearsOfIt() throws Exception {
        try (Platform factory = new Platform(folder,
                "[[permission.rule]]\ndeny = { from = [\"deaf\", \"near\"], to = [\"inside\"] }")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main inside near", port, "-agents",
                    "inside:org.sealbus.jade.Inside;near:org.sealbus.jade.Deaf");
            Platform.Program other = factory.container("jade-1 deaf", port, "-container", "-agents", "deaf:org.sealbus.jade.Deaf");
            Platform.await(() -> factory.shows("deaf", "active"), "deaf", other);
            order(factory, "inside", "write", "deaf@factory", "INFORM", "hello");
            main.says("\"deaf@factory: ");
            Platform.await(() -> !factory.shows("deaf", "active"), "the end of deaf", other);
            order(factory, "inside", "write", "near@factory", "INFORM", "hello");
            main.says("near@factory: it has ended and did not read it");
        }
    }

    @Test
    void aFailureThatDoesNotArriveComesBack() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Platform.Program main = factory.mainContainer("jade-main inside", Platform.freePort(), "-agents",
                    "inside:org.sealbus.jade.Inside");
            Platform.await(() -> factory.shows("inside", "active"), "inside", main);
            order(factory, "inside", "write", "nobody@factory", "FAILURE", "it did not work");
            main.says("there is no agent nobody@factory");
        }
    }

    @Test
    void anAgentThatMovesToAContainerThatIsStoppedHoldsUpNoOther() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main speaker", port, "-agents", "speaker:org.sealbus.jade.Puppet");
            main.says("speaker waits for orders");
            Platform.Program first = factory.container("jade-1 rover pong inside", port, "-container", "-agents",
                    "rover:org.sealbus.jade.Rover(/roads,Container-2);pong:org.sealbus.jade.Pong;inside:org.sealbus.jade.Inside");
            first.says("rover listens");
            first.says("inside waits for orders");
            Platform.await(() -> order(factory, "speaker", "publish", "/roads", "", "early").contains("processes=1"),
                    "the subscription", main);
            Platform.Program second = factory.container("jade-2", port, "-container");
            second.says("is ready");
            Platform.signal(second.process().toHandle(), "STOP");
            try {
                factory.run("send", "rover", "go");
                first.says("rover goes");
                // JADE holds it when this comes.
                Platform.await(() -> {
                    order(factory, "inside", "write", "rover@factory", "INFORM", "where are you?");
                    return first.output().contains("rover@factory: it has just ended, or is moving");
                }, "the move", first);
                assertTrue(order(factory, "speaker", "publish", "/roads", "", "late").contains("processes=1"), main::output);
                main.says("the receiver is gone");
                assertTrue(order(factory, "pong", "a ball").contains("a ball"), first::output);
            } finally {
                Platform.signal(second.process().toHandle(), "CONT");
            }
        }
    }

    @Test
    void anAgentThatStartsWhileTheNodeIsAwayHasItsNameLater() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Platform.Program main = factory.mainContainer("jade-main inside late", Platform.freePort(), "-agents",
                    "inside:org.sealbus.jade.Inside");
            Platform.await(() -> factory.shows("inside", "active"), "inside", main);
            factory.run("send", "inside", "start\nlate\norg.sealbus.jade.Pong", "--performative", "request", "--timeout", "1s");
            main.says("inside watches the node");
            factory.killNode();
            main.says("late is late@factory");
            assertTrue(order(factory, "late", "a ball").contains("a ball"), main::output);
        }
    }

    @Test
    void aNodeThatDoesNotAnswerHoldsUpNoOtherWork() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Platform.Program main = factory.mainContainer("jade-main inside", Platform.freePort(), "-agents",
                    "inside:org.sealbus.jade.Inside");
            Platform.await(() -> factory.shows("inside", "active"), "inside", main);
            List<ProcessHandle> node = factory.node();
            for (ProcessHandle process : node) {
                Platform.signal(process, "STOP");
            }
            factory.run("send", "inside", "crowd", "--performative", "request", "--timeout", "1s");
            main.says("inside says crowd: 1.");
            for (ProcessHandle process : node) {
                Platform.signal(process, "CONT");
            }
        }
    }

    @Test
    void aContainerWithAgentsOfSealbusEndsInOrder() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            factory.mainContainer("jade-main", port);
            Platform.Program other = factory.container("jade-1 inside", port, "-container", "-agents",
                    "inside:org.sealbus.jade.Inside");
            Platform.await(() -> factory.shows("inside", "active"), "inside", other);
            order(factory, "inside", "end");
            other.ends();
            Platform.await(() -> !factory.shows("jade-1", "active"), "jade-1 to be gone", other);
            assertFalse(other.output().contains("NullPointerException"), other::output);
        }
    }

    @Test
    void connectionsToContainersThatAreGoneAreNotKept() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main inside", port, "-agents",
                    "inside:org.sealbus.jade.Inside;pong:org.sealbus.jade.Pong");
            main.says("inside waits for orders");
            Platform.Program first = factory.container("jade-1", port, "-container", "-agents",
                    "ping:org.sealbus.jade.Ping(50,0)");
            first.says("ping has 50 answers");
            assertTrue(order(factory, "inside", "idle").contains("idle: 1."), main::output);
            first.process().destroyForcibly();
            first.ends();
            Platform.Program second = factory.container("jade-2", port, "-container", "-agents",
                    "ping2:org.sealbus.jade.Ping(1000000,1)");
            second.says("ping got ball 100.");
            Platform.await(() -> order(factory, "inside", "idle").contains("idle: 1."), "the end of the other connections", main);
        }
    }

    @Test
    void whatASubscriptionHasReadIsToldToAbsentNodesByOneTask() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Platform.Program main = factory.mainContainer("jade-main inside", Platform.freePort(), "-agents",
                    "inside:org.sealbus.jade.Inside");
            Platform.await(() -> factory.shows("inside", "active"), "inside", main);
            String answer = order(factory, "inside", "notes");
            assertTrue(answer.contains("notes: 1.") || answer.contains("notes: 0."), answer);
        }
    }

    @Test
    void theLargestMessageOfTheManifestHolds() throws Exception {
        try (Platform factory = new Platform(folder, "max-message = \"64 KiB\"")) {
            Platform.Program main = factory.mainContainer("jade-main speaker inside", Platform.freePort(), "-platform-id", "plat1",
                    "-agents", "speaker:org.sealbus.jade.Puppet;inside:org.sealbus.jade.Inside");
            main.says("speaker waits for orders");
            main.says("inside waits for orders");
            Platform.Program tail = factory.program("tail", "channel", "tail", "/numbers");
            Platform.await(() -> {
                order(factory, "speaker", "publish", "/numbers", "", "early");
                return tail.output().contains("early");
            }, "an event in another program", tail);
            // The other program would end the connection again and again.
            String refused = order(factory, "speaker", "burst", "/numbers", "", "1", "x", "100000");
            assertTrue(refused.contains("refused: a message of 100"), refused);
            assertTrue(order(factory, "speaker", "publish", "/numbers", "", "last").contains("processes=1"), main::output);
            Platform.await(() -> tail.output().contains("last"), "the next event", tail);
            order(factory, "inside", "write", "df@factory", "INFORM", "x", "100000");
            main.says("at most 65536 are sent");
        }
    }
}

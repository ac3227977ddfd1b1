package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Messages that a real Sealbus platform keeps, from and for agents of a real JADE. */
class PostTest {
    @TempDir
    Path folder;

    private static Platform.Program caller(Platform factory, int port, String container) throws Exception {
        return factory.container(container + " guest", port, "-container", "-agents",
                "guest:org.sealbus.jade.Caller(df@factory,nonsense)");
    }

    @Test
    void messagesWaitForAnAgentOfJadeThatIsAway() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            factory.mainContainer("jade-main", port);
            for (int i = 1; i <= 3; i++) {
                String kept = factory.run("send", "guest", "letter " + i, "--persistent");
                assertFalse(kept.contains("error"), kept);
            }
            Platform.Program first = caller(factory, port, "jade-1");
            for (int i = 1; i <= 3; i++) {
                first.says(", proved, to null: letter " + i);
            }
            // Read messages are not kept any more, also if the process ends at once.
            Platform.await(() -> factory.run("mailbox", "guest").contains("\"total\": 0"), "the end of the letters", first);
            first.process().destroyForcibly();
            first.ends();
            Platform.await(() -> !factory.shows("guest", "active"), "guest to be away", first);
            factory.run("send", "guest", "letter 4", "--persistent");
            Platform.Program second = caller(factory, port, "jade-2");
            second.says(", proved, to null: letter 4");
            assertFalse(second.output().contains("letter 3"), second::output);
        }
    }

    @Test
    void whatAnAgentDoesNotReadComesAgain() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            factory.mainContainer("jade-main", port);
            Platform.Program deaf = factory.container("jade-1 guest", port, "-container", "-agents", "guest:jade.core.Agent");
            Platform.await(() -> factory.shows("guest", "active"), "guest", deaf);
            factory.run("send", "guest", "hello", "--persistent");
            Platform.await(() -> factory.run("mailbox", "guest").contains("\"delivered\": true"), "the letter", deaf);
            deaf.process().destroyForcibly();
            deaf.ends();
            Platform.await(() -> !factory.shows("guest", "active"), "guest to be away", deaf);
            caller(factory, port, "jade-2").says(", proved, to null: hello");
        }
    }

    @Test
    void agentsOfJadeSendWhatIsKept() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main poster", port, "-agents",
                    "poster:org.sealbus.jade.Poster(guest@factory,order)");
            main.says("poster@factory is at level auth of factory");
            main.says("poster's message is kept");
            assertTrue(factory.run("mailbox", "guest").contains("poster@factory"), () -> factory.run("mailbox", "guest"));
            Platform.Program other = caller(factory, port, "jade-1");
            other.says("guest got REQUEST from poster@factory, proved, to null: order");
            // The receipt: guest has read it.
            main.says("poster got INFORM from ams@factory, proved, to r1:");
        }
    }

    @Test
    void whatIsRefusedIsToldToTheSender() throws Exception {
        try (Platform factory = new Platform(folder, "[[permission.rule]]\ndeny = { from = [\"poster\"], to = [\"guest\"] }")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main poster stray", port, "-agents",
                    "poster:org.sealbus.jade.Poster(guest@factory,order);stray:org.sealbus.jade.Poster(guest@elsewhere,order)");
            main.says("stray's message is not kept: guest@elsewhere is not of platform factory");
            main.says("poster's message is not kept:");
        }
    }

    @Test
    void rulesForThoseWhoAskForOthersHoldForKeptMessages() throws Exception {
        String rule = "[[permission.rule]]\ndeny = { from = [\"*\"], to = [\"guest\"], on-behalf-of = [\"outcast\"] }";
        try (Platform factory = new Platform(folder, rule)) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main poster stray", port, "-agents",
                    "poster:org.sealbus.jade.Poster(guest@factory,order,boss@factory);"
                            + "stray:org.sealbus.jade.Poster(guest@factory,order,outcast@factory)");
            main.says("stray's message is not kept: the policy does not let stray@factory write to guest@factory on behalf of "
                    + "outcast@factory");
            main.says("poster's message is kept");
            caller(factory, port, "jade-1").says("guest got REQUEST from poster@factory, proved, to null: order");
        }
    }
}

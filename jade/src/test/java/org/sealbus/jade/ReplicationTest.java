package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** JADE's replication of the main container, over certificates of a real Sealbus platform. */
class ReplicationTest {
    private static final String SERVICES = "jade.core.event.NotificationService;jade.core.mobility.AgentMobilityService;"
            + "jade.core.replication.AddressNotificationService";
    private static final String REPLICATED = SERVICES + ";jade.core.replication.MainReplicationService";

    @TempDir
    Path folder;

    @Test
    void anotherMainContainerTakesOverWhenTheFirstOneIsLost() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int first = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main", first, "-platform-id", "plat1", "-services", REPLICATED);
            int second = Platform.freePort();
            Platform.Program backup = factory.container("jade-backup", first, "-backupmain", "-local-port",
                    String.valueOf(second), "-services", REPLICATED);
            backup.says("is ready");
            Platform.Program other = factory.container("jade-1 pong", first, "-container", "-services", SERVICES, "-agents",
                    "pong:org.sealbus.jade.Pong");
            // It registers with the DF of the first one before it answers.
            String before = factory.run("send", "pong", "a ball", "--performative", "request", "--timeout", "120s");
            assertTrue(before.contains("a ball"), before + other.output());
            main.process().destroyForcibly();
            main.ends();
            // A container that knows only the second one joins, and reaches the agent of the one that outlived the first.
            Platform.await(() -> joined(factory, second).contains("from pong@plat1"), "an answer over the second one", backup);
            String answer = factory.run("send", "pong", "a ball", "--performative", "request", "--timeout", "120s");
            assertTrue(answer.contains("a ball"), answer + other.output());
            assertTrue(other.process().isAlive(), other::output);
        }
    }

    private int joins;

    /** The output of a new container in which an agent of JADE asks pong; it may come before the second one has taken over. */
    private String joined(Platform factory, int port) {
        try {
            joins++;
            Platform.Program late = factory.container("jade-late-" + joins, port, "-container", "-services", SERVICES, "-agents",
                    "asker" + joins + ":org.sealbus.jade.Caller(pong@plat1,hello)");
            Platform.await(() -> late.output().contains(" got ") || !late.process().isAlive()
                    || late.output().contains("cannot join") || late.output().contains("Error"), "its answer", late);
            late.process().destroyForcibly();
            return late.output();
        } catch (java.io.IOException failed) {
            throw new AssertionError(failed);
        }
    }
}

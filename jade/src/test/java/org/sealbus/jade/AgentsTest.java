package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Agents of a real JADE as agents of a real Sealbus platform. */
class AgentsTest {
    @TempDir
    Path folder;

    @Test
    void agentsOfJadeAndOfSealbusWriteToEachOther() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Platform.Program main = factory.mainContainer("jade-main pong asker", Platform.freePort(), "-agents",
                    "pong:org.sealbus.jade.Pong;asker:org.sealbus.jade.Caller(df@factory,nonsense)");
            Platform.await(() -> factory.shows("pong", "active"), "pong", main);
            // The platform's DF answers an agent of JADE, which knows that it is the DF.
            main.says("asker got NOT-UNDERSTOOD from df@factory, proved, to r1");
            // An agent of Sealbus gets an answer of an agent of JADE, under the name that it proved.
            String answer = factory.run("send", "pong", "a \"ball\"", "--performative", "request", "--timeout", "120s");
            String reply = (String) Json.list(Json.read(answer), "replies").get(0);
            assertTrue(reply.contains(":name pong@factory") && reply.contains(":content \"a \\\"ball\\\"\""), answer);
        }
    }

    @Test
    void forgedSendersAndAgentsWithoutANameAreRefused() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Platform.Program main = factory.mainContainer("jade-main pong mallory", Platform.freePort(), "-agents",
                    "pong:org.sealbus.jade.Pong;mallory:org.sealbus.jade.Caller(df@factory,hello,pong);"
                            + "nobody:org.sealbus.jade.Caller(df@factory,hello)");
            main.says("mallory got FAILURE from ams@");
            main.says("wrote under the name of pong@");
            main.says("nobody got FAILURE from ams@");
            main.says("has no name on the Sealbus platform factory");
            assertFalse(main.output().contains("pong got"), main::output);
        }
    }

    @Test
    void noAgentOfJadeSaysHowASenderIsKnown() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main asker", port, "-platform-id", "plat1", "-agents",
                    "asker:org.sealbus.jade.Caller(df@factory,nonsense);"
                            + "mallory:org.sealbus.jade.Caller(asker@plat1,near,operator@factory,proved)");
            main.says("asker got REQUEST from operator@factory, null, to null: near");
            factory.container("jade-1", port, "-container", "-agents",
                    "trudy:org.sealbus.jade.Caller(asker@plat1,far,operator@factory,proved)");
            main.says("asker got REQUEST from operator@factory, null, to null: far");
        }
    }

    @Test
    void aRevokedAgentIsCutOff() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            factory.mainContainer("jade-main pong", port, "-agents", "pong:org.sealbus.jade.Pong");
            Platform.Program other = factory.container("jade-1 asker witness", port, "-container", "-agents",
                    "asker:org.sealbus.jade.Caller(pong@factory,first);witness:org.sealbus.jade.Caller(pong@factory,mine)");
            other.says("asker got INFORM from pong@factory, proved, to r1: first");
            factory.run("ca", "revoke", "asker");
            other.says("asker has no name on Sealbus any more");
            factory.run("send", "asker", "hello", "--performative", "request", "--timeout", "1s");
            assertFalse(other.output().contains("asker got REQUEST"), other::output);
            // Its neighbour is not touched.
            other.says("witness got INFORM from pong@factory, proved, to r1: mine");
        }
    }

    @Test
    void anAgentProvesItselfBeyondTheLifeOfItsCertificate() throws Exception {
        try (Platform factory = new Platform(folder, "lifetime = \"12s\"")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main pong", port, "-agents", "pong:org.sealbus.jade.Pong");
            Platform.await(() -> factory.shows("pong", "active"), "pong", main);
            long end = System.nanoTime() + java.util.concurrent.TimeUnit.SECONDS.toNanos(30);
            for (int i = 0; i < 3 || System.nanoTime() < end; i++) {
                String answer = factory.run("send", "pong", "ball " + i, "--performative", "request", "--timeout", "120s");
                assertTrue(answer.contains("ball " + i), answer + main.output());
            }
            assertFalse(main.output().contains("SEVERE"), main::output);
        }
    }

    @Test
    void thePlatformsDirectoryFacilitatorTakesEntriesOfJadesAgents() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main", port);
            Platform.Program other = factory.container("jade-1 seller", port, "-container", "-agents",
                    "seller:org.sealbus.jade.Registrar(tea,Main-Container)");
            other.says("seller found seller@factory");
            String entries = factory.run("df", "search", "--type", "tea");
            assertTrue(entries.contains("seller@factory"), entries);
            factory.run("send", "seller", "go");
            main.says("seller is at Main-Container");
            // That is a container whose ticket does not name it: it has no name on Sealbus any more.
            Platform.await(() -> !factory.shows("seller", "active"), "seller to have left", other);
        }
    }

    @Test
    void anAgentThatMovedAwayAndCameBackHasItsNameAgain() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main", port);
            Platform.Program other = factory.container("jade-1 nomad", port, "-container", "-agents",
                    "nomad:org.sealbus.jade.Nomad(tents,Main-Container,Container-1)");
            other.says("nomad is nomad@factory");
            main.says("nomad is at Main-Container");
            other.says("nomad is at Container-1");
            Platform.await(() -> other.output().split("nomad is nomad@factory").length > 2, "its name again", other);
            Platform.await(() -> factory.run("df", "search", "--type", "tents").contains("nomad@factory"), "its entry", other);
            String answer = factory.run("send", "nomad", "search tents", "--performative", "request", "--timeout", "120s");
            assertTrue(answer.contains("found nomad@"), answer + other.output());
        }
    }

    @Test
    void anAgentThatMovedAwayTakesItsNameToAContainerWithAnotherTicket() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main", port);
            Platform.Program first = factory.container("jade-1 nomad", port, "-container", "-agents",
                    "nomad:org.sealbus.jade.Nomad(tents,Main-Container,Container-2)");
            first.says("nomad is nomad@factory");
            main.says("nomad is at Main-Container");
            Platform.await(() -> factory.run("ticket", "jade-2", "nomad").contains("\"ticket\""), "another ticket", main);
            Platform.Program second = factory.container("jade-2 nomad", port, "-container");
            second.says("nomad is nomad@factory");
            String answer = factory.run("send", "nomad", "search tents", "--performative", "request", "--timeout", "120s");
            assertTrue(answer.contains("found nomad@"), answer + second.output());
            // The first container goes on, without the name.
            assertTrue(factory.shows("jade-1", "active"), first::output);
        }
    }
}

package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Agents of a real JADE that publish and ask on channels of a real Sealbus platform. */
class PublishingTest {
    private static final String PUPPET = ":org.sealbus.jade.Puppet";

    @TempDir
    Path folder;

    /** Has a puppet do something. Returns what it answers. */
    private static String order(Platform factory, String puppet, String... words) {
        return factory.run("send", puppet, String.join("\n", words), "--performative", "request", "--timeout", "120s");
    }

    private static void does(Platform factory, String puppet, String wanted, String... words) {
        String answer = order(factory, puppet, words);
        assertTrue(answer.contains(wanted), () -> puppet + ", " + String.join(" ", words) + ": " + answer);
    }

    private static Platform.Program puppets(Platform factory, String container, int port, String... names) throws Exception {
        String agents = String.join(PUPPET + ";", names) + PUPPET;
        String all = container + " " + String.join(" ", names);
        Platform.Program program = container.equals("jade-main") ? factory.mainContainer(all, port, "-platform-id", "plat1", "-agents", agents)
                : factory.container(all, port, "-container", "-agents", agents);
        for (String name : names) {
            program.says(name + " waits for orders");
        }
        return program;
    }

    @Test
    void eventsReachEveryProcessUnderTheProvedName() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = puppets(factory, "jade-main", port, "speaker", "near");
            Platform.Program other = puppets(factory, "jade-1", port, "far");
            Platform.Program tail = factory.program("tail", "channel", "tail", "/offers/**");
            does(factory, "near", "subscribed to /offers/*", "subscribe", "/offers/*");
            does(factory, "far", "subscribed to /offers/**", "subscribe", "/offers/**");
            // A program that has just begun may not have subscribed yet.
            Platform.await(() -> {
                does(factory, "speaker", "published early", "publish", "/offers/tea", "", "early");
                return tail.output().contains("early");
            }, "an event in another program", tail);
            assertTrue(tail.output().contains("speaker@factory"), tail::output);
            // The publisher waits until agents have read it, in both containers.
            does(factory, "speaker", "published cheap: Reach[here=1, processes=", "publish", "/offers/tea", "ack=agent,priority=7",
                    "cheap");
            main.says("near heard cheap on /offers/tea from speaker@plat1, PROVED");
            other.says("far heard cheap on /offers/tea from speaker@factory, PROVED");
            Platform.await(() -> {
                does(factory, "speaker", "published perhaps", "publish", "/offers/tea", "best-effort", "perhaps");
                return other.output().contains("far heard perhaps");
            }, "an event that may be lost", other);
            does(factory, "speaker", "published late", "publish", "/offers/tea", "valid-from=1s,expiry=1h", "late");
            main.says("near heard late");
            other.says("far heard late");
            does(factory, "far", "closed /offers/**", "close", "/offers/**");
            // The speaker's process hears of that a little later.
            Platform.await(() -> order(factory, "speaker", "publish", "/offers/tea", "", "last")
                    .contains("Reach[here=1, processes=1, groups=0, kept=0]"), "the end of the subscription", main);
            main.says("near heard last");
            assertFalse(other.output().contains("far heard last"), other::output);
        }
    }

    @Test
    void whatCannotBePublishedIsRefusedByName() throws Exception {
        try (Platform factory = new Platform(folder, "[[channel]]\npath = \"/signed\"\nqos = \"level=signed\"\n"
                + "[[permission.channel]]\ndeny = { agents = [\"speaker\"], do = [\"publish\"], on = [\"/secret\"] }")) {
            puppets(factory, "jade-main", Platform.freePort(), "speaker");
            does(factory, "speaker", "refused: the policy does not let speaker publish on /secret", "publish", "/secret", "", "x");
            does(factory, "speaker", "refused: level=signed: agents of JADE sign and seal nothing", "publish", "/signed", "", "x");
            does(factory, "speaker", "wrote under the name of boss@plat1", "publish", "/open", "", "x", "sender=boss@plat1");
            does(factory, "speaker", "refused: /open/* is no channel", "publish", "/open/*", "", "x");
            does(factory, "speaker", "refused: soon is no word of a quality of service", "publish", "/open", "soon", "x");
            does(factory, "speaker", "refused: ack=disk of what is not persistent", "publish", "/open", "ack=disk", "x");
            does(factory, "speaker", "refused: it has expired already", "publish", "/open", "expiry=0ms", "x");
            does(factory, "speaker", "Reach[here=0, processes=0, groups=0, kept=0]", "publish", "/open", "", "x");
        }
    }

    @Test
    void persistentEventsAreInTheLogBeforeAnyoneHearsThem() throws Exception {
        try (Platform factory = new Platform(folder, "[[channel]]\npath = \"/diary\"\npersistent = true")) {
            puppets(factory, "jade-main", Platform.freePort(), "speaker");
            does(factory, "speaker", "kept=1]", "publish", "/diary", "", "Monday");
            does(factory, "speaker", "kept=2]", "publish", "/diary", "ack=disk", "Tuesday");
            String last = factory.run("channel", "tail", "/diary", "--since", "1h", "--count", "2");
            assertTrue(last.contains("Monday") && last.contains("Tuesday") && last.contains("speaker@factory"), last);
        }
    }

    @Test
    void questionsAreAnsweredInBothDirections() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            puppets(factory, "jade-main", port, "asker", "near");
            puppets(factory, "jade-1", port, "far");
            does(factory, "near", "subscribed", "subscribe", "/wanted/*", "answering");
            does(factory, "far", "subscribed", "subscribe", "/wanted/**", "answering", "filter=content != 'coffee'");
            does(factory, "asker", "answers [tea of far from far@factory PROVED, tea of near from near@plat1 PROVED], missing []",
                    "request", "/wanted/tea", "", "60000", "9", "tea");
            does(factory, "asker", "answers [coffee of near from near@plat1 PROVED], missing []",
                    "request", "/wanted/coffee", "", "60000", "9", "coffee");
            does(factory, "asker", "answers [], missing [far, near]", "request", "/wanted/tea", "", "60000", "9", "silence");
            does(factory, "asker", "answers [], missing []", "request", "/nothing", "", "60000", "9", "tea");
            // Questions of others.
            String answers = factory.run("channel", "request", "/wanted/tea", "milk", "--timeout", "60s");
            assertTrue(answers.contains("milk of near") && answers.contains("milk of far"), answers);
        }
    }

    @Test
    void aGroupHandlesEachEventOnceThoughMembersAreLost() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = puppets(factory, "jade-main", port, "boss", "near");
            Platform.Program other = puppets(factory, "jade-1", port, "far");
            does(factory, "far", "subscribed", "subscribe", "/jobs", "group=workers");
            does(factory, "boss", "groups=1", "publish", "/jobs", "", "hold this");
            other.says("far heard hold this");
            // It waits behind the event that far has in hand.
            does(factory, "boss", "groups=1", "publish", "/jobs", "", "next");
            does(factory, "far", "handled", "handle");
            other.says("far heard next");
            does(factory, "boss", "published done", "publish", "/jobs", "ack=agent", "done");
            // A member in the publisher's own container.
            does(factory, "near", "subscribed", "subscribe", "/jobs", "group=workers");
            does(factory, "boss", "groups=1", "publish", "/jobs", "", "hold one");
            does(factory, "boss", "groups=1", "publish", "/jobs", "", "hold two");
            Platform.await(() -> main.output().contains("near heard hold") && other.output().contains("far heard hold o")
                    | other.output().contains("far heard hold t"), "one event for each member", main);
            other.process().destroyForcibly();
            other.ends();
            // The event that far had in hand comes to near, marked, once near has handled its own.
            does(factory, "near", "handled", "handle");
            Platform.await(() -> main.output().contains("PROVED, again"), "the event of the lost member", main);
            does(factory, "near", "handled", "handle");
            does(factory, "boss", "published end", "publish", "/jobs", "ack=agent", "end");
            assertEquals(1, main.output().split("heard end").length - 1, main::output);
        }
    }

    @Test
    void filtersAreEvaluatedByTheNode() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = puppets(factory, "jade-main", port, "speaker", "near");
            Platform.Program other = puppets(factory, "jade-1", port, "far");
            does(factory, "near", "refused: line 1, column", "subscribe", "/offers/tea", "filter=properties.price <");
            does(factory, "near", "subscribed", "subscribe", "/offers/tea", "filter=properties.price < 10");
            does(factory, "far", "subscribed", "subscribe", "/offers/*", "filter=properties.price < 5 && !content.contains('dust')");
            does(factory, "speaker", "here=0, processes=0", "publish", "/offers/tea", "ack=agent", "dear", "price=12");
            does(factory, "speaker", "here=1, processes=0", "publish", "/offers/tea", "ack=agent", "fair", "price=7");
            does(factory, "speaker", "here=1, processes=0", "publish", "/offers/tea", "ack=agent", "tea dust", "price=1");
            does(factory, "speaker", "here=1, processes=1", "publish", "/offers/tea", "ack=agent", "gift", "price=1");
            // The filters cannot be evaluated for it.
            does(factory, "speaker", "here=0, processes=0", "publish", "/offers/tea", "ack=agent", "priceless");
            other.says("passed far by: ");
            String published = factory.run("channel", "publish", "/offers/tea", "sale", "--property", "price=2", "--qos", "ack=agent");
            assertFalse(published.contains("error"), published);
            main.says("near heard sale");
            other.says("far heard sale");
            assertFalse(main.output().contains("near heard dear") || other.output().contains("far heard tea dust"), other::output);
        }
    }

    @Test
    void aDurableSubscriptionGoesOnWhereItsAgentStoppedReading() throws Exception {
        try (Platform factory = new Platform(folder, "[[channel]]\npath = \"/diary\"\npersistent = true")) {
            int port = Platform.freePort();
            Platform.Program main = puppets(factory, "jade-main", port, "speaker");
            for (String day : new String[] {"Monday", "Tuesday", "Wednesday"}) {
                does(factory, "speaker", "published " + day, "publish", "/diary", "", day);
            }
            Platform.Program first = puppets(factory, "jade-1", port, "reader");
            does(factory, "reader", "subscribed", "subscribe", "/diary", "durable=my place", "number=2");
            first.says("reader heard Wednesday on /diary from speaker@factory, PROVED");
            first.says("reader heard Tuesday");
            assertFalse(first.output().contains("heard Monday"), first::output);
            does(factory, "reader", "has a subscription with the durable name", "subscribe", "/diary", "durable=my place");
            does(factory, "reader", "cannot be durable", "subscribe", "/diary", "durable=other", "group=workers");
            Platform.await(() -> factory.run("channel", "list").contains("reader/my place"), "the note", first);
            Platform.await(() -> factory.run("channel", "list").replaceAll("\\s", "").contains("\"reader/myplace\":4"), "all read",
                    first);
            first.process().destroyForcibly();
            first.ends();
            Platform.await(() -> !factory.shows("reader", "active"), "reader to be away", first);
            does(factory, "speaker", "published Thursday", "publish", "/diary", "", "Thursday");
            Platform.Program second = puppets(factory, "jade-2", port, "reader");
            does(factory, "reader", "subscribed", "subscribe", "/diary", "durable=my place");
            second.says("reader heard Thursday");
            does(factory, "speaker", "published Friday", "publish", "/diary", "", "Friday");
            second.says("reader heard Friday");
            assertFalse(second.output().contains("heard Wednesday"), second::output);
            // The latest only.
            does(factory, "speaker", "subscribed", "subscribe", "/diary", "last=1");
            main.says("speaker heard Friday");
            assertFalse(main.output().contains("speaker heard Thursday"), main::output);
        }
    }

    /** Nobody knows since when another party had the key of an agent that an operator revoked. */
    @Test
    void eventsThatWereKeptBeforeTheirPublisherWasRevokedAreNotHandedOut() throws Exception {
        try (Platform factory = new Platform(folder, "[[channel]]\npath = \"/diary\"\npersistent = true")) {
            int port = Platform.freePort();
            puppets(factory, "jade-main", port, "speaker");
            Platform.Program other = puppets(factory, "jade-1", port, "thief");
            does(factory, "thief", "kept=1]", "publish", "/diary", "", "stolen");
            does(factory, "speaker", "kept=2]", "publish", "/diary", "", "honest");
            factory.run("ca", "revoke", "thief");
            // Its node knows of that, and so does a container that begins there now.
            other.says("thief has no name on Sealbus any more");
            Platform.Program readers = puppets(factory, "jade-2", port, "reader");
            does(factory, "reader", "subscribed", "subscribe", "/diary", "durable=my place", "number=1");
            readers.says("reader heard honest on /diary from speaker@factory, PROVED");
            assertFalse(readers.output().contains("heard stolen"), readers::output);
            readers.says("reader, /diary: kept events are not handed out, because an operator has revoked their publisher since (1)");
            // The subscription has passed over it.
            Platform.await(() -> factory.run("channel", "list").replaceAll("\\s", "").contains("\"reader/myplace\":3"), "all read",
                    readers);
        }
    }

    @Test
    void aPublisherWaitsForSlowAgentsAndLosesNothing() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            puppets(factory, "jade-main", port, "speaker");
            Platform.Program other = puppets(factory, "jade-1", port, "far");
            does(factory, "far", "subscribed", "subscribe", "/numbers");
            // Many times what a subscription may be sent before its agent has room.
            does(factory, "speaker", "published 60", "burst", "/numbers", "", "60", "x", "60000");
            for (int i = 0; i < 60; i++) {
                other.says("far heard " + i + ".x");
            }
            assertEquals(60, other.output().split("far heard").length - 1, other::output);
        }
    }
}

package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Agents of a real JADE that listen to channels of a real Sealbus platform. */
class ChannelsTest {
    @TempDir
    Path folder;

    private static void publish(Platform factory, String channel, String content, String... options) {
        List<String> command = new ArrayList<>(List.of("channel", "publish", channel, content));
        Collections.addAll(command, options);
        String published = factory.run(command.toArray(String[]::new));
        assertFalse(published.contains("error"), published);
    }

    @Test
    void agentsOfJadeHearEventsWithTheirProvedPublishers() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            Platform.Program main = factory.mainContainer("jade-main ear other nobody", Platform.freePort(), "-agents",
                    "ear:org.sealbus.jade.Listener(/offers/*);other:org.sealbus.jade.Listener(/offers/**);"
                            + "unnamed:org.sealbus.jade.Listener(/offers/*);nobody:org.sealbus.jade.Listener(offers)");
            main.says("unnamed does not listen: unnamed@");
            main.says("nobody does not listen: offers is no pattern of channels");
            main.says("ear listens to /offers/*");
            main.says("other listens to /offers/**");
            publish(factory, "/offers/tea", "dear");
            main.says("ear heard dear on /offers/tea from publish-");
            publish(factory, "/elsewhere", "nothing");
            // The publisher waits until both have read it.
            publish(factory, "/offers/tea", "cheap", "--qos", "exactly-once,ack=agent");
            main.says("ear heard cheap on /offers/tea from publish-");
            main.says("other heard cheap on /offers/tea from publish-");
            publish(factory, "/offers/tea", "late", "--qos", "expiry=1h,valid-from=1s");
            main.says("ear heard late on /offers/tea from publish-");
            publish(factory, "/offers/tea", "enough, ear");
            main.says("ear listens no more");
            publish(factory, "/offers/tea", "last");
            main.says("other heard last");
            String heard = main.output();
            assertTrue(heard.contains("@factory, PROVED"), heard);
            assertFalse(heard.contains(", FOREIGN") || heard.contains(", JADE"), heard);
            assertFalse(heard.contains("heard nothing") || heard.contains("ear heard last"), heard);
        }
    }

    @Test
    void rulesForChannelsHold() throws Exception {
        try (Platform factory = new Platform(folder,
                "[[permission.channel]]\ndeny = { agents = [\"spy\"], do = [\"subscribe\"], on = [\"/secret/**\"] }")) {
            Platform.Program main = factory.mainContainer("jade-main ear spy", Platform.freePort(), "-agents",
                    "ear:org.sealbus.jade.Listener(/**);spy:org.sealbus.jade.Listener(/**)");
            main.says("ear listens to /**");
            main.says("spy listens to /**");
            publish(factory, "/secret/plan", "hidden");
            publish(factory, "/open", "visible");
            main.says("ear heard hidden");
            main.says("spy heard visible");
            assertFalse(main.output().contains("spy heard hidden"), main::output);
        }
    }
}

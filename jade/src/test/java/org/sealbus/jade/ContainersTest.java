package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Containers of a real JADE on a real Sealbus platform. */
class ContainersTest {
    @TempDir
    Path folder;

    @Test
    void unchangedAgentsFindEachOtherAndTalk() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main", port, "-agents", "pong:org.sealbus.jade.Pong");
            // JADE gives both the same port, unless told otherwise.
            Platform.Program other = factory.container("jade-1", port, "-container",
                    "-local-port", String.valueOf(port), "-agents", "ping:org.sealbus.jade.Ping(500,0)");
            other.says("ping has 500 answers of pong@");
            assertTrue(factory.shows("jade-main", "active"), main::output);
            assertTrue(factory.shows("jade-1", "active"), other::output);

            // A container that ends leaves the platform too.
            other.process().destroy();
            other.ends();
            Platform.await(() -> !factory.shows("jade-1", "active"), "jade-1 to be gone", other);
            assertTrue(main.process().isAlive());
        }
    }

    @Test
    void certificatesAreRenewedInTime() throws Exception {
        try (Platform factory = new Platform(folder, "lifetime = \"12s\"")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main", port, "-agents", "pong:org.sealbus.jade.Pong");
            Platform.Program other = factory.container("jade-1", port, "-container",
                    "-agents", "ping:org.sealbus.jade.Ping(30,1000)");
            other.says("ping has 30 answers");
            assertFalse(main.output().contains("SEVERE"), main::output);
            assertFalse(other.output().contains("SEVERE"), other::output);
        }
    }

    /** The library of Java for TLS is content with the certificates, so the container itself must say what is missing. */
    @Test
    void aPlatformOfAnotherAlgorithmIsRefusedByName() throws Exception {
        try (Platform factory = new Platform(folder, "level = \"signed\"\nsignatures = \"ml-dsa-65\"")) {
            Platform.Program main = factory.container("jade-main", Platform.freePort());
            main.says("this container cannot join Sealbus");
            main.says("the platform factory signs with ML-DSA-65, and containers of JADE know Ed25519 alone");
        }
    }

    @Test
    void aRevokedContainerIsCutOff() throws Exception {
        try (Platform factory = new Platform(folder, "")) {
            int port = Platform.freePort();
            Platform.Program main = factory.mainContainer("jade-main", port, "-agents", "pong:org.sealbus.jade.Pong");
            Platform.Program other = factory.container("jade-1", port, "-container",
                    "-agents", "ping:org.sealbus.jade.Ping(1000000,1)");
            other.says("ping got ball 100.");
            factory.run("ca", "revoke", "jade-1");
            // It hears of that itself and leaves, so the others may never see its certificate refused.
            other.says("this container leaves");
            main.says("--- Node <Container-1> TERMINATED ---");
            // Others are not touched.
            factory.container("jade-2", port, "-container", "-agents", "ping2:org.sealbus.jade.Ping(50,0)")
                    .says("ping has 50 answers");
        }
    }
}

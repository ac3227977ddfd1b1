package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The node speaks to a container before the container's mesh is there: which processes use channels, and other rules. */
class EarlyNewsTest {
    private final SealbusICP container = new SealbusICP();
    private final List<String> heard = new ArrayList<>();

    @Test
    void newsWaitForTheServiceAndKeepTheirOrder() {
        container.tell(() -> heard.add("first"));
        container.tell(() -> heard.add("second"));
        assertEquals(List.of(), heard);
        container.carries(null, new SealbusService());
        container.tell(() -> heard.add("third"));
        assertEquals(List.of("first", "second", "third"), heard);
    }

    @Test
    void aContainerWithoutAServiceKeepsNoNews() {
        container.tell(() -> heard.add("first"));
        container.carries(null, null);
        container.tell(() -> heard.add("second"));
        assertEquals(List.of(), heard);
    }
}

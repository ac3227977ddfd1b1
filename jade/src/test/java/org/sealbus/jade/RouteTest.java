package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import org.junit.jupiter.api.Test;

/** The way to one agent, when the link to the agent's process is lost. */
class RouteTest {
    private final Route route = new Route("seller@factory");

    private static Letter letter(String sender) {
        return new Letter(sender, "seller@factory", new byte[9]);
    }

    @Test
    void theRestOfAMessageThatCameBackDoesNotComeOverTheNextLink() {
        route.piece.bytes(new byte[Frame.LONGEST_PIECE]);
        route.lookAgain();
        assertEquals(0, route.piece.length());
    }

    @Test
    void messagesThatCameBackGoFirstAndAllCountForTheirAuthors() {
        Letter first = letter("buyer");
        Letter second = letter("clerk");
        Letter third = letter("buyer");
        route.returned.add(first);
        route.returned.add(second);
        route.add(third);
        assertEquals(2, route.letters("buyer"));
        assertEquals(1, route.letters("clerk"));
        route.lookAgain();
        assertEquals(2, route.letters("buyer"));
        assertSame(first, route.take());
        assertSame(second, route.take());
        assertSame(third, route.take());
        assertEquals(0, route.letters("buyer"));
    }
}

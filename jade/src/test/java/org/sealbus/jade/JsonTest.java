package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JsonTest {
    @Test
    void whatIsWrittenIsReadAgain() {
        Random random = new Random(7);
        for (int i = 0; i < 2000; i++) {
            Object value = value(random, 4);
            assertEquals(value, Json.read(Json.write(value)));
        }
    }

    private static Object value(Random random, int depth) {
        switch (random.nextInt(depth > 0 ? 6 : 4)) {
            case 0:
                return random.nextLong() >> random.nextInt(8, 64);
            case 1:
                return random.nextBoolean();
            case 2:
                return null;
            case 3:
                return random.ints(random.nextInt(8), 0, 0x250)
                        .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append).toString();
            case 4:
                List<Object> list = new ArrayList<>();
                random.ints(random.nextInt(4)).forEach(any -> list.add(value(random, depth - 1)));
                return list;
            default:
                Map<String, Object> map = new LinkedHashMap<>();
                random.ints(random.nextInt(4)).forEach(any -> map.put("\"" + any, value(random, depth - 1)));
                return map;
        }
    }

    @Test
    void escapesAreUnderstood() {
        assertEquals("a\"\\/\b\f\n\r\té€", Json.read("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\""));
        assertEquals(List.of(1L, -2L, 3.5), Json.read(" [1, -2 ,3.5] "));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "{", "[1", "\"", "\"\\u12", "\"\\x\"", "{\"a\"}", "{1:2}", "[1,]", "tru", "1 2", "-", "1e", "\"\n\""})
    void whatIsNotJsonIsRefused(String text) {
        assertThrows(IllegalArgumentException.class, () -> Json.read(text));
    }

    @Test
    void depthHasALimit() {
        assertThrows(IllegalArgumentException.class, () -> Json.read("[".repeat(1_000_000)));
    }

    @Test
    void anyBytesAreAValueOrRefused() {
        Random random = new Random(11);
        String alphabet = "{}[]\",:\\u0019tfnrue+-.E \u00e9";
        for (int i = 0; i < 20_000; i++) {
            StringBuilder text = new StringBuilder();
            random.ints(random.nextInt(24), 0, alphabet.length()).forEach(at -> text.append(alphabet.charAt(at)));
            try {
                Json.read(text.toString());
            } catch (IllegalArgumentException refused) {
                // That is an answer too.
            }
        }
    }
}

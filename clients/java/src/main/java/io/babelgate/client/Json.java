package io.babelgate.client;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.StreamWriteConstraints;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** JSON as the gateway writes it: numbers keep their digits. */
final class Json {
    private static final int MOST_CHARACTERS = 100_000_000;
    private static final int MOST_LEVELS = 10_000;

    static final JsonMapper MAPPER = JsonMapper.builder(JsonFactory.builder()
                    .streamReadConstraints(StreamReadConstraints.builder()
                            .maxNumberLength(MOST_CHARACTERS)
                            .maxStringLength(MOST_CHARACTERS)
                            .maxNestingDepth(MOST_LEVELS)
                            .build())
                    .streamWriteConstraints(
                            StreamWriteConstraints.builder().maxNestingDepth(MOST_LEVELS).build())
                    .build())
            .findAndAddModules()
            .nodeFactory(JsonNodeFactory.instance)
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .disable(JsonNodeFeature.STRIP_TRAILING_BIGDECIMAL_ZEROES)
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
            .build();

    private Json() {}

    static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    static JsonNode tree(Object value) {
        return MAPPER.valueToTree(value);
    }

    static byte[] bytes(JsonNode value) {
        try {
            return MAPPER.writeValueAsBytes(value);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("the message cannot be written as JSON", error);
        }
    }

    /** The object in {@code text}; empty if it is none. */
    static JsonNode read(byte[] text) {
        try {
            JsonNode read = MAPPER.readTree(text);
            return read.isObject() ? read : object();
        } catch (IOException error) {
            return object();
        }
    }

    static <T> T as(JsonNode value, Class<T> type) {
        return MAPPER.convertValue(value, type);
    }

    static double seconds(Duration duration) {
        return duration.toNanos() / 1e9;
    }

    /** At most so many characters of {@code text}, without halves of surrogate pairs, which JSON does not have. */
    static String clipped(String text, int most) {
        String cut = text.length() > most ? text.substring(0, most) : text;
        return new String(cut.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
    }
}

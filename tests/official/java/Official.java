import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What the programs around clients for Java have in common: a message is a JSON object a line. */
abstract class Official {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    /** A message. */
    record Line(byte[] payload, Map<String, Object> headers, Map<String, String> properties, boolean odd) {
        Line(byte[] payload, Map<String, Object> headers, Map<String, String> properties) {
            this(payload, headers, properties, false);
        }

        /** The headers, and {@code odd} for a line that asks for them. */
        Map<String, Object> with(Map<String, Object> odd) {
            Map<String, Object> all = new HashMap<>(headers);
            if (this.odd) {
                all.putAll(odd);
            }
            return all;
        }

        String property(String name) {
            return properties.get(name);
        }
    }

    /** Publishes the lines. {@code more}: arguments behind the queue. */
    abstract void produce(String url, String queue, List<Line> lines, String... more) throws Exception;

    /** Settles messages by the verb (consume, return, reject) and prints them, while {@link #goesOn} says so. */
    abstract void consume(String url, String queue, String verb) throws Exception;

    /** Arguments: the verb, the URL, the queue, and more for {@code produce}. */
    final void run(String... arguments) {
        // Logs go to the other stream.
        System.setOut(System.err);
        try {
            call(arguments);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
        // Threads of a client end late.
        System.exit(0);
    }

    private void call(String... arguments) throws Exception {
        if (!arguments[0].equals("produce")) {
            consume(arguments[1], arguments[2], arguments[0]);
        } else {
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            List<Line> lines = new ArrayList<>();
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                lines.add(parse(JSON.readTree(line)));
            }
            produce(arguments[1], arguments[2], lines, Arrays.copyOfRange(arguments, 3, arguments.length));
        }
    }

    private static Line parse(JsonNode given) throws Exception {
        Map<String, Object> headers = JSON.convertValue(given.get("headers"), new TypeReference<>() { });
        Map<String, String> properties = JSON.convertValue(given.get("properties"), new TypeReference<>() { });
        return new Line(given.get("payload").binaryValue(), headers, properties, given.path("odd").asBoolean());
    }

    /** Whether there may be more for a consumer to do: a verb other than consume is for one message. */
    final boolean goesOn(String verb) throws Exception {
        return System.in.available() == 0 && (verb.equals("consume") || !printed);
    }

    private boolean printed;

    final synchronized void print(Line line) throws Exception {
        Map<String, Object> headers = new TreeMap<>();
        line.headers.forEach((name, value) -> headers.put(name, typed(value)));
        output.println(JSON.writeValueAsString(
                Map.of("payload", line.payload, "headers", headers, "properties", line.properties)));
        printed = true;
    }

    /** A text as it is, another value behind its type. */
    private static String typed(Object value) {
        if (value == null || value instanceof CharSequence || value.getClass().getSimpleName().equals("ByteArrayLongString")) {
            return String.valueOf(value);
        }
        String text = value instanceof byte[] bytes ? Arrays.toString(bytes) : value.toString();
        return value.getClass().getSimpleName() + " " + text;
    }
}

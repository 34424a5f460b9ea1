import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/** Publishes and consumes messages with the official client for Java: a JSON object a line, with its payload in base64. */
public final class Client {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Arguments: "produce" or "consume", the URL, the topic, and the compression of what is produced. */
    public static void main(String[] arguments) throws Exception {
        // Logs go to the other stream.
        PrintStream output = System.out;
        System.setOut(System.err);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[1]).build()) {
            if (arguments[0].equals("produce")) {
                produce(client, arguments[2], CompressionType.valueOf(arguments[3]));
            } else {
                consume(client, arguments[2], output);
            }
        }
    }

    /** Publishes the lines of the standard input in batches of ten. */
    private static void produce(PulsarClient client, String topic, CompressionType compression) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Producer<byte[]> producer = client.newProducer()
                .topic(topic)
                .compressionType(compression)
                .batchingMaxMessages(10)
                .batchingMaxPublishDelay(1, TimeUnit.MINUTES)
                .create()) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                JsonNode given = JSON.readTree(line);
                Map<String, String> properties = new HashMap<>();
                given.get("properties").fields().forEachRemaining(each -> properties.put(each.getKey(), each.getValue().asText()));
                TypedMessageBuilder<byte[]> message =
                        producer.newMessage().value(given.get("payload").binaryValue()).properties(properties);
                if (!given.get("key").asText().isEmpty()) {
                    message.key(given.get("key").asText());
                }
                message.sendAsync();
            }
            producer.flush();
        }
    }

    /** Acknowledges messages and prints them, until its standard input ends. */
    private static void consume(PulsarClient client, String topic, PrintStream output) throws Exception {
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("babelqueue")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .isAckReceiptEnabled(true)
                .subscribe()) {
            while (System.in.available() == 0) {
                Message<byte[]> message = consumer.receive(200, TimeUnit.MILLISECONDS);
                if (message == null) {
                    continue;
                }
                consumer.acknowledge(message);
                Map<String, Object> made = new LinkedHashMap<>();
                made.put("payload", message.getValue());
                made.put("properties", message.getProperties());
                made.put("key", message.hasKey() ? message.getKey() : "");
                made.put("redelivery", message.getRedeliveryCount());
                output.println(JSON.writeValueAsString(made));
            }
        }
    }
}

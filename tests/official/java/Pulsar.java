import java.util.List;
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

/** Pulsar's official client for Java. */
final class Pulsar extends Official {
    public static void main(String[] arguments) {
        new Pulsar().run(arguments);
    }

    /** Publishes in batches of ten, compressed as {@code more} says. */
    @Override
    void produce(String url, String topic, List<Line> lines, String... more) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).build();
                Producer<byte[]> producer = client.newProducer()
                        .topic(topic)
                        .compressionType(CompressionType.valueOf(more[0]))
                        .batchingMaxMessages(10)
                        .batchingMaxPublishDelay(1, TimeUnit.MINUTES)
                        .create()) {
            for (Line line : lines) {
                TypedMessageBuilder<byte[]> message = producer.newMessage().value(line.payload());
                line.headers().forEach((name, value) -> message.property(name, (String) value));
                if (line.property("key") != null) {
                    message.key(line.property("key"));
                }
                message.sendAsync();
            }
            producer.flush();
        }
    }

    /** Acknowledges every message. */
    @Override
    void consume(String url, String topic, String verb) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).build();
                Consumer<byte[]> consumer = client.newConsumer()
                        .topic(topic)
                        .subscriptionName("babelqueue")
                        .subscriptionType(SubscriptionType.Shared)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .isAckReceiptEnabled(true)
                        .subscribe()) {
            while (goesOn(verb)) {
                Message<byte[]> message = consumer.receive(200, TimeUnit.MILLISECONDS);
                if (message != null) {
                    consumer.acknowledge(message);
                    Map<String, String> properties = Map.of("key", message.hasKey() ? message.getKey() : "");
                    print(new Line(message.getValue(), Map.copyOf(message.getProperties()), properties));
                }
            }
        }
    }
}

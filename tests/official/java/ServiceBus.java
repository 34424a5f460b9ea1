import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** Microsoft's client of Service Bus for Java. The URL is a connection string. */
final class ServiceBus extends Official {
    private static final Map<String, Object> ODD = Map.of(
            "odd-bool", true,
            "odd-byte", (byte) -7,
            "odd-short", (short) -7,
            "odd-int", -7,
            "odd-long", 1L << 53,
            "odd-float", 1.5f,
            "odd-double", 1.25,
            "odd-uuid", new UUID(1, 2),
            "odd-time", OffsetDateTime.of(2026, 1, 2, 3, 4, 5, 678_000_000, ZoneOffset.UTC));

    public static void main(String[] arguments) {
        new ServiceBus().run(arguments);
    }

    private static ServiceBusClientBuilder client(String connection) {
        return new ServiceBusClientBuilder().connectionString(connection);
    }

    @Override
    void produce(String connection, String queue, List<Line> lines, String... more) {
        try (ServiceBusSenderClient sender = client(connection).sender().queueName(queue).buildClient()) {
            for (Line line : lines) {
                ServiceBusMessage message = new ServiceBusMessage(line.payload())
                        .setSubject(line.property("Subject"))
                        .setCorrelationId(line.property("CorrelationId"))
                        .setContentType(line.property("ContentType"));
                if (line.property("MessageId") != null) {
                    message.setMessageId(line.property("MessageId"));
                }
                message.getApplicationProperties().putAll(line.with(ODD));
                sender.sendMessage(message);
            }
        }
    }

    @Override
    void consume(String connection, String queue, String verb) throws Exception {
        try (ServiceBusReceiverClient receiver =
                client(connection).receiver().queueName(queue).disableAutoComplete().buildClient()) {
            while (goesOn(verb)) {
                int most = verb.equals("consume") ? 20 : 1;
                for (ServiceBusReceivedMessage message : receiver.receiveMessages(most, Duration.ofMillis(500))) {
                    switch (verb) {
                        case "consume" -> receiver.complete(message);
                        case "return" -> receiver.abandon(message);
                        default -> receiver.deadLetter(message);
                    }
                    print(read(message));
                }
            }
        }
    }

    private static Line read(ServiceBusReceivedMessage message) {
        Map<String, String> properties = new HashMap<>();
        properties.put("Subject", message.getSubject());
        properties.put("CorrelationId", message.getCorrelationId());
        properties.put("MessageId", message.getMessageId());
        properties.put("ContentType", message.getContentType());
        return new Line(message.getBody().toBytes(), message.getApplicationProperties(), properties);
    }
}

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import java.math.BigDecimal;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** RabbitMQ's official client for Java. */
final class RabbitMq extends Official {
    private static final Map<String, Object> ODD = new HashMap<>();

    static {
        ODD.put("odd-bool", true);
        ODD.put("odd-byte", (byte) -7);
        ODD.put("odd-short", (short) -7);
        ODD.put("odd-int", -7);
        ODD.put("odd-long", 1L << 53);
        ODD.put("odd-float", 1.5f);
        ODD.put("odd-double", 1.25);
        ODD.put("odd-bytes", new byte[] {0, -1});
        ODD.put("odd-decimal", new BigDecimal("123.45"));
        ODD.put("odd-time", new Date(1_700_000_000_000L));
        ODD.put("odd-nothing", null);
        ODD.put("odd-list", Arrays.asList(1, 2L, true));
        ODD.put("odd-table", Map.of("d", Map.of("e", 1L)));
    }

    public static void main(String[] arguments) {
        new RabbitMq().run(arguments);
    }

    private static Connection connect(String url) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(url);
        return factory.newConnection();
    }

    @Override
    void produce(String url, String queue, List<Line> lines, String... more) throws Exception {
        try (Connection connection = connect(url); Channel channel = connection.createChannel()) {
            channel.confirmSelect();
            for (Line line : lines) {
                AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
                        .headers(line.with(ODD))
                        .contentType(line.property("content_type"))
                        .deliveryMode(2)
                        .correlationId(line.property("correlation_id"))
                        .messageId(line.property("message_id"))
                        .type(line.property("type"))
                        .appId(line.property("app_id"))
                        .build();
                channel.basicPublish("", queue, true, properties, line.payload());
            }
            channel.waitForConfirmsOrDie();
        }
    }

    @Override
    void consume(String url, String queue, String verb) throws Exception {
        try (Connection connection = connect(url); Channel channel = connection.createChannel()) {
            BlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
            channel.basicQos(verb.equals("consume") ? 20 : 1);
            channel.basicConsume(queue, false, (tag, delivery) -> deliveries.add(delivery), tag -> { });
            while (goesOn(verb)) {
                Delivery delivery = deliveries.poll(50, TimeUnit.MILLISECONDS);
                if (delivery == null) {
                    continue;
                }
                long tag = delivery.getEnvelope().getDeliveryTag();
                if (verb.equals("consume")) {
                    channel.basicAck(tag, false);
                } else {
                    channel.basicNack(tag, false, verb.equals("return"));
                }
                print(read(delivery));
            }
        }
    }

    private static Line read(Delivery delivery) {
        AMQP.BasicProperties given = delivery.getProperties();
        Map<String, String> properties = new HashMap<>();
        properties.put("content_type", given.getContentType());
        properties.put("content_encoding", given.getContentEncoding());
        properties.put("delivery_mode", String.valueOf(given.getDeliveryMode()));
        properties.put("correlation_id", given.getCorrelationId());
        properties.put("message_id", given.getMessageId());
        properties.put("timestamp", given.getTimestamp() == null ? null : String.valueOf(given.getTimestamp().getTime() / 1000));
        properties.put("type", given.getType());
        properties.put("app_id", given.getAppId());
        Map<String, Object> headers = given.getHeaders();
        return new Line(delivery.getBody(), headers == null ? Map.of() : headers, properties);
    }
}

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Apache Qpid JMS, the client for Java that speaks AMQP 1.0. */
final class Artemis extends Official {
    private static final Map<String, Object> ODD = Map.of(
            "odd_bool", true,
            "odd_byte", (byte) -7,
            "odd_short", (short) -7,
            "odd_int", -7,
            "odd_long", 1L << 53,
            "odd_float", 1.5f,
            "odd_double", 1.25);
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;
    private static final String OUTCOME = "JMS_AMQP_ACK_TYPE";
    private static final int REJECTED = 2;
    private static final int MODIFIED_FAILED = 4;

    public static void main(String[] arguments) {
        new Artemis().run(arguments);
    }

    private static Connection connect(String url, String verb) throws JMSException {
        // Without one, the client holds no message that was not asked for.
        String prefetch = verb.equals("consume") ? "20" : "0";
        Connection connection = new JmsConnectionFactory(url + "?jms.prefetchPolicy.all=" + prefetch).createConnection();
        connection.start();
        return connection;
    }

    @Override
    void produce(String url, String queue, List<Line> lines, String... more) throws Exception {
        try (Connection connection = connect(url, "produce")) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(queue));
            for (Line line : lines) {
                Message message;
                if ("amqp-value".equals(line.property("body"))) {
                    message = session.createTextMessage(new String(line.payload(), StandardCharsets.UTF_8));
                } else {
                    BytesMessage bytes = session.createBytesMessage();
                    bytes.writeBytes(line.payload());
                    message = bytes;
                }
                for (Map.Entry<String, Object> each : line.with(ODD).entrySet()) {
                    message.setObjectProperty(each.getKey(), each.getValue());
                }
                message.setJMSCorrelationID(line.property("correlation-id"));
                producer.send(message);
            }
        }
    }

    @Override
    void consume(String url, String queue, String verb) throws Exception {
        try (Connection connection = connect(url, verb)) {
            Session session = connection.createSession(INDIVIDUAL_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            while (goesOn(verb)) {
                Message message = consumer.receive(50);
                if (message == null) {
                    continue;
                }
                Line line = read(message);
                if (!verb.equals("consume")) {
                    message.setIntProperty(OUTCOME, verb.equals("return") ? MODIFIED_FAILED : REJECTED);
                }
                message.acknowledge();
                print(line);
            }
        }
    }

    private static Line read(Message message) throws JMSException {
        Map<String, Object> headers = new HashMap<>();
        Enumeration<?> names = message.getPropertyNames();
        for (Object name : Collections.list(names)) {
            if (!((String) name).startsWith("JMS")) {
                headers.put((String) name, message.getObjectProperty((String) name));
            }
        }
        boolean isText = message instanceof TextMessage;
        byte[] payload = isText
                ? ((TextMessage) message).getText().getBytes(StandardCharsets.UTF_8)
                : message.getBody(byte[].class);
        Map<String, String> properties = new HashMap<>();
        properties.put("body", isText ? "amqp-value" : "data");
        properties.put("durable", String.valueOf(message.getJMSDeliveryMode() == 2));
        properties.put("correlation-id", message.getJMSCorrelationID());
        properties.put("creation-time", String.valueOf(message.getJMSTimestamp()));
        return new Line(payload, headers, properties);
    }
}

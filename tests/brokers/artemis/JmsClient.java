import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A JMS client: URL, verb (receive, send-text, send-bytes, check), queue. What it sends is its input. */
public class JmsClient {
  public static void main(String[] arguments) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    try (Connection connection = new JmsConnectionFactory(arguments[0]).createConnection()) {
      connection.start();
      Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Queue queue = session.createQueue(arguments[2]);
      if (arguments[1].startsWith("send")) {
        byte[] body = System.in.readAllBytes();
        Message message;
        if (arguments[1].equals("send-text")) {
          message = session.createTextMessage(new String(body, StandardCharsets.UTF_8));
        } else {
          BytesMessage bytes = session.createBytesMessage();
          bytes.writeBytes(body);
          message = bytes;
        }
        message.setJMSType("urn:babel:orders:created");
        message.setBooleanProperty("a_bool", true);
        message.setByteProperty("a_byte", (byte) 7);
        message.setLongProperty("a_long", 9007199254740993L);
        message.setDoubleProperty("a_double", 1.5);
        message.setStringProperty("a_text", "\u00fc");
        session.createProducer(queue).send(message);
        return;
      }
      MessageConsumer consumer = session.createConsumer(queue);
      Message message = consumer.receive(60_000);
      if (arguments[1].equals("check")) {
        boolean same = message.getObjectProperty("a_bool").equals(true)
            && message.getObjectProperty("a_byte").equals((byte) 7)
            && message.getObjectProperty("a_long").equals(9007199254740993L)
            && message.getObjectProperty("a_double").equals(1.5)
            && message.getObjectProperty("a_text").equals("\u00fc")
            && (message instanceof TextMessage || message instanceof BytesMessage);
        out.println(same ? "as sent" : "changed");
        return;
      }
      out.println("correlation=" + message.getJMSCorrelationID());
      out.println("timestamp=" + message.getJMSTimestamp());
      out.println("deliveries=" + message.getIntProperty("JMSXDeliveryCount"));
      for (String name : new String[] {"bq_schema_version", "bq_source_lang", "bq_attempts", "bq_app_id", "shop_region"}) {
        out.println(name + "=" + message.getStringProperty(name));
      }
      out.println("text=" + ((TextMessage) message).getText());
    }
  }
}

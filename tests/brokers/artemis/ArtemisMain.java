import java.nio.file.Path;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** A broker in a process of its own; the argument is its configuration. */
public class ArtemisMain {
  public static void main(String[] arguments) throws Exception {
    EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
    broker.setConfigResourcePath(Path.of(arguments[0]).toUri().toString());
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      try {
        broker.stop();
      } catch (Exception error) {
        error.printStackTrace();
      }
    }));
    broker.start();
    Thread.currentThread().join();
  }
}

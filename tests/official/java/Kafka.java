import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's official client for Java. */
final class Kafka extends Official {
    public static void main(String[] arguments) {
        new Kafka().run(arguments);
    }

    @Override
    void produce(String url, String queue, List<Line> lines, String... more) throws Exception {
        ByteArraySerializer bytes = new ByteArraySerializer();
        Map<String, Object> settings = Map.of("bootstrap.servers", url);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (Line line : lines) {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(queue, line.payload());
                line.headers().forEach((name, value) ->
                        record.headers().add(name, String.valueOf(value).getBytes(StandardCharsets.UTF_8)));
                producer.send(record).get();
            }
        }
    }

    @Override
    void consume(String url, String queue, String verb) throws Exception {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        Map<String, Object> settings = Map.of("bootstrap.servers", url, "group.id", "babelqueue",
                "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(queue));
            while (goesOn(verb)) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    consumer.commitSync(Map.of(partition, new OffsetAndMetadata(record.offset() + 1)));
                    Map<String, Object> headers = new HashMap<>();
                    record.headers().forEach(each ->
                            headers.put(each.key(), new String(each.value(), StandardCharsets.UTF_8)));
                    print(new Line(record.value(), headers, Map.of("partition", String.valueOf(record.partition()))));
                }
            }
        }
    }
}

package bench.kafka;

import bench.Peer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;
import org.json.JSONObject;

/** Kafka: a topic for each receiver, of one partition; a topic that all read for a broadcast. */
public final class Kafka implements Peer {
    private JSONObject settings;
    private String run;
    private volatile boolean isOver;
    private final List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();

    @Override
    public String client() {
        return "kafka-clients " + AppInfoParser.getVersion();
    }

    @Override
    public Object here() {
        return new JSONObject().put("run", run);
    }

    private Properties common(String role) {
        Properties common = new Properties();
        common.put("bootstrap.servers", settings.getString("servers"));
        if (settings.has("trust")) {
            common.put("security.protocol", "SSL");
            common.put("ssl.truststore.type", "PKCS12");
            common.put("ssl.truststore.location", settings.getString("trust"));
            common.put("ssl.truststore.password", "changeit");
            common.put("ssl.keystore.type", "PKCS12");
            common.put("ssl.keystore.location", settings.getString(role));
            common.put("ssl.keystore.password", "changeit");
        }
        return common;
    }

    private KafkaProducer<byte[], byte[]> producer(String role) {
        Properties properties = common(role);
        // For low latency, as its documentation advises: no lingering, one acknowledgement.
        properties.put("linger.ms", "0");
        properties.put("acks", "1");
        properties.put("enable.idempotence", "false");
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        producers.add(producer);
        return producer;
    }

    /** Reads a topic from its end on until the run is over, and gives the records to a consumer. */
    private void read(String role, String topic, CountDownLatch ready, java.util.function.Consumer<ConsumerRecord<byte[], byte[]>> take) {
        Thread thread = new Thread(() -> {
            Properties properties = common(role);
            properties.put("fetch.min.bytes", "1");
            properties.put("max.poll.records", "5000");
            try (KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                TopicPartition partition = new TopicPartition(topic, 0);
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                consumer.position(partition);
                ready.countDown();
                while (!isOver) {
                    consumer.poll(Duration.ofMillis(200)).forEach(take);
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private String topic(JSONObject scenario, int receiver) {
        switch (scenario.getString("shape")) {
            case "broadcast":
                return "all-" + run;
            case "many_to_one":
                return "agent-0-" + run;
            default:
                return "agent-" + receiver + "-" + run;
        }
    }

    private void create(String role, List<String> topics) throws Exception {
        try (Admin admin = Admin.create(common(role))) {
            List<NewTopic> made = new ArrayList<>();
            for (String topic : topics) {
                made.add(new NewTopic(topic, 1, (short) 1));
            }
            admin.createTopics(made).all().get(60, TimeUnit.SECONDS);
        }
    }

    @Override
    public List<Sender> connect(JSONObject order, Receiver receiver) throws Exception {
        JSONObject scenario = order.getJSONObject("scenario");
        settings = order.getJSONObject("system");
        boolean isStream = scenario.getString("kind").equals("stream");
        int receivers = scenario.getInt("receivers");
        List<Sender> senders = new ArrayList<>();
        String role = order.getString("role");
        if (role.equals("receive")) {
            run = order.getString("run");
            List<String> topics = new ArrayList<>();
            for (int number = 0; number < receivers; number++) {
                String topic = topic(scenario, number);
                if (!topics.contains(topic)) {
                    topics.add(topic);
                }
            }
            for (int number = 0; !isStream && number < scenario.getInt("senders"); number++) {
                topics.add("answers-" + number + "-" + run);
            }
            create(role, topics);
            CountDownLatch ready = new CountDownLatch(receivers);
            for (int number = 0; number < receivers; number++) {
                int own = number;
                String topic = topic(scenario, number);
                KafkaProducer<byte[], byte[]> answers = isStream ? null : producer(role);
                read(role, topic, ready, record -> {
                    if (isStream) {
                        receiver.got(own, record.value());
                    } else {
                        // The key says where the answer goes.
                        String back = new String(record.key(), StandardCharsets.US_ASCII);
                        answers.send(new ProducerRecord<>(back, record.value()));
                        receiver.answered();
                    }
                });
            }
            await(ready);
            return senders;
        }
        run = order.getJSONObject("there").getString("run");
        CountDownLatch ready = new CountDownLatch(isStream ? 0 : scenario.getInt("senders"));
        for (int number = 0; number < scenario.getInt("senders"); number++) {
            String topic = topic(scenario, number);
            String answers = "answers-" + number + "-" + run;
            Speaker speaker = new Speaker(producer(role), topic, answers);
            if (!isStream) {
                read(role, answers, ready, record -> speaker.answers.add(record.value()));
            }
            senders.add(speaker);
        }
        await(ready);
        return senders;
    }

    private static void await(CountDownLatch ready) throws Exception {
        if (!ready.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the consumers are not assigned after 60 s");
        }
    }

    @Override
    public void leave() {
        isOver = true;
        producers.forEach(KafkaProducer::close);
    }

    private static final class Speaker implements Sender {
        private final KafkaProducer<byte[], byte[]> producer;
        private final String topic;
        private final java.util.concurrent.BlockingQueue<byte[]> answers = new java.util.concurrent.LinkedBlockingQueue<>();

        private final byte[] back;

        Speaker(KafkaProducer<byte[], byte[]> producer, String topic, String back) {
            this.producer = producer;
            this.topic = topic;
            this.back = back.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public void send(byte[] content) {
            producer.send(new ProducerRecord<>(topic, content));
        }

        @Override
        public byte[] ask(byte[] content) throws Exception {
            producer.send(new ProducerRecord<>(topic, back, content));
            byte[] answer = answers.poll(20, TimeUnit.SECONDS);
            return answer == null ? new byte[0] : answer;
        }
    }
}

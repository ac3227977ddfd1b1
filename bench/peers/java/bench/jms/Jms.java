package bench.jms;

import bench.Peer;
import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;
import org.json.JSONObject;

/** JMS as Artemis offers it: a topic that all hear, or a queue for each receiver; messages are not kept. */
public final class Jms implements Peer {
    private ActiveMQConnectionFactory factory;
    private String run;
    private final List<Connection> connections = new ArrayList<>();

    @Override
    public String client() {
        return "Artemis JMS client " + ActiveMQConnectionFactory.class.getPackage().getImplementationVersion();
    }

    @Override
    public Object here() {
        return new JSONObject().put("run", run);
    }

    private Session session() throws JMSException {
        Connection connection = factory.createConnection();
        connections.add(connection);
        connection.start();
        return connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
    }

    private Destination destination(Session session, boolean isTopic, int receiver) throws JMSException {
        return isTopic ? session.createTopic("topic-" + run) : session.createQueue("queue-" + receiver + "-" + run);
    }

    @Override
    public List<Sender> connect(JSONObject order, Receiver receiver) throws Exception {
        JSONObject scenario = order.getJSONObject("scenario");
        JSONObject settings = order.getJSONObject("system");
        boolean isTopic = settings.getString("domain").equals("topic");
        boolean isBroadcast = scenario.getString("shape").equals("broadcast");
        if (isBroadcast && !isTopic && scenario.getInt("receivers") != 1) {
            throw new IllegalArgumentException("a queue has one receiver");
        }
        String role = order.getString("role");
        JSONObject there = order.optJSONObject("there");
        run = there == null ? order.getString("run") : there.getString("run");
        factory = new ActiveMQConnectionFactory(settings.getString(role.equals("send") ? "send_url" : "receive_url"));
        factory.setUser("bench").setPassword("bench");
        factory.setBlockOnNonDurableSend(false);
        List<Sender> senders = new ArrayList<>();
        if (role.equals("receive")) {
            for (int number = 0; number < scenario.getInt("receivers"); number++) {
                int own = number;
                Session session = session();
                session.createConsumer(destination(session, isTopic, number))
                        .setMessageListener(message -> receiver.got(own, content(message)));
            }
            return senders;
        }
        for (int number = 0; number < scenario.getInt("senders"); number++) {
            int target = scenario.getString("shape").equals("one_to_one") ? number : 0;
            Session session = session();
            senders.add(new Speaker(session, session.createProducer(destination(session, isTopic, target))));
        }
        return senders;
    }

    private static byte[] content(Message message) {
        try {
            return message.getBody(byte[].class);
        } catch (JMSException error) {
            // Counted as damaged.
            return new byte[0];
        }
    }

    @Override
    public void leave() throws JMSException {
        for (Connection connection : connections) {
            connection.close();
        }
    }

    private static final class Speaker implements Sender {
        private final Session session;
        private final MessageProducer producer;

        Speaker(Session session, MessageProducer producer) throws JMSException {
            this.session = session;
            this.producer = producer;
            // For speed, as the client's documentation advises, without data that nobody reads.
            producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
            producer.setDisableMessageID(true);
            producer.setDisableMessageTimestamp(true);
        }

        @Override
        public void send(byte[] content) throws JMSException {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(content);
            producer.send(message);
        }

        @Override
        public byte[] ask(byte[] content) {
            throw new UnsupportedOperationException("round trips are played by the core client");
        }
    }
}

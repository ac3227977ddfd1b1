package bench.artemis;

import bench.Peer;
import java.util.ArrayList;
import java.util.List;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientConsumer;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientProducer;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;
import org.json.JSONObject;

/** Artemis through its core client: an anycast queue for each agent, a multicast address for a broadcast; messages are not kept. */
public final class Artemis implements Peer {
    private ServerLocator locator;
    private String run;
    private final List<ClientSessionFactory> factories = new ArrayList<>();

    @Override
    public String client() {
        return "Artemis core client " + ServerLocator.class.getPackage().getImplementationVersion();
    }

    @Override
    public Object here() {
        return new JSONObject().put("run", run);
    }

    private ClientSession session() throws Exception {
        ClientSessionFactory factory = locator.createSessionFactory();
        factories.add(factory);
        // A message counts as acknowledged when the server has sent it. This is the server's fastest mode.
        return factory.createSession("bench", "bench", false, true, true, true, 0);
    }

    @Override
    public List<Sender> connect(JSONObject order, Receiver receiver) throws Exception {
        JSONObject scenario = order.getJSONObject("scenario");
        JSONObject settings = order.getJSONObject("system");
        String role = order.getString("role");
        boolean isBroadcast = scenario.getString("shape").equals("broadcast");
        boolean isStream = scenario.getString("kind").equals("stream");
        // The broker serves one run after the other.
        JSONObject there = order.optJSONObject("there");
        run = there == null ? order.getString("run") : there.getString("run");
        locator = ActiveMQClient.createServerLocator(settings.getString(role.equals("send") ? "send_url" : "receive_url"));
        locator.setBlockOnNonDurableSend(false)
                .setConfirmationWindowSize(-1)
                .setPreAcknowledge(true)
                .setProducerWindowSize(1 << 20)
                .setConsumerWindowSize(1 << 20);
        List<Sender> senders = new ArrayList<>();
        if (role.equals("receive")) {
            for (int number = 0; number < scenario.getInt("receivers"); number++) {
                listen(number, isBroadcast, isStream, receiver);
            }
            return senders;
        }
        for (int number = 0; number < scenario.getInt("senders"); number++) {
            int target = scenario.getString("shape").equals("many_to_one") ? 0 : number;
            String address = isBroadcast ? "topic-" + run : "agent-" + target + "-" + run;
            senders.add(new Speaker(session(), address, "answers-" + number + "-" + run, isStream));
        }
        return senders;
    }

    private void listen(int number, boolean isBroadcast, boolean isStream, Receiver receiver) throws Exception {
        ClientSession session = session();
        String queue = (isBroadcast ? "subscriber-" : "agent-") + number + "-" + run;
        QueueConfiguration configuration = QueueConfiguration.of(queue)
                .setAddress(isBroadcast ? "topic-" + run : queue)
                .setRoutingType(isBroadcast ? RoutingType.MULTICAST : RoutingType.ANYCAST)
                .setDurable(false);
        session.createQueue(configuration);
        ClientProducer answers = isStream ? null : session.createProducer();
        ClientConsumer consumer = session.createConsumer(queue);
        consumer.setMessageHandler(message -> {
            byte[] content = content(message);
            if (isStream) {
                receiver.got(number, content);
                return;
            }
            try {
                ClientMessage reply = session.createMessage(false);
                reply.getBodyBuffer().writeBytes(content);
                answers.send(message.getStringProperty("answer"), reply);
                receiver.answered();
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        session.start();
    }

    private static byte[] content(ClientMessage message) {
        byte[] content = new byte[message.getBodyBuffer().readableBytes()];
        message.getBodyBuffer().readBytes(content);
        return content;
    }

    @Override
    public void leave() {
        locator.close();
    }

    private static final class Speaker implements Sender {
        private final ClientSession session;
        private final ClientProducer producer;
        private final String answers;
        private ClientConsumer consumer;

        Speaker(ClientSession session, String address, String answers, boolean isStream) throws Exception {
            this.session = session;
            producer = session.createProducer(address);
            this.answers = answers;
            if (!isStream) {
                session.createQueue(QueueConfiguration.of(answers)
                        .setAddress(answers)
                        .setRoutingType(RoutingType.ANYCAST)
                        .setDurable(false));
                consumer = session.createConsumer(answers);
                session.start();
            }
        }

        @Override
        public void send(byte[] content) throws Exception {
            ClientMessage message = session.createMessage(false);
            message.getBodyBuffer().writeBytes(content);
            producer.send(message);
        }

        @Override
        public byte[] ask(byte[] content) throws Exception {
            ClientMessage message = session.createMessage(false);
            message.putStringProperty("answer", answers);
            message.getBodyBuffer().writeBytes(content);
            producer.send(message);
            ClientMessage answer = consumer.receive(20_000);
            return answer == null ? new byte[0] : content(answer);
        }
    }
}

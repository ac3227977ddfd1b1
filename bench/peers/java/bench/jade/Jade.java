package bench.jade;

import bench.Peer;
import jade.core.AID;
import jade.core.Agent;
import jade.core.Profile;
import jade.core.ProfileImpl;
import jade.core.Runtime;
import jade.core.behaviours.CyclicBehaviour;
import jade.lang.acl.ACLMessage;
import jade.wrapper.AgentContainer;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.json.JSONObject;

/**
 * JADE agents in one container, or in two: the receivers' is the main container, the senders' joins it. Over HTTP
 * or IIOP each side is a platform of its own.
 */
public final class Jade implements Peer {
    private AgentContainer container;
    /** One of the agents of this side. */
    private Agent anyone;
    private int port;
    /** The address at which others reach this platform. */
    private String address;
    private String platform;

    @Override
    public String client() {
        return "JADE " + jade.core.Runtime.getVersion();
    }

    @Override
    public Object here() {
        return new JSONObject().put("port", port).put("address", address).put("platform", platform);
    }

    @Override
    public List<Sender> connect(JSONObject order, Receiver receiver) throws Exception {
        JSONObject scenario = order.getJSONObject("scenario");
        JSONObject settings = order.getJSONObject("system");
        String role = order.getString("role");
        String way = settings.optString("way");
        boolean isPlatform = way.equals("http") || way.equals("iiop");
        boolean isMain = isPlatform || !role.equals("send");
        port = isMain ? freePort() : order.getJSONObject("there").getInt("port");
        if (way.equals("http")) {
            address = "http://127.0.0.1:" + freePort() + "/acc";
        }
        platform = !isPlatform ? "bench" : role.equals("send") ? "senders" : "receivers";
        container = open(isMain, order.getString("folder"), settings);
        List<Sender> senders = new ArrayList<>();
        boolean isStream = scenario.getString("kind").equals("stream");
        if (!role.equals("send")) {
            int receivers = scenario.getInt("receivers");
            CountDownLatch ready = new CountDownLatch(receivers);
            for (int number = 0; number < receivers; number++) {
                start("receiver-" + number, new Listener(number, isStream, receiver, ready));
            }
            await(ready);
        }
        if (!role.equals("receive")) {
            int number = scenario.getInt("senders");
            CountDownLatch ready = new CountDownLatch(number);
            for (int sender = 0; sender < number; sender++) {
                Speaker speaker = new Speaker(receivers(scenario, sender, isPlatform ? order.getJSONObject("there") : null), ready);
                start("sender-" + sender, speaker);
                senders.add(speaker);
            }
            await(ready);
        }
        if (way.equals("iiop")) {
            // The object's reference, which every agent of the platform bears.
            address = anyone.getAID().getAddressesArray()[0];
        }
        return senders;
    }

    private AgentContainer open(boolean isMain, String folder, JSONObject settings) {
        ProfileImpl profile = new ProfileImpl(isMain);
        profile.setParameter(Profile.MAIN_HOST, "127.0.0.1");
        profile.setParameter(Profile.MAIN_PORT, Integer.toString(port));
        profile.setParameter(Profile.LOCAL_HOST, "127.0.0.1");
        profile.setParameter(Profile.LOCAL_PORT, Integer.toString(isMain ? port : freePort()));
        profile.setParameter(Profile.PLATFORM_ID, platform);
        if (settings.optString("way").equals("iiop")) {
            profile.setParameter(Profile.MTPS, "jade.mtp.iiop.MessageTransportProtocol");
        } else if (address == null) {
            profile.setParameter(Profile.NO_MTP, "true");
        } else {
            profile.setParameter(Profile.MTPS, "jade.mtp.http.MessageTransportProtocol(" + address + ")");
        }
        // JADE writes a description of itself.
        profile.setParameter(Profile.FILE_DIR, folder + "/");
        profile.setParameter("jade_imtp_leap_JICP_JICPServer_acceptlocalhostonly", "true");
        // Messages that wait to be delivered may take this much memory; by default, 100 MB.
        profile.setParameter("jade_core_messaging_MessageManager_maxqueuesize", "500000000");
        switch (settings.optString("way", "jicp")) {
            case "tls":
                profile.setParameter("icps", "jade.imtp.leap.JICP.JICPSPeer");
                break;
            case "sealbus":
                profile.setParameter("icps", "org.sealbus.jade.SealbusICP");
                profile.setParameter("sealbus_ticket", ticket(settings, isMain));
                break;
            case "rmi":
                profile.setParameter(Profile.IMTP, Profile.RMI_IMTP);
                break;
            default:
                break;
        }
        Runtime runtime = Runtime.instance();
        return isMain ? runtime.createMainContainer(profile) : runtime.createAgentContainer(profile);
    }

    /** A ticket of the Sealbus platform for this container. */
    private static String ticket(JSONObject settings, boolean isMain) {
        String name = "jade-" + (isMain ? "main-" : "other-") + ProcessHandle.current().pid() + "-" + System.nanoTime();
        try {
            Process command = new ProcessBuilder(settings.getString("binary"), "ticket", name, "--json",
                    "--state", settings.getString("state")).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            return new JSONObject(new String(command.getInputStream().readAllBytes(), StandardCharsets.UTF_8))
                    .getString("ticket");
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static int freePort() {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private void start(String name, Agent agent) throws Exception {
        if (container == null) {
            throw new IllegalStateException("the container did not start");
        }
        anyone = agent;
        container.acceptNewAgent(name, agent).start();
    }

    private static void await(CountDownLatch ready) throws Exception {
        if (!ready.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the agents did not start");
        }
    }

    /** The receivers of a sender, on the platform of the other side if it has one. */
    private static List<AID> receivers(JSONObject scenario, int sender, JSONObject there) {
        List<AID> receivers = new ArrayList<>();
        switch (scenario.getString("shape")) {
            case "one_to_one":
                receivers.add(receiver(sender, there));
                break;
            case "many_to_one":
                receivers.add(receiver(0, there));
                break;
            default:
                for (int number = 0; number < scenario.getInt("receivers"); number++) {
                    receivers.add(receiver(number, there));
                }
        }
        return receivers;
    }

    private static AID receiver(int number, JSONObject there) {
        if (there == null) {
            return new AID("receiver-" + number, AID.ISLOCALNAME);
        }
        AID receiver = new AID("receiver-" + number + "@" + there.getString("platform"), AID.ISGUID);
        receiver.addAddresses(there.getString("address"));
        return receiver;
    }

    @Override
    public void leave() throws Exception {
        container.kill();
    }

    private static byte[] content(ACLMessage message) {
        String content = message.getContent();
        return content == null ? new byte[0] : content.getBytes(StandardCharsets.ISO_8859_1);
    }

    /** Counts or answers. */
    private static final class Listener extends Agent {
        private final int number;
        private final boolean isStream;
        private final transient Receiver receiver;
        private final transient CountDownLatch ready;

        Listener(int number, boolean isStream, Receiver receiver, CountDownLatch ready) {
            this.number = number;
            this.isStream = isStream;
            this.receiver = receiver;
            this.ready = ready;
        }

        @Override
        protected void setup() {
            // No limit: waiting messages are kept, as the other systems keep them.
            setQueueSize(0);
            addBehaviour(new CyclicBehaviour(this) {
                @Override
                public void action() {
                    ACLMessage message = receive();
                    if (message == null) {
                        block();
                    } else if (isStream) {
                        receiver.got(number, content(message));
                    } else if (message.getPerformative() == ACLMessage.INFORM) {
                        ACLMessage reply = message.createReply();
                        reply.setPerformative(ACLMessage.INFORM);
                        reply.setContent(message.getContent());
                        send(reply);
                        receiver.answered();
                    }
                }
            });
            ready.countDown();
        }
    }

    /** Plays rounds on its agent's own thread. */
    private static final class Speaker extends Agent implements Sender {
        private final transient List<AID> receivers;
        private final transient CountDownLatch ready;
        private final transient BlockingQueue<Runnable> rounds = new LinkedBlockingQueue<>();

        Speaker(List<AID> receivers, CountDownLatch ready) {
            this.receivers = receivers;
            this.ready = ready;
        }

        @Override
        protected void setup() {
            addBehaviour(new CyclicBehaviour(this) {
                @Override
                public void action() {
                    try {
                        rounds.take().run();
                    } catch (InterruptedException end) {
                        doDelete();
                    }
                }
            });
            ready.countDown();
        }

        @Override
        public void play(Runnable round) {
            rounds.add(round);
        }

        @Override
        public void send(byte[] content) {
            ACLMessage message = new ACLMessage(ACLMessage.INFORM);
            for (AID receiver : receivers) {
                message.addReceiver(receiver);
            }
            message.setContent(new String(content, StandardCharsets.ISO_8859_1));
            send(message);
        }

        @Override
        public byte[] ask(byte[] content) {
            send(content);
            ACLMessage answer = blockingReceive(20_000);
            return answer == null ? new byte[0] : content(answer);
        }
    }
}

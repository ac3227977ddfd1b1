package bench.corba;

import bench.Peer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.json.JSONObject;
import org.omg.CORBA.IntHolder;
import org.omg.CORBA.ORB;
import org.omg.CORBA.OctetSeqHelper;
import org.omg.CosEventChannelAdmin.EventChannelHelper;
import org.omg.CosEventComm.PushConsumerHelper;
import org.omg.CosEventComm.PushConsumerPOA;
import org.omg.CosEventComm.PushSupplierHelper;
import org.omg.CosEventComm.PushSupplierPOA;
import org.omg.CosNotification.EventHeader;
import org.omg.CosNotification.EventType;
import org.omg.CosNotification.FixedEventHeader;
import org.omg.CosNotification.Property;
import org.omg.CosNotification.StructuredEvent;
import org.omg.CosNotification.FifoOrder;
import org.omg.CosNotification.MaxEventsPerConsumer;
import org.omg.CosNotification.OrderPolicy;
import org.omg.CosNotifyChannelAdmin.ClientType;
import org.omg.CosNotifyChannelAdmin.EventChannel;
import org.omg.CosNotifyChannelAdmin.EventChannelFactory;
import org.omg.CosNotifyChannelAdmin.EventChannelFactoryHelper;
import org.omg.CosNotifyChannelAdmin.StructuredProxyPushConsumerHelper;
import org.omg.CosNotifyChannelAdmin.StructuredProxyPushSupplierHelper;
import org.omg.CosNotifyComm.StructuredPushConsumerHelper;
import org.omg.CosNotifyComm.StructuredPushConsumerPOA;
import org.omg.CosNotifyComm.StructuredPushSupplierHelper;
import org.omg.CosNotifyComm.StructuredPushSupplierPOA;
import org.omg.PortableServer.POA;
import org.omg.PortableServer.POAHelper;

/** The CORBA Event Service and Notification Service of JacORB, push model: a channel that all suppliers push to and all consumers hear. */
public final class Corba implements Peer {
    private static final Property[] NONE = {};
    private ORB orb;
    private POA poa;
    /** The reference of the channel. */
    private String reference;
    private final List<Runnable> farewells = new ArrayList<>();

    @Override
    public String client() {
        return "JacORB " + org.jacorb.util.Version.version;
    }

    @Override
    public Object here() {
        return reference;
    }

    /** A channel of the Notification Service that keeps every event, in order. */
    private EventChannel create(EventChannelFactory factory) throws Exception {
        org.omg.CORBA.Any fifo = orb.create_any();
        fifo.insert_short(FifoOrder.value);
        org.omg.CORBA.Any most = orb.create_any();
        most.insert_long(Integer.MAX_VALUE);
        Property[] quality = {new Property(OrderPolicy.value, fifo), new Property(MaxEventsPerConsumer.value, most)};
        EventChannel channel = factory.create_channel(quality, NONE, new IntHolder());
        farewells.add(channel::destroy);
        return channel;
    }

    /** An ORB that listens on the loopback interface. */
    static ORB open() {
        Properties properties = new Properties();
        properties.put("org.omg.CORBA.ORBClass", "org.jacorb.orb.ORB");
        properties.put("org.omg.CORBA.ORBSingletonClass", "org.jacorb.orb.ORBSingleton");
        properties.put("OAIAddr", "127.0.0.1");
        properties.put("jacorb.net.tcp_nodelay", "true");
        properties.put("jacorb.log.default.verbosity", "1");
        properties.putAll(System.getProperties());
        return ORB.init(new String[0], properties);
    }

    static POA root(ORB orb) throws Exception {
        POA poa = POAHelper.narrow(orb.resolve_initial_references("RootPOA"));
        poa.the_POAManager().activate();
        return poa;
    }

    @Override
    public List<Sender> connect(JSONObject order, Receiver receiver) throws Exception {
        JSONObject scenario = order.getJSONObject("scenario");
        JSONObject settings = order.getJSONObject("system");
        if (!scenario.getString("kind").equals("stream") || !scenario.getString("shape").equals("broadcast")) {
            throw new IllegalArgumentException("an event channel knows events only");
        }
        orb = open();
        poa = root(orb);
        boolean isNotification = settings.getString("service").equals("notification");
        boolean isReceiver = order.getString("role").equals("receive");
        reference = isReceiver ? settings.getString("reference") : order.getString("there");
        org.omg.CORBA.Object channel = orb.string_to_object(reference);
        if (isReceiver && isNotification) {
            channel = create(EventChannelFactoryHelper.narrow(channel));
            reference = orb.object_to_string(channel);
        }
        List<Sender> senders = new ArrayList<>();
        if (isReceiver) {
            for (int number = 0; number < scenario.getInt("receivers"); number++) {
                if (isNotification) {
                    hearNotifications(channel, number, receiver);
                } else {
                    hearEvents(channel, number, receiver);
                }
            }
            return senders;
        }
        for (int number = 0; number < scenario.getInt("senders"); number++) {
            senders.add(isNotification ? notifier(channel) : pusher(channel));
        }
        return senders;
    }

    private void hearEvents(org.omg.CORBA.Object channel, int number, Receiver receiver) throws Exception {
        PushConsumerPOA consumer = new PushConsumerPOA() {
            @Override
            public void push(org.omg.CORBA.Any event) {
                receiver.got(number, bytes(event));
            }

            @Override
            public void disconnect_push_consumer() {}
        };
        var proxy = EventChannelHelper.narrow(channel).for_consumers().obtain_push_supplier();
        proxy.connect_push_consumer(PushConsumerHelper.narrow(poa.servant_to_reference(consumer)));
        farewells.add(proxy::disconnect_push_supplier);
    }

    private Sender pusher(org.omg.CORBA.Object channel) throws Exception {
        var proxy = EventChannelHelper.narrow(channel).for_suppliers().obtain_push_consumer();
        PushSupplierPOA supplier = new PushSupplierPOA() {
            @Override
            public void disconnect_push_supplier() {}
        };
        proxy.connect_push_supplier(PushSupplierHelper.narrow(poa.servant_to_reference(supplier)));
        farewells.add(proxy::disconnect_push_consumer);
        return (Speaker) content -> proxy.push(any(content));
    }

    private void hearNotifications(org.omg.CORBA.Object channel, int number, Receiver receiver) throws Exception {
        StructuredPushConsumerPOA consumer = new StructuredPushConsumerPOA() {
            @Override
            public void push_structured_event(StructuredEvent event) {
                receiver.got(number, bytes(event.remainder_of_body));
            }

            @Override
            public void disconnect_structured_push_consumer() {}

            @Override
            public void offer_change(EventType[] added, EventType[] removed) {}
        };
        var admin = org.omg.CosNotifyChannelAdmin.EventChannelHelper.narrow(channel).default_consumer_admin();
        var proxy = StructuredProxyPushSupplierHelper.narrow(
                admin.obtain_notification_push_supplier(ClientType.STRUCTURED_EVENT, new IntHolder()));
        proxy.connect_structured_push_consumer(StructuredPushConsumerHelper.narrow(poa.servant_to_reference(consumer)));
        farewells.add(proxy::disconnect_structured_push_supplier);
    }

    private Sender notifier(org.omg.CORBA.Object channel) throws Exception {
        var admin = org.omg.CosNotifyChannelAdmin.EventChannelHelper.narrow(channel).default_supplier_admin();
        var proxy = StructuredProxyPushConsumerHelper.narrow(
                admin.obtain_notification_push_consumer(ClientType.STRUCTURED_EVENT, new IntHolder()));
        StructuredPushSupplierPOA supplier = new StructuredPushSupplierPOA() {
            @Override
            public void disconnect_structured_push_supplier() {}

            @Override
            public void subscription_change(EventType[] added, EventType[] removed) {}
        };
        proxy.connect_structured_push_supplier(StructuredPushSupplierHelper.narrow(poa.servant_to_reference(supplier)));
        farewells.add(proxy::disconnect_structured_push_consumer);
        EventHeader header = new EventHeader(new FixedEventHeader(new EventType("FIPA", "ACL"), ""), NONE);
        return (Speaker) content -> proxy.push_structured_event(new StructuredEvent(header, NONE, any(content)));
    }

    private org.omg.CORBA.Any any(byte[] content) {
        org.omg.CORBA.Any any = orb.create_any();
        OctetSeqHelper.insert(any, content);
        return any;
    }

    private static byte[] bytes(org.omg.CORBA.Any any) {
        return OctetSeqHelper.extract(any);
    }

    @Override
    public void leave() {
        // The newest connection is closed first.
        Collections.reverse(farewells);
        farewells.forEach(Runnable::run);
        orb.shutdown(false);
    }

    /** A supplier that pushes; the call returns when the channel has taken the event. */
    private interface Speaker extends Sender {
        @Override
        default byte[] ask(byte[] content) {
            throw new UnsupportedOperationException("an event has no answer");
        }
    }
}

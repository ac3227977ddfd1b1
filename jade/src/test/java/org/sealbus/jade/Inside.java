package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.core.ServiceException;
import jade.core.behaviours.CyclicBehaviour;
import jade.lang.acl.ACLMessage;
import jade.wrapper.ContainerController;
import jade.wrapper.StaleProxyException;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadPoolExecutor;

/**
 * Looks into its container, and does things there. A request has the name of what it wants and its words, each on a line of its own.
 * The answer repeats the name, with a number behind it. Everything else that the agent gets is printed.
 */
public class Inside extends Agent {
    private transient Mesh mesh;

    @Override
    protected void setup() {
        try {
            mesh = SealbusHelper.of(this).service().mesh();
        } catch (ServiceException missing) {
            throw new IllegalStateException(missing);
        }
        addBehaviour(new CyclicBehaviour(this) {
            @Override
            public void action() {
                ACLMessage message = receive();
                if (message == null) {
                    block();
                } else if (message.getPerformative() == ACLMessage.REQUEST) {
                    answer(message);
                } else {
                    System.out.println(getLocalName() + " got " + ACLMessage.getPerformative(message.getPerformative()) + " from "
                            + message.getSender().getName() + ": " + message.getContent());
                }
            }
        });
        System.out.println(getLocalName() + " waits for orders");
    }

    private void answer(ACLMessage order) {
        String[] words = order.getContent().split("\n");
        ACLMessage reply = order.createReply();
        reply.setPerformative(ACLMessage.INFORM);
        try {
            reply.setContent(words[0] + ": " + number(words) + ".");
        } catch (ReflectiveOperationException | InterruptedException | StaleProxyException failed) {
            reply.setContent(words[0] + " failed: " + failed);
        }
        System.out.println(getLocalName() + " says " + reply.getContent());
        send(reply);
    }

    private long number(String[] words) throws ReflectiveOperationException, InterruptedException, StaleProxyException {
        return switch (words[0]) {
            case "threads" -> Thread.getAllStackTraces().keySet().stream().filter(one -> one.getName().equals(words[1])).count();
            case "links" -> links();
            case "idle" -> idle();
            case "notes" -> notes();
            case "crowd" -> crowd();
            case "write" -> write(words[1], words[2], words.length > 4 ? words[3].repeat(Integer.parseInt(words[4])) : words[3]);
            case "start" -> start(words[1], words[2]);
            case "end" -> end();
            default -> throw new IllegalArgumentException("no order: " + words[0]);
        };
    }

    /** The processes to which there are links. */
    private long links() {
        synchronized (mesh) {
            return mesh.links().size();
        }
    }

    /** The addresses of containers to which connections wait for another command. */
    private static long idle() throws ReflectiveOperationException {
        Field joined = SealbusICP.class.getDeclaredField("JOINED");
        joined.setAccessible(true);
        Object container = ((Map<?, ?>) joined.get(null)).values().iterator().next();
        return ((Map<?, ?>) field(container, "idle")).size();
    }

    private static Object field(Object of, String name) throws ReflectiveOperationException {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    /** The tasks that are left behind when two nodes that are not there were to be told what a durable subscription has read. */
    @SuppressWarnings("unchecked")
    private long notes() throws ReflectiveOperationException {
        ChannelSubscription subscription = new ChannelSubscription(mesh, 1_000_000, getLocalName(), "/diary",
                SubscriptionOptions.EVENTS.durable("my place"));
        LogFeed feed = new LogFeed(mesh, mesh.channels.logs, subscription);
        Map<String, Map<String, Object>> places = (Map<String, Map<String, Object>>) field(feed, "places");
        Constructor<?> made = Class.forName(LogFeed.class.getName() + "$Place").getDeclaredConstructor();
        made.setAccessible(true);
        for (String node : List.of("node-8", "node-9")) {
            Object place = made.newInstance();
            Field next = place.getClass().getDeclaredField("next");
            next.setAccessible(true);
            next.setLong(place, 5);
            places.put(node, new HashMap<>(Map.of("/diary", place)));
        }
        Method note = LogFeed.class.getDeclaredMethod("note");
        note.setAccessible(true);
        note.invoke(feed);
        return ((ThreadPoolExecutor) field(mesh, "asker")).getQueue().size();
    }

    /** Writes to more agents than can be looked up at once. 1: other work of the mesh goes on before a look-up has ended. */
    private long crowd() throws ReflectiveOperationException, InterruptedException {
        ThreadPoolExecutor asker = (ThreadPoolExecutor) field(mesh, "asker");
        for (int i = 0; i < 2 * asker.getCorePoolSize(); i++) {
            write("nobody-" + i + "@factory", "REQUEST", "hello");
        }
        while (asker.getActiveCount() < asker.getCorePoolSize()) {
            Thread.sleep(5);
        }
        long ended = asker.getCompletedTaskCount();
        CountDownLatch done = new CountDownLatch(1);
        mesh.later(done::countDown, 0);
        done.await();
        return asker.getCompletedTaskCount() == ended ? 1 : 0;
    }

    private long write(String receiver, String act, String text) {
        ACLMessage message = new ACLMessage(ACLMessage.getInteger(act));
        message.addReceiver(new AID(receiver, AID.ISGUID));
        message.setContent(text);
        send(message);
        return 1;
    }

    /** Starts an agent once the node is away. */
    private long start(String name, String type) throws InterruptedException, StaleProxyException {
        try {
            mesh.membership.ask(Map.of("ask", "nodes"));
            System.out.println(getLocalName() + " watches the node");
            while (true) {
                mesh.membership.ask(Map.of("ask", "nodes"));
                Thread.sleep(5);
            }
        } catch (IOException away) {
            getContainerController().createNewAgent(name, type, null).start();
        }
        return 1;
    }

    /** Ends the container. The agent ends with it, so another thread waits for that. */
    private long end() {
        ContainerController container = getContainerController();
        new Thread(() -> {
            try {
                container.kill();
            } catch (StaleProxyException gone) {
                throw new IllegalStateException(gone);
            }
        }).start();
        return 1;
    }
}

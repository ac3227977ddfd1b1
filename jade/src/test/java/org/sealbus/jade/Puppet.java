package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.core.ServiceException;
import jade.core.behaviours.CyclicBehaviour;
import jade.lang.acl.ACLMessage;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Does with channels what requests tell it, a word on each line, and answers how it went. It prints the events that it hears, and
 * answers questions. An event whose text begins with {@code hold} is handled only when it is told so.
 */
public class Puppet extends Agent {
    private final transient Map<String, ChannelSubscription> subscriptions = new LinkedHashMap<>();
    private final transient List<ACLMessage> held = new ArrayList<>();
    private transient SealbusHelper sealbus;

    @Override
    protected void setup() {
        try {
            sealbus = SealbusHelper.of(this);
        } catch (ServiceException none) {
            System.out.println(getLocalName() + " has no helper: " + none);
        }
        addBehaviour(new CyclicBehaviour(this) {
            @Override
            public void action() {
                ACLMessage message = receive();
                if (message == null) {
                    block();
                } else if (SealbusHelper.channel(message) != null) {
                    heard(message);
                } else if (message.getPerformative() == ACLMessage.REQUEST) {
                    obey(message);
                } else {
                    System.out.println(getLocalName() + " got " + ACLMessage.getPerformative(message.getPerformative()) + ": "
                            + message.getContent());
                }
            }
        });
        System.out.println(getLocalName() + " waits for orders");
    }

    private void heard(ACLMessage event) {
        String text = event.getContent();
        System.out.println(getLocalName() + " heard " + text.substring(0, Math.min(text.length(), 20)) + " on "
                + SealbusHelper.channel(event) + " from " + event.getSender().getName() + ", " + SealbusHelper.provenance(event)
                + (SealbusHelper.mayBeAgain(event) ? ", again" : ""));
        if (SealbusHelper.isQuestion(event)) {
            answer(event);
        } else if (text.startsWith("hold")) {
            held.add(event);
        } else {
            sealbus.handled(event);
        }
    }

    private void answer(ACLMessage question) {
        ACLMessage answer = question.createReply();
        answer.setPerformative(ACLMessage.PROPOSE);
        answer.setContent(question.getContent() + " of " + getLocalName());
        try {
            if (question.getContent().startsWith("silence")) {
                sealbus.decline(question);
            } else {
                boolean isFirst = sealbus.reply(question, answer);
                System.out.println(getLocalName() + " answered " + isFirst + ", " + sealbus.reply(question, answer));
            }
        } catch (SealbusHelper.NotPublished refused) {
            System.out.println(getLocalName() + " did not answer: " + refused.getMessage());
        }
    }

    private void obey(ACLMessage order) {
        ACLMessage reply = order.createReply();
        reply.setPerformative(ACLMessage.INFORM);
        try {
            reply.setContent(carryOut(order.getContent().split("\n")));
        } catch (SealbusHelper.NotPublished | IllegalArgumentException | IllegalStateException refused) {
            reply.setContent("refused: " + refused.getMessage());
        }
        System.out.println(getLocalName() + " says " + reply.getContent());
        send(reply);
    }

    private String carryOut(String[] words) throws SealbusHelper.NotPublished {
        switch (words[0]) {
            case "publish" -> {
                ACLMessage event = message(words, 3);
                for (int i = 4; i < words.length; i++) {
                    String[] property = words[i].split("=");
                    if (property[0].equals("sender")) {
                        event.setSender(new AID(property[1], AID.ISGUID));
                    } else {
                        event.addUserDefinedParameter("X-" + property[0], property[1]);
                    }
                }
                return "published " + words[3] + ": " + sealbus.publish(words[1], event, words[2]);
            }
            case "burst" -> {
                int count = Integer.parseInt(words[3]);
                for (int i = 0; i < count; i++) {
                    ACLMessage event = message(words, 4);
                    event.setContent(i + "." + words[4].repeat(Integer.parseInt(words[5])));
                    sealbus.publish(words[1], event, words[2]);
                }
                return "published " + count;
            }
            case "request" -> {
                SealbusHelper.Replies replies = sealbus.request(words[1], message(words, 5), words[2],
                        Duration.ofMillis(Long.parseLong(words[3])), Integer.parseInt(words[4]));
                List<String> answers = replies.answers().stream()
                        .map(one -> one.getContent() + " from " + one.getSender().getName() + " " + SealbusHelper.provenance(one))
                        .sorted().toList();
                return "answers " + answers + ", missing " + replies.missing();
            }
            case "subscribe" -> {
                SubscriptionOptions options = SubscriptionOptions.EVENTS;
                for (int i = 2; i < words.length; i++) {
                    options = with(options, words[i]);
                }
                subscriptions.put(words[1], sealbus.subscribe(words[1], options));
                return "subscribed to " + words[1];
            }
            case "close" -> {
                subscriptions.remove(words[1]).close();
                return "closed " + words[1];
            }
            case "handle" -> {
                sealbus.handled(held.remove(0));
                return "handled";
            }
            default -> throw new IllegalArgumentException("no order: " + words[0]);
        }
    }

    private static ACLMessage message(String[] words, int at) {
        ACLMessage message = new ACLMessage(ACLMessage.INFORM);
        message.setContent(words[at]);
        return message;
    }

    private static SubscriptionOptions with(SubscriptionOptions options, String word) {
        int equals = word.indexOf('=');
        String value = word.substring(equals + 1);
        return switch (equals < 0 ? word : word.substring(0, equals)) {
            case "filter" -> options.filter(value);
            case "group" -> options.group(value);
            case "prefetch" -> options.prefetch(Integer.parseInt(value));
            case "answering" -> options.answering();
            case "durable" -> options.durable(value);
            case "last" -> options.start(SubscriptionOptions.Start.last(Long.parseLong(value)));
            case "number" -> options.start(SubscriptionOptions.Start.number(Long.parseLong(value)));
            default -> throw new IllegalArgumentException("no option: " + word);
        };
    }
}

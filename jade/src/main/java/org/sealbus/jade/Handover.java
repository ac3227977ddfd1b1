package org.sealbus.jade;

import java.util.LinkedHashMap;
import java.util.Map;

/** Gives agents here what comes by channels from one place, at once or when it is valid. The mesh guards it. */
final class Handover {
    /** Most bytes of events that are not valid yet. */
    private static final long MOST_HELD = 8 << 20;

    static final String OVER_LIMIT = "over-limit";
    /** The agent has just ended, or is moving. */
    static final String ABSENT = "absent";

    /** Hears that bytes are held back, and, below 0, that they are not any more. */
    interface Holding {
        void change(long bytes);
    }

    private final Mesh mesh;
    private long held;

    Handover(Mesh mesh) {
        this.mesh = mesh;
    }

    /**
     * Gives an event to the agent of a subscription. Returns why it is refused, or null.
     *
     * @param sender  the whole name of the publisher, which is proved; null of a kept event, whose proof its node has seen
     * @param unread  hears whether the agent reads it, or handles it as a member of a group; null if nobody wants to know
     * @param holding null if it costs nobody's credit
     * @param asker   of a question; else null
     */
    String hand(Event event, String sender, ChannelSubscription subscription, Subscriptions.Outcome unread, Holding holding,
            Questions.Asker asker) {
        long early = event.head().validFrom() - System.currentTimeMillis();
        if (early <= 0) {
            return give(event, sender, subscription, unread, asker);
        }
        long cost = Letter.cost(event.body().length);
        if (held + cost > MOST_HELD) {
            if (event.isKept()) {
                return OVER_LIMIT;
            }
            lost(unread, asker);
            return null;
        }
        held += cost;
        if (holding != null) {
            holding.change(cost);
        }
        mesh.laterGuarded(() -> {
            held -= cost;
            if (mesh.channels.subscription(subscription.number()) == subscription) {
                give(event, sender, subscription, unread, asker);
            } else {
                lost(unread, asker);
            }
            if (holding != null) {
                holding.change(-cost);
            }
        }, early);
        return null;
    }

    private static void lost(Subscriptions.Outcome unread, Questions.Asker asker) {
        if (unread != null) {
            unread.settle(false);
        }
        if (asker != null) {
            asker.decline();
        }
    }

    private String give(Event event, String sender, ChannelSubscription subscription, Subscriptions.Outcome unread,
            Questions.Asker asker) {
        Head head = event.head();
        String agent = subscription.agent();
        if (head.isExpired(System.currentTimeMillis()) || !event.isKept() && !mesh.agents.hasRoom(agent)) {
            lost(unread, asker);
            return null;
        }
        Map<String, String> facts = new LinkedHashMap<>();
        facts.put(SealbusHelper.CHANNEL, head.channel());
        if (head.mayBeAgain()) {
            facts.put(Post.AGAIN, "true");
        }
        if (unread != null) {
            boolean isOfGroup = !subscription.options().group().isEmpty();
            facts.put(isOfGroup ? SealbusHelper.TASK : SealbusHelper.EVENT, mesh.channels.unread(subscription, unread));
        }
        if (asker != null) {
            String question = mesh.channels.questions.open(subscription, asker);
            if (question == null) {
                asker.decline();
                return null;
            }
            facts.put(SealbusHelper.QUESTION, question);
        }
        try {
            String author = sender == null ? BitEfficient.sender(event.body()) : sender;
            if (mesh.local(author) == null) {
                return "not-proved";
            }
            if (mesh.agents.deliver(agent, author, event.body(), facts)) {
                return null;
            }
            forget(agent, facts);
            if (sender == null) {
                // It stays in its log.
                return OVER_LIMIT;
            }
            lost(unread, asker);
            return event.isKept() && unread == null && asker == null ? ABSENT : null;
        } catch (Mesh.Refused refused) {
            forget(agent, facts);
            return refused.reason;
        } catch (BitEfficient.Malformed malformed) {
            forget(agent, facts);
            return "malformed";
        }
    }

    /** The agent has not got it after all. */
    private void forget(String agent, Map<String, String> facts) {
        mesh.channels.forgetUnread(facts.get(SealbusHelper.EVENT));
        mesh.channels.forgetUnread(facts.get(SealbusHelper.TASK));
        mesh.channels.questions.take(agent, facts.get(SealbusHelper.QUESTION));
    }
}

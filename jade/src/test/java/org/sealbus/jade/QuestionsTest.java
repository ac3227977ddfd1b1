package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jade.lang.acl.ACLMessage;
import org.junit.jupiter.api.Test;

/** Questions that agents here have got and do not answer, and answers to questions of agents here. */
class QuestionsTest {
    private static final int MOST = 65_536;

    private final Questions questions = new Questions(null);
    private final ChannelSubscription ear = new ChannelSubscription(null, 1, "ear", "/wanted/*", SubscriptionOptions.EVENTS.answering());

    /** One that asked long ago, or now, and waits for so long. */
    private static Questions.Asker asker(String expiry, long asked) {
        Head question = Head.of(Head.QUESTION, new Qos().with("expiry=" + expiry), "/wanted/tea", 1, asked, 1);
        return new Questions.Asker() {
            @Override
            public Head question() {
                return question;
            }

            @Override
            public boolean answer(String agent, Head head, byte[] body) {
                return false;
            }

            @Override
            public void decline() {}
        };
    }

    @Test
    void thoseThatAreOverMakeRoomWhereNoAgentPublishes() {
        Questions.Asker over = asker("1s", 0);
        for (int i = 0; i <= MOST; i++) {
            assertNotNull(questions.open(ear, over));
        }
    }

    @Test
    void thoseThatAreNotOverAreBounded() {
        Questions.Asker waiting = asker("1d", System.currentTimeMillis());
        for (int i = 0; i < MOST; i++) {
            assertNotNull(questions.open(ear, waiting));
        }
        assertNull(questions.open(ear, waiting));
    }

    @Test
    void answersToOneQuestionFillNoMemory() {
        Questions.Asking asking = questions.begin(asker("1d", System.currentTimeMillis()).question(), MOST);
        // The longest answer fits, if it is the first one.
        assertTrue(asking.hasRoom(100 << 20));
        for (int i = 0; i < 100; i++) {
            if (asking.hasRoom(1 << 20)) {
                asking.add(new ACLMessage(ACLMessage.INFORM), 1 << 20);
            }
        }
        assertEquals(64, asking.answers().size());
    }
}

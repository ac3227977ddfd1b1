import jade.core.Agent;
import jade.core.behaviours.CyclicBehaviour;
import jade.lang.acl.ACLMessage;

/** Answers every message with its content; "send N" is answered with N numbered messages. */
public class Partner extends Agent {
    @Override
    protected void setup() {
        addBehaviour(new CyclicBehaviour(this) {
            @Override
            public void action() {
                ACLMessage message = receive();
                if (message == null) {
                    block();
                } else if (message.getPerformative() != ACLMessage.FAILURE) {
                    answer(message);
                }
            }
        });
    }

    private void answer(ACLMessage message) {
        String content = message.getContent();
        int count = 1;
        boolean isOrder = content != null && content.startsWith("send ");
        if (isOrder) {
            count = Integer.parseInt(content.substring(5));
        }
        for (int number = 0; number < count; number++) {
            ACLMessage reply = message.createReply();
            reply.setPerformative(ACLMessage.INFORM);
            if (isOrder) {
                reply.setContent(String.valueOf(number));
            } else if (message.hasByteSequenceContent()) {
                reply.setByteSequenceContent(message.getByteSequenceContent());
            } else {
                reply.setContent(content);
            }
            send(reply);
        }
    }
}

import jade.content.ContentElement;
import jade.content.lang.sl.SLCodec;
import jade.content.onto.basic.Action;
import jade.core.Agent;
import jade.core.behaviours.CyclicBehaviour;
import jade.lang.acl.ACLMessage;

/**
 * Sells each book for twice its price, and says who owns it then. It reads the content of a query-if, and writes it again
 * as JADE writes it.
 */
public class Bookseller extends Agent {
    @Override
    protected void setup() {
        getContentManager().registerLanguage(new SLCodec());
        getContentManager().registerOntology(BookOntology.INSTANCE);
        addBehaviour(new CyclicBehaviour(this) {
            @Override
            public void action() {
                ACLMessage message = receive();
                if (message == null) {
                    block();
                } else if (message.getPerformative() != ACLMessage.FAILURE) {
                    send(answer(message));
                }
            }
        });
    }

    private ACLMessage answer(ACLMessage message) {
        ACLMessage reply = message.createReply();
        try {
            ContentElement said = getContentManager().extractContent(message);
            reply.setPerformative(ACLMessage.INFORM);
            if (message.getPerformative() == ACLMessage.REQUEST) {
                BookOntology.Sell sell = (BookOntology.Sell) ((Action) said).getAction();
                BookOntology.Owns owns = new BookOntology.Owns();
                owns.setOwner(sell.getBuyer());
                owns.setItem(sell.getItem());
                owns.getItem().setPrice(2 * owns.getItem().getPrice());
                said = owns;
            }
            getContentManager().fillContent(reply, said);
        } catch (Exception problem) {
            reply.setPerformative(ACLMessage.NOT_UNDERSTOOD);
            reply.setContent(problem.toString());
        }
        return reply;
    }
}

import jade.content.AgentAction;
import jade.content.Concept;
import jade.content.Predicate;
import jade.content.onto.BasicOntology;
import jade.content.onto.Ontology;
import jade.content.onto.OntologyException;
import jade.content.schema.AgentActionSchema;
import jade.content.schema.ConceptSchema;
import jade.content.schema.ObjectSchema;
import jade.content.schema.PredicateSchema;
import jade.content.schema.PrimitiveSchema;
import jade.core.AID;
import jade.util.leap.ArrayList;
import jade.util.leap.List;
import java.util.Date;

/** Books that are sold: the schema that the tests' Python and Rust classes have as well. */
public class BookOntology extends Ontology {
    public static final Ontology INSTANCE = new BookOntology();

    private BookOntology() {
        super("book-trading", BasicOntology.getInstance());
        try {
            PrimitiveSchema text = (PrimitiveSchema) getSchema(BasicOntology.STRING);
            ConceptSchema book = new ConceptSchema("Book");
            add(book, Book.class);
            book.add("title", text);
            book.add("price", (PrimitiveSchema) getSchema(BasicOntology.FLOAT));
            book.add("authors", text, 0, ObjectSchema.UNLIMITED);
            book.add("edition", (PrimitiveSchema) getSchema(BasicOntology.INTEGER), ObjectSchema.OPTIONAL);
            book.add("published", (PrimitiveSchema) getSchema(BasicOntology.DATE), ObjectSchema.OPTIONAL);
            book.add("signed", (PrimitiveSchema) getSchema(BasicOntology.BOOLEAN), ObjectSchema.OPTIONAL);
            ConceptSchema agent = (ConceptSchema) getSchema(BasicOntology.AID);
            AgentActionSchema sell = new AgentActionSchema("Sell");
            add(sell, Sell.class);
            sell.add("item", book);
            sell.add("buyer", agent);
            PredicateSchema owns = new PredicateSchema("Owns");
            add(owns, Owns.class);
            owns.add("owner", agent);
            owns.add("item", book);
        } catch (OntologyException problem) {
            throw new IllegalStateException(problem);
        }
    }

    public static class Book implements Concept {
        private String title;
        private double price;
        private List authors = new ArrayList();
        private Long edition;
        private Date published;
        private Boolean signed;

        public String getTitle() {
            return title;
        }

        public void setTitle(String title) {
            this.title = title;
        }

        public double getPrice() {
            return price;
        }

        public void setPrice(double price) {
            this.price = price;
        }

        public List getAuthors() {
            return authors;
        }

        public void setAuthors(List authors) {
            this.authors = authors;
        }

        public Long getEdition() {
            return edition;
        }

        public void setEdition(Long edition) {
            this.edition = edition;
        }

        public Date getPublished() {
            return published;
        }

        public void setPublished(Date published) {
            this.published = published;
        }

        public Boolean getSigned() {
            return signed;
        }

        public void setSigned(Boolean signed) {
            this.signed = signed;
        }
    }

    public static class Sell implements AgentAction {
        private Book item;
        private AID buyer;

        public Book getItem() {
            return item;
        }

        public void setItem(Book item) {
            this.item = item;
        }

        public AID getBuyer() {
            return buyer;
        }

        public void setBuyer(AID buyer) {
            this.buyer = buyer;
        }
    }

    public static class Owns implements Predicate {
        private AID owner;
        private Book item;

        public AID getOwner() {
            return owner;
        }

        public void setOwner(AID owner) {
            this.owner = owner;
        }

        public Book getItem() {
            return item;
        }

        public void setItem(Book item) {
            this.item = item;
        }
    }
}

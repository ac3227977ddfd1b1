package org.sealbus.jade;

import jade.core.AID;
import jade.domain.FIPANames;
import jade.lang.acl.ACLMessage;

/** The notice that a message did not arrive, in the form of JADE's AMS. */
final class Failure {
    private Failure() {}

    /** The notice of this author for the sender of a message to this receiver. */
    static ACLMessage of(ACLMessage lost, AID author, AID sender, String receiver, String why) {
        ACLMessage failure = lost.createReply();
        failure.clearAllReceiver();
        failure.addReceiver(sender);
        failure.setSender(author);
        failure.setPerformative(ACLMessage.FAILURE);
        failure.setLanguage(FIPANames.ContentLanguage.FIPA_SL);
        failure.setOntology("FIPA-Agent-Management");
        failure.setContent("((action " + sender + " (ACLMessage)) (internal-error \""
                + (receiver + ": " + why).replace("\"", "\\\"") + "\"))");
        return failure;
    }
}

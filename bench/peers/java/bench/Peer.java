package bench;

import java.util.List;
import org.json.JSONObject;

/** A measured system. */
public interface Peer {
    /** The client library and its version. */
    String client();

    /** Makes the agents of one side (role: send, receive, both), and returns those that send. */
    List<Sender> connect(JSONObject order, Receiver receiver) throws Exception;

    /** The details that the other side needs. */
    default Object here() {
        return JSONObject.NULL;
    }

    void leave() throws Exception;

    /** An agent that sends. */
    interface Sender {
        void send(byte[] content) throws Exception;

        /** Sends the waiting messages. */
        default void flush() throws Exception {}

        /** Sends, waits for the answer and returns it. */
        byte[] ask(byte[] content) throws Exception;

        /** Runs a round on the thread of this agent. */
        default void play(Runnable round) {
            new Thread(round).start();
        }
    }

    /** The place where receivers put the messages that they get. */
    interface Receiver {
        void got(int receiver, byte[] content);

        void answered();
    }
}

package org.sealbus.jade;

import jade.core.MessageQueue;
import jade.lang.acl.ACLMessage;
import jade.lang.acl.MessageTemplate;
import jade.util.leap.List;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;

/** Answers as {@link Pong}. From a message {@code now} on, what the mesh asks about the queue of its messages is answered in another way. */
public abstract class Watched extends Pong {
    private transient volatile boolean isWatched;

    /** The container's mesh asks how many messages the agent has not read. */
    protected abstract int sizeForMesh(int size);

    @Override
    protected MessageQueue createMessageQueue() {
        return new Queue();
    }

    private final class Queue implements MessageQueue {
        private final Deque<ACLMessage> messages = new ArrayDeque<>();

        @Override
        public void addFirst(ACLMessage message) {
            messages.addFirst(message);
        }

        @Override
        public void addLast(ACLMessage message) {
            isWatched |= "now".equals(message.getContent());
            messages.addLast(message);
        }

        @Override
        public int getMaxSize() {
            return 0;
        }

        @Override
        public void setMaxSize(int size) {}

        @Override
        public boolean isEmpty() {
            return messages.isEmpty();
        }

        @Override
        public ACLMessage receive(MessageTemplate pattern) {
            for (Iterator<ACLMessage> all = messages.iterator(); all.hasNext(); ) {
                ACLMessage message = all.next();
                if (pattern == null || pattern.match(message)) {
                    all.remove();
                    return message;
                }
            }
            return null;
        }

        @Override
        public void copyTo(List list) {
            messages.forEach(list::add);
        }

        @Override
        public int size() {
            boolean isForMesh = StackWalker.getInstance()
                    .walk(calls -> calls.anyMatch(call -> call.getClassName().equals(MeshInward.class.getName())));
            return isWatched && isForMesh ? sizeForMesh(messages.size()) : messages.size();
        }
    }
}

package org.sealbus.jade;

import jade.core.Agent;
import jade.core.behaviours.TickerBehaviour;

/** Reads nothing, and ends when there is a message for it. */
public class Deaf extends Agent {
    @Override
    protected void setup() {
        addBehaviour(new TickerBehaviour(this, 100) {
            @Override
            protected void onTick() {
                if (getCurQueueSize() > 0) {
                    doDelete();
                }
            }
        });
    }
}

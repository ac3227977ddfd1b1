package org.sealbus.jade;

import jade.core.ContainerID;
import jade.core.behaviours.TickerBehaviour;

/** Has an entry in JADE's DF, and goes from one container of its further arguments to the next, as soon as each is there. */
public class Nomad extends Entrant {
    private int next = 1;
    private Object[] way;

    @Override
    protected void setup() {
        super.setup();
        // Arguments do not move with an agent.
        way = getArguments();
        addBehaviour(new TickerBehaviour(this, 500) {
            @Override
            protected void onTick() {
                if (next == way.length) {
                    return;
                }
                String there = (String) way[next];
                if (here().getName().equals(there)) {
                    next++;
                } else {
                    doMove(new ContainerID(there, null));
                }
            }
        });
    }

    @Override
    protected void afterMove() {
        System.out.println(getLocalName() + " is at " + here().getName());
    }
}

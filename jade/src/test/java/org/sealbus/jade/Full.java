package org.sealbus.jade;

/** An agent that has no room, and prints how often the mesh has asked for that. */
public class Full extends Watched {
    private static final int NO_ROOM = 1_000_000;
    private transient int asked;

    @Override
    protected int sizeForMesh(int size) {
        asked++;
        System.out.println(getLocalName() + " was asked for room " + asked + " times.");
        return NO_ROOM;
    }
}

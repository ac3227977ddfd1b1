package org.sealbus.jade;

/** An agent at which the mesh fails once, in the midst of a frame. */
public class Fragile extends Watched {
    private transient boolean hasFailed;

    @Override
    protected int sizeForMesh(int size) {
        if (!hasFailed) {
            hasFailed = true;
            throw new StackOverflowError("a failure that is none of the mesh's");
        }
        return size;
    }
}

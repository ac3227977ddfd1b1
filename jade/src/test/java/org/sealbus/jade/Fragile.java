package org.sealbus.jade;

/** An agent at which the mesh fails once, in the midst of a frame: by an exception, if it has an argument. */
public class Fragile extends Watched {
    private transient boolean hasFailed;

    @Override
    protected int sizeForMesh(int size) {
        if (!hasFailed) {
            hasFailed = true;
            if (getArguments() != null && getArguments().length > 0) {
                throw new IllegalStateException("an exception of an agent's own queue");
            }
            throw new StackOverflowError("a failure that is none of the mesh's");
        }
        return size;
    }
}

package org.sealbus.jade;

/** Frames for the bus of the other process of a link, which gives credit for them. The mesh guards it. */
final class ToBus implements Exchange.Out {
    /** Most frames that wait for the bus of the other process, and most bytes of them: several of the longest messages fit. */
    private static final int MOST_WAITING = 1 << 17;
    private static final long MOST_WAITING_BYTES = 8 * MeshSession.WINDOW;
    /** Frames that may be lost are lost while so many frames wait. */
    private static final int MOST_LOSABLE = 4096;

    private final Mesh mesh;
    private final MeshLink link;
    /** The acknowledgement for the bus of the other process that was made last. */
    private Letter acknowledgement;
    /** More waits for the bus of the other process than it may make this process keep. */
    private boolean isOverfull;

    ToBus(Mesh mesh, MeshLink link) {
        this.mesh = mesh;
        this.link = link;
    }

    /** The session is given up. */
    void clear() {
        acknowledgement = null;
        isOverfull = false;
    }

    boolean isOverfull() {
        return isOverfull;
    }

    /** The other process makes this one answer on and on, and takes none of the answers. The session goes with all that is kept. */
    void giveUp() {
        link.log.warn("{0} makes this container keep too much for it: its session ends", link.peer);
        mesh.lose(link, "its process made this container keep too much for it");
    }

    @Override
    public void send(String author, byte[] frame) {
        put(new Letter(author, "", frame));
    }

    @Override
    public void sendLosable(String author, byte[] frame) {
        Route bus = link.outward().bus();
        if (bus == null || bus.waiting.size() < MOST_LOSABLE && bus.queued < MeshSession.WINDOW) {
            put(new Letter(author, "", frame));
        }
    }

    @Override
    public void acknowledge(byte[] frame) {
        Route bus = link.outward().bus();
        if (acknowledgement != null && bus != null && bus.waiting.peekLast() == acknowledgement) {
            bus.removeLast();
        }
        acknowledgement = new Letter(null, "", frame);
        put(acknowledgement);
    }

    @Override
    public void forget() {
        Route bus = link.outward().bus();
        if (bus != null) {
            bus.clear();
        }
    }

    private void put(Letter letter) {
        Route bus = link.outward().bus();
        if (bus == null) {
            bus = new Route("");
            mesh.routes.open(bus, link);
        }
        bus.add(letter);
        mesh.routes.pump(bus);
        boolean isTooMuch = bus.waiting.size() > MOST_WAITING || bus.queued > MOST_WAITING_BYTES;
        if (isTooMuch && !isOverfull) {
            isOverfull = true;
            // Not at once: the caller may be in the midst of a frame.
            mesh.laterGuarded(() -> {
                if (isOverfull) {
                    giveUp();
                }
            }, 0);
        }
    }
}

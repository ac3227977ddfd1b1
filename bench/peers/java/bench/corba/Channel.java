package bench.corba;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.omg.CORBA.ORB;
import org.omg.CosEventChannelAdmin.EventChannelHelper;
import org.omg.PortableServer.POA;

/** The server of an untyped event channel: {@code Channel FILE} writes where it is to the file, and serves until it is ended. */
public final class Channel {
    private Channel() {}

    public static void main(String[] arguments) throws Exception {
        ORB orb = Corba.open();
        POA poa = Corba.root(orb);
        var servant = new org.jacorb.events.EventChannelImpl(orb, poa);
        var channel = EventChannelHelper.narrow(poa.servant_to_reference(servant));
        Path file = Path.of(arguments[0]);
        Path part = Path.of(arguments[0] + ".part");
        Files.writeString(part, orb.object_to_string(channel));
        Files.move(part, file, StandardCopyOption.ATOMIC_MOVE);
        orb.run();
    }
}

import org.omg.CORBA.ARG_IN;
import org.omg.CORBA.Any;
import org.omg.CORBA.BAD_OPERATION;
import org.omg.CORBA.NVList;
import org.omg.CORBA.ORB;
import org.omg.CORBA.ServerRequest;
import org.omg.CORBA.TCKind;
import org.omg.PortableServer.DynamicImplementation;
import org.omg.PortableServer.POA;
import org.omg.PortableServer.POAHelper;

/** An object FIPA::MTS that hands every message on to the object named on its command line. Prints its own reference. */
public class Relay extends DynamicImplementation {
    private final ORB orb;
    private final FIPA.MTS target;

    private Relay(ORB orb, String target) {
        this.orb = orb;
        this.target = FIPA.MTSHelper.narrow(orb.string_to_object(target));
    }

    @Override
    public void invoke(ServerRequest request) {
        if (!request.operation().equals("message")) {
            throw new BAD_OPERATION();
        }
        NVList arguments = orb.create_list(1);
        Any argument = orb.create_any();
        argument.type(FIPA.FipaMessageHelper.type());
        arguments.add_value("aFipaMessage", argument, ARG_IN.value);
        request.arguments(arguments);
        target.message(FIPA.FipaMessageHelper.extract(argument));
        Any nothing = orb.create_any();
        nothing.type(orb.get_primitive_tc(TCKind.tk_void));
        request.set_result(nothing);
    }

    @Override
    public String[] _all_interfaces(POA adapter, byte[] key) {
        return new String[] {"IDL:FIPA/MTS:1.0"};
    }

    public static void main(String[] arguments) throws Exception {
        ORB orb = ORB.init(arguments, null);
        POA adapter = POAHelper.narrow(orb.resolve_initial_references("RootPOA"));
        adapter.the_POAManager().activate();
        Relay relay = new Relay(orb, arguments[0]);
        byte[] key = adapter.activate_object(relay);
        System.out.println(orb.object_to_string(adapter.id_to_reference(key)));
        System.out.flush();
        orb.run();
    }
}

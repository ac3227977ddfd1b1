"""An object FIPA::MTS on omniORB that hands every message on to the object named on its command line.

Prints its own reference. `omniidl` made the modules FIPA and FIPA__POA from fipa.idl.
"""

import sys

import FIPA
import FIPA__POA
from omniORB import CORBA

orb = CORBA.ORB_init(sys.argv, CORBA.ORB_ID)
target = orb.string_to_object(sys.argv[1])._narrow(FIPA.MTS)


class Relay(FIPA__POA.MTS):
    def message(self, message):
        target.message(message)


adapter = orb.resolve_initial_references("RootPOA")
adapter._get_the_POAManager().activate()
relay = Relay()
print(orb.object_to_string(relay._this()), flush=True)
orb.run()

//! The rounds of both auctions: calls, bids, and the end for participants that do not bid.

use sealbus_fipa::Performative::{Cfp, Inform, Propose, RejectProposal};

use crate::protocol::Cause::{Initiator, Participant, Silence};
use crate::protocol::Effect::{Ends, Goes};
use crate::protocol::Step;
use crate::{Outcome, Stage};

pub(super) const ROUNDS: &[Step] = &[
    Step(Stage::Announced, Initiator(Cfp), Goes(Stage::Called)),
    Step(Stage::Called, Initiator(Cfp), Goes(Stage::Called)),
    Step(Stage::Called, Silence, Goes(Stage::Announced)),
    Step(Stage::Called, Participant(Propose), Goes(Stage::Proposed)),
    Step(
        Stage::Proposed,
        Initiator(RejectProposal),
        Goes(Stage::Announced),
    ),
    Step(Stage::Announced, Initiator(Inform), Ends(Outcome::Closed)),
    Step(Stage::Called, Initiator(Inform), Ends(Outcome::Closed)),
];

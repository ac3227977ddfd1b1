//! The bus's side of a gateway: the mailboxes for agents of other platforms, which the gateway reads.

use std::sync::Arc;

use crate::agent::LocalAgent;
use crate::bus::Bus;
use crate::foreign::{self, StandInReader, StandIns};
use crate::mailbox::MailboxLimits;

impl Bus {
    /// Lets `gateway`, an attached agent, speak for the agents of other platforms from now on. Each foreign agent that
    /// receives a message gets a mailbox with these limits, and `reader` is given that mailbox. At most `most` such
    /// mailboxes exist at a time.
    ///
    /// Returns false if no agent of that name is attached here.
    pub fn open_gateway(
        &self,
        gateway: &str,
        limits: MailboxLimits,
        most: usize,
        reader: StandInReader,
    ) -> bool {
        let Some(agent) = self.agent(gateway) else {
            return false;
        };
        let stand_ins = StandIns::new(agent, limits, most, reader);
        *self.inner.stand_ins.write() = Some(Arc::new(stand_ins));
        self.gateway_changed();
        true
    }

    /// Ends the stand-in for an agent of another platform. Its reader keeps the messages still in the mailbox. The next
    /// message to that agent makes a new stand-in.
    pub fn retire_stand_in(&self, name: &str) {
        let stand_ins = self.inner.stand_ins.read().clone();
        let Some(agent) = stand_ins.and_then(|stand_ins| stand_ins.retire(name)) else {
            return;
        };
        if let Some(transport) = self.inner.transport.get() {
            transport.detach(&agent);
        }
    }

    /// The gateway has moved. The routes to other platforms are looked up again.
    pub fn gateway_changed(&self) {
        let platform = &self.inner.config.platform;
        let routes = self.inner.routes.read();
        let names: Vec<Arc<str>> = routes
            .keys()
            .filter(|name| foreign::is_foreign(name, platform))
            .cloned()
            .collect();
        drop(routes);
        for name in names {
            self.arrived(&name);
        }
    }

    pub(crate) fn stand_ins_of(&self, gateway: &str) -> Vec<Arc<LocalAgent>> {
        let stand_ins = self.inner.stand_ins.read();
        let stand_ins = stand_ins.as_ref().filter(|it| it.is_of(gateway));
        stand_ins.map(|it| it.all()).unwrap_or_default()
    }
}

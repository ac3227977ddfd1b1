//! The end of a process that the platform has given up, as others see it: nothing more is sent, and every sender is told
//! of the messages that may not have arrived.

use crate::bus::Bus;
use crate::error::UndeliverableReason;
use crate::search;

impl Bus {
    /// The platform has given up this process: others believe it no more, and its agents may run elsewhere. From now on
    /// its agents cannot send. Messages and events that were accepted and not confirmed come back to them as failures; when this
    /// returns, these are in their mailboxes.
    pub async fn give_up(&self, why: &str) {
        if self.inner.given_up.set(why.to_owned()).is_err() {
            return;
        }
        let reason = UndeliverableReason::ProcessUnreachable(why.to_owned());
        for route in self.routes() {
            search::abandon(self, &route, None, &reason);
        }
        if let Some(inlet) = self.inner.inlet.get() {
            inlet.given_up(&reason);
        }
        if let Some(transport) = self.transport() {
            transport.give_up(why).await;
        }
    }

    /// Why the platform has given up this process, if it has.
    pub fn given_up(&self) -> Option<&str> {
        self.inner.given_up.get().map(String::as_str)
    }
}

//! The end of a process that the platform has given up, as others see it. The process sends nothing more, and every
//! sender learns which of its messages may not have arrived.

use crate::bus::Bus;
use crate::error::UndeliverableReason;
use crate::search;

impl Bus {
    /// The platform has given up this process: other processes no longer believe it, and its agents may run elsewhere.
    /// From now on its agents cannot send. Messages and events that were accepted and not confirmed come back to them
    /// as failures; when this returns, the failures are in their mailboxes.
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

    /// The reason why the platform has given up this process, if it has.
    pub fn given_up(&self) -> Option<&str> {
        self.inner.given_up.get().map(String::as_str)
    }
}

//! Ways to other processes: they hand the transport the frames from the exchange.

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{
    Bus, FrameSender, OutgoingFrame, ProcessDestination, RefusalReason, Rejected, TransportError,
    UndeliverableReason,
};

use super::Shared;
use crate::exchange::Exchange;

/// The pause after which an unavailable way to another process is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The pause before a frame is tried again after the connection of its agent had no room.
const CONGESTION: Duration = Duration::from_millis(2);

impl Shared {
    /// Hands the transport the frames for a process. `waiter`: the way at whose gate the caller waits. Returns whether
    /// that way is still full.
    pub(super) fn pump(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        index: u32,
        waiter: Option<&Arc<dyn ProcessDestination>>,
    ) -> bool {
        let Some(bus) = self.bus.upgrade() else {
            return false;
        };
        let mut has_asked = false;
        while let Some(parcel) = exchange.next_parcel(index) {
            let way = match self.way(&bus, exchange, index) {
                Ok(way) => way,
                Err(error) => {
                    tracing::debug!(%error, "no way to another process");
                    exchange.block(index);
                    self.try_later(&bus, index, ASK_AGAIN);
                    return false;
                }
            };
            let agent = match &parcel.author {
                None => None,
                Some(name) => match bus.agent(name) {
                    Some(agent) => Some(agent),
                    None => {
                        let reason = UndeliverableReason::Refused {
                            reason: RefusalReason::NotProved,
                            explanation: format!(
                                "{name} has left, and cannot prove itself any more"
                            ),
                        };
                        exchange.impossible(index, &reason, self.now());
                        continue;
                    }
                },
            };
            let sent = way.try_send(&OutgoingFrame {
                sender: agent
                    .as_ref()
                    .map_or(FrameSender::Process, FrameSender::Agent),
                head: &parcel.head,
                body: &parcel.content,
                tail: parcel.tail,
                statement: (parcel.is_signed || bus.signs())
                    .then(|| parcel.statement())
                    .flatten(),
            });
            match sent {
                Ok(()) => exchange.sent(index),
                Err(Rejected::Impossible(reason)) => {
                    exchange.impossible(index, &reason, self.now())
                }
                // The agent's own connection has no room, which no gate of the way reports.
                Err(Rejected::Congested) => {
                    exchange.block(index);
                    self.try_later(&bus, index, CONGESTION);
                    return false;
                }
                Err(Rejected::Full) => {
                    exchange.block(index);
                    if waiter.is_some_and(|waiter| Arc::ptr_eq(waiter, &way)) {
                        return true;
                    }
                    self.wait_for_room(&bus, index, way);
                    return false;
                }
                Err(Rejected::Closed | Rejected::Moving) => {
                    self.ways.lock().remove(&index);
                    if has_asked {
                        exchange.block(index);
                        self.try_later(&bus, index, ASK_AGAIN);
                        return false;
                    }
                    has_asked = true;
                }
            }
        }
        false
    }

    fn way(
        &self,
        bus: &Bus,
        exchange: &Exchange,
        index: u32,
    ) -> Result<Arc<dyn ProcessDestination>, TransportError> {
        if let Some(way) = self.ways.lock().get(&index) {
            return Ok(way.clone());
        }
        let gone = || TransportError::OverLimit("the process is not known".to_owned());
        let identity = exchange.identity(index).ok_or_else(gone)?;
        let endpoint = self.endpoints.lock().get(&**identity).cloned();
        let endpoint = endpoint.ok_or_else(gone)?;
        let transport = bus.transport().ok_or_else(|| {
            TransportError::OverLimit("this process has no transport to other processes".to_owned())
        })?;
        let way = transport.process_destination(&endpoint)?;
        self.ways.lock().insert(index, way.clone());
        Ok(way)
    }

    fn wait_for_room(self: &Arc<Self>, bus: &Bus, index: u32, way: Arc<dyn ProcessDestination>) {
        let weak = Arc::downgrade(self);
        bus.runtime().spawn(async move {
            way.gate()
                .pass(|| {
                    let shared = weak.upgrade()?;
                    let is_full = shared.work(|exchange, _| {
                        exchange.unblock(index);
                        shared.pump(exchange, index, Some(&way))
                    });
                    (!is_full).then_some(())
                })
                .await;
        });
    }

    fn try_later(self: &Arc<Self>, bus: &Bus, index: u32, after: Duration) {
        let weak = Arc::downgrade(self);
        bus.runtime().spawn(async move {
            tokio::time::sleep(after).await;
            if let Some(shared) = weak.upgrade() {
                shared.work(|exchange, _| exchange.unblock(index));
            }
        });
    }
}

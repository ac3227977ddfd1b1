//! Receiving on one connection to the broker after another, until the owner of the queue leaves.

use std::sync::Arc;

use thiserror::Error;
use tokio::time::sleep;

use crate::client::{BrokerFailure, Receiving};
use crate::wire::Sends;

/// The factor by which unacknowledged deliveries may exceed the usual number, while all of them wait for an earlier
/// message.
const MOST: u16 = 64;

/// Takes the deliveries of one owner. It outlives connections.
pub(crate) trait Inbox {
    /// The owner's link.
    type Link: Sends;

    /// The owner's link.
    fn link(&self) -> &Arc<Self::Link>;

    /// Receives on one connection, with at most `prefetch` deliveries unacknowledged, until the connection breaks.
    /// `Ok`: the link has ended.
    fn serve(
        &mut self,
        receiving: Box<dyn Receiving>,
        prefetch: u16,
    ) -> impl Future<Output = Result<(), Broken>> + Send;

    /// The connection is gone.
    fn disconnected(&mut self);
}

/// Receives until the owner leaves.
pub(crate) async fn receive(mut inbox: impl Inbox) {
    let link = inbox.link().clone();
    let wire = link.wire();
    let mut leaving = wire.leaving.subscribe();
    let usual = wire.config().prefetch;
    let mut prefetch = usual;
    while !wire.has_left() {
        let connecting = wire.connect(
            || link.owner(),
            |client, address, owner| client.open_receiving(address, owner, prefetch),
            |_| {},
        );
        let receiving = tokio::select! {
            receiving = connecting => receiving,
            _ = leaving.wait_for(|leaving| *leaving) => return,
        };
        let Some(receiving) = receiving else {
            return;
        };
        let result = inbox.serve(receiving, prefetch).await;
        wire.is_receiving.send_replace(false);
        inbox.disconnected();
        match result {
            Ok(()) => return,
            Err(error) => {
                prefetch = error.next_prefetch(prefetch, usual);
                tracing::debug!(who = %link.owner().name, %error, "the connection to the broker for receiving broke");
                sleep(wire.config().redial.0).await;
            }
        }
    }
}

/// Why nothing more is received on a connection.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Failed(#[from] BrokerFailure),
    /// If a dead connection holds the missing message, the message comes first on another connection. It comes later if
    /// the broker refused it at first.
    #[error("all that was delivered waits for something earlier")]
    Stuck,
}

impl Broken {
    /// The number of unacknowledged deliveries allowed on the next connection.
    fn next_prefetch(&self, last: u16, usual: u16) -> u16 {
        match self {
            Self::Failed(_) => usual,
            Self::Stuck => last.saturating_mul(2).min(usual.saturating_mul(MOST)),
        }
    }
}

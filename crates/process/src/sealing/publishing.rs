//! How agents state their keys for sealed messages.

use std::sync::Arc;

use sealbus_control::attachment::ask;
use sealbus_control::{Blob, Fault};

use super::{PAUSE, ProcessSealer, stated};
use crate::again::again;
use crate::certification::Certified;
use crate::{Shared, now};

impl ProcessSealer {
    /// States the process's key as that of an agent, with the agent's key package for groups, and tells the platform.
    async fn publish(&self, agent: &str, certified: &Certified) -> Result<(), Fault> {
        let key = self
            .key_for(&certified.certificate, certified.lifetime)
            .map_err(Fault::internal)?;
        let mut stated = stated(&key, certified).map_err(Fault::internal)?;
        stated.extend(self.offer(certified).map_err(Fault::internal)?);
        let publish = ask::PublishKey {
            agent: agent.to_owned(),
            key: Blob(stated),
        };
        self.host.ask(publish).await
    }

    /// States the key again, unless the agent has another certificate by now, and so has made a later statement.
    async fn publish_again(&self, agent: &str, certified: &Certified) -> Result<(), Fault> {
        match self.is_latest(certified) {
            true => self.publish(agent, certified).await,
            false => Ok(()),
        }
    }
}

impl Shared {
    /// States the key of an agent under a new certificate. While the platform does not take it, the statement is
    /// repeated, as long as the process is there. Meanwhile others use the key that they know.
    pub(crate) async fn publish_key(self: &Arc<Self>, agent: &str, certified: &Certified) {
        let Some(sealing) = self.sealing.clone() else {
            return;
        };
        if sealing.publish(agent, certified).await.is_ok() {
            return;
        }
        let certified = certified.clone();
        let (shared, agent) = (Arc::downgrade(self), agent.to_owned());
        tokio::spawn(async move {
            let is_there = || {
                shared
                    .upgrade()
                    .is_some_and(|shared| shared.ended.borrow().is_none())
            };
            let goes_on = |fault: &Fault| {
                fault.may_pass() && is_there() && certified.certificate.not_after() >= now()
            };
            let publish = || sealing.publish_again(&agent, &certified);
            if let Err(fault) = again(PAUSE, goes_on, publish).await {
                tracing::warn!(agent, %fault, "the agent's key for sealed messages is not known to others");
            }
        });
    }
}

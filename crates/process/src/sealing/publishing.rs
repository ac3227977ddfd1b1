//! Agents state their keys for sealed messages.

use std::sync::{Arc, Weak};

use sealbus_control::attachment::ask;
use sealbus_control::{Blob, Fault, FaultCode};

use super::{PAUSE, Sealing, stated};
use crate::certification::Certified;
use crate::{Shared, now};

impl Sealing {
    /// States the process's key as that of an agent, with the agent's key package for groups, and tells the platform.
    async fn publish(&self, agent: &str, certified: &Certified) -> Result<(), Fault> {
        let internal =
            |error: &dyn std::fmt::Display| Fault::new(FaultCode::Internal, error.to_string());
        let key = self
            .key_for(&certified.certificate, certified.lifetime)
            .map_err(|error| internal(&error))?;
        let mut stated = stated(&key, certified).map_err(|error| internal(&error))?;
        stated.extend(self.offer(certified).map_err(|error| internal(&error))?);
        let publish = ask::PublishKey {
            agent: agent.to_owned(),
            key: Blob(stated),
        };
        self.host.ask(publish).await
    }
}

impl Shared {
    /// States the key of an agent under a new certificate. While the platform does not take it, it is stated again and
    /// again, as long as the process is there. Meanwhile others use the key that they know.
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
            let is_over = |shared: &Weak<Self>| {
                shared
                    .upgrade()
                    .is_none_or(|shared| shared.ended.borrow().is_some())
            };
            while let Err(fault) = sealing.publish(&agent, &certified).await {
                if !fault.may_pass()
                    || is_over(&shared)
                    || certified.certificate.not_after() < now()
                {
                    tracing::warn!(agent, %fault, "the agent's key for sealed messages is not known to others");
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}

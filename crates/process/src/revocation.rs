//! Obeying deny lists, and ending revoked agents and processes.

use sealbus_seal::Identity;
use sealbus_seal::denylist::{DenyList, DenyListUpdate};

use super::agent::{Entry, Parting, Wish};
use super::{ProcessEnd, Shared, freeze, now};

/// Certificates checked against a new deny list before other tasks get a turn.
const CHECKED_AT_ONCE: usize = 1024;

impl Shared {
    /// Puts a deny list in force at once, for other processes and for this process and its agents.
    pub(super) async fn obey_deny_list(&self, signed: &[u8]) {
        match self.trust.apply_deny_list(signed, now()) {
            Ok(DenyListUpdate::Applied { version }) => {
                tracing::debug!(target: "sealbus::revocation", version, "obeying a new deny list");
            }
            Ok(DenyListUpdate::AlreadyHeld { .. }) => return,
            Err(error) => {
                tracing::warn!(target: "sealbus::revocation", %error, "a deny list was not believed");
                return;
            }
        }
        if let Some(transport) = &self.transport {
            transport.trust_changed();
        }
        let lists = self.trust.deny_lists();
        let lists = || lists.iter().map(|list| -> &DenyList { list });
        let own = self.own.lock().clone();
        if let Some((identity, standing)) = own
            && let Some(reason) = standing.revoked(&identity, lists())
        {
            return self.process_revoked(&reason).await;
        }
        let entries: Vec<_> = self.agents.lock().by_number.values().cloned().collect();
        for (index, entry) in entries.iter().enumerate() {
            if index % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            // The name was checked when the agent was put on the bus.
            let Ok(identity) = Identity::from_agent_name(&entry.aid.name) else {
                continue;
            };
            let standing = *entry.standing.lock();
            if let Some(reason) = standing.revoked(&identity, lists()) {
                self.agent_revoked(entry, &reason);
            }
        }
    }

    /// Ends an agent of this process that was revoked.
    pub(super) fn agent_revoked(&self, entry: &Entry, reason: &str) {
        if self.has_moved_out() {
            // A move ends in this way.
            return freeze::moved(self);
        }
        let agent = &entry.aid.name;
        tracing::error!(target: "sealbus::revocation", agent, "ending this agent: revoked: {reason}");
        self.remove(entry, &Parting::Failed(format!("revoked: {reason}")));
        entry.wish(Wish::Stop);
        if self.agents.lock().by_number.is_empty() {
            self.end(ProcessEnd::Revoked {
                who: agent.clone(),
                reason: reason.to_owned(),
            });
        }
    }

    /// Ends the process because it was revoked. Its agents are told first of the messages that may not have arrived.
    pub(super) async fn process_revoked(&self, reason: &str) {
        if self.has_moved_out() {
            return freeze::moved(self);
        }
        tracing::error!(target: "sealbus::revocation", "leaving: this process was revoked: {reason}");
        self.bus.give_up(&format!("it was revoked: {reason}")).await;
        self.end(ProcessEnd::Revoked {
            who: "this process".to_owned(),
            reason: reason.to_owned(),
        });
    }
}

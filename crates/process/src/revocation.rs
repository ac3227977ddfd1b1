//! Obeying deny lists, and ending revoked agents and processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealbus_control::attachment::ask;
use sealbus_seal::Identity;
use sealbus_seal::denylist::{DenyList, DenyListError, DenyListUpdate};

use super::agent::{Entry, Parting, Wish};
use super::{ProcessEnd, Shared, freeze, now};

/// Certificates checked against a new deny list before other tasks get a turn.
const CHECKED_AT_ONCE: usize = 1024;

impl Shared {
    /// Puts a deny list or its changes in force at once, for other processes and for this process and its agents. If
    /// changes do not fit the list held here, the process asks for the whole list.
    pub(super) async fn obey_deny_list(self: &Arc<Self>, signed: &[u8]) {
        let obeyed = self.obey(signed).await;
        if !matches!(obeyed, Err(error) if error.needs_whole_list())
            || self.awaits_deny_list.swap(true, Ordering::Relaxed)
        {
            return;
        }
        // The platform's commands are obeyed meanwhile.
        let shared = self.clone();
        tokio::spawn(async move {
            let whole = shared.host.ask(ask::DenyList).await;
            shared.awaits_deny_list.store(false, Ordering::Relaxed);
            match whole {
                Ok(list) => drop(shared.obey(&list.0).await),
                // It comes when the node is back.
                Err(fault) => tracing::warn!(%fault, "the whole deny list cannot be had"),
            }
        });
    }

    async fn obey(&self, signed: &[u8]) -> Result<(), DenyListError> {
        match self.trust.apply_deny_list(signed, now()) {
            Ok(DenyListUpdate::Applied { version }) => {
                tracing::debug!(target: "sealbus::revocation", version, "obeying a new deny list");
            }
            Ok(DenyListUpdate::AlreadyHeld { .. }) => return Ok(()),
            Err(error) => {
                tracing::warn!(target: "sealbus::revocation", %error, "a deny list was not believed");
                return Err(error);
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
            self.process_revoked(&reason).await;
            return Ok(());
        }
        let early = self.renew_at_once(|standing| standing.lost_its_issuer(lists()));
        if early > 0 {
            tracing::warn!(target: "sealbus::certification", certificates = early,
                "the CA that issued certificates of this process was revoked: they are renewed");
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
        Ok(())
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

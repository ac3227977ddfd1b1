//! Obeying deny lists, and ending revoked agents and processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sealbus_control::Fault;
use sealbus_control::attachment::ask;
use sealbus_seal::Identity;
use sealbus_seal::denylist::{DenyList, DenyListError, DenyListUpdate};

use super::again::again;
use super::agent::{Entry, Parting, Wish};
use super::{ProcessEnd, Shared, freeze, now};

/// The number of certificates checked against a new deny list before other tasks get a turn.
const CHECKED_AT_ONCE: usize = 1024;
/// The longest pause before the whole list is asked for again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Puts a deny list or its changes in force at once, for other processes and for this process and its agents. If
    /// changes do not fit the list held here, the process asks for the whole list.
    pub(super) async fn obey_deny_list(self: &Arc<Self>, signed: &[u8]) {
        let obeyed = self.obey(signed).await;
        if !matches!(obeyed, Err(error) if error.needs_whole_list())
            || self.unfit_denials.fetch_add(1, Ordering::Relaxed) > 0
        {
            return;
        }
        // Meanwhile the platform's commands are still obeyed.
        tokio::spawn(self.clone().fetch_deny_list());
    }

    /// Asks for the whole deny list until it comes.
    async fn fetch_deny_list(self: Arc<Self>) {
        let goes_on = |fault: &Fault| fault.may_pass() && self.ended.borrow().is_none();
        loop {
            let unfit = self.unfit_denials.load(Ordering::Relaxed);
            let asking = || self.host.ask(ask::DenyList);
            match again(LONGEST_PAUSE, goes_on, asking).await {
                Ok(list) => drop(self.obey(&list.0).await),
                Err(fault) => tracing::warn!(%fault, "the whole deny list cannot be had"),
            }
            // Changes that came in the meantime did not fit either, and the list may lack them.
            let (order, none) = (Ordering::Relaxed, 0);
            let fitting = self
                .unfit_denials
                .compare_exchange(unfit, none, order, order);
            if fitting.is_ok() || self.ended.borrow().is_some() {
                return;
            }
        }
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
                self.agent_revoked(entry, &reason).await;
            }
        }
        Ok(())
    }

    /// Ends an agent of this process that was revoked.
    pub(super) async fn agent_revoked(&self, entry: &Entry, reason: &str) {
        if self.has_moved_out() {
            // This is how a move ends.
            return freeze::moved(self).await;
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

    /// Ends the process because it was revoked. First, its agents are told of messages that may not have arrived.
    pub(super) async fn process_revoked(&self, reason: &str) {
        if self.has_moved_out() {
            return freeze::moved(self).await;
        }
        tracing::error!(target: "sealbus::revocation", "leaving: this process was revoked: {reason}");
        self.bus.give_up(&format!("it was revoked: {reason}")).await;
        self.end(ProcessEnd::Revoked {
            who: "this process".to_owned(),
            reason: reason.to_owned(),
        });
    }
}

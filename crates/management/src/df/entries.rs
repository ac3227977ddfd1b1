//! Entries and their leases.

use std::time::SystemTime;

use sealbus_fipa::DateTime;
use sealbus_fipa::management::{DfAgentDescription, Exception};

use super::super::{Requester, unix_ms};
use super::{Change, Df, Outcome, Undo};

impl Df {
    /// Registers or modifies an entry. Returns the entry as it stands then.
    pub(super) fn put(
        &mut self,
        description: &DfAgentDescription,
        modify: bool,
        requester: &Requester,
        now: SystemTime,
        outcome: &mut Outcome,
    ) -> Result<DfAgentDescription, Exception> {
        let name = description.check_entry()?.name.clone();
        requester.authorise(&name)?;
        match (self.get(&name).is_some(), modify) {
            (true, false) => return Err(Exception::AlreadyRegistered),
            (false, true) => return Err(Exception::NotRegistered),
            (false, false) => self.limits.check_entries(self.entries.len())?,
            (true, true) => {}
        }
        let mut granted = description.clone();
        granted.lease_time = self.grant(description.lease_time, now)?;
        self.limits.check_description(&granted)?;
        if matches!(requester, Requester::Foreign { .. }) {
            self.check_share_of_platform(&name, &granted)?;
        }

        let former = self.entries.put(&name, granted.clone(), &mut outcome.batch);
        self.renew_lease(&name);
        self.subscribers
            .tell(former.description(), Some(&granted), &self.entries, outcome);
        outcome.undo.push(Undo(Change::Entry(Box::new(former))));
        Ok(granted)
    }

    /// Checks that the entry is within the limit for all agents of one other platform.
    fn check_share_of_platform(
        &self,
        name: &str,
        entry: &DfAgentDescription,
    ) -> Result<(), Exception> {
        let length = |entry: &DfAgentDescription| entry.to_term().to_bytes().len();
        let mut others = self.entries.share_of_platform(name);
        if let Some(former) = self.get(name) {
            others.entries -= 1;
            others.length -= length(former);
        }
        let platform = name.rsplit_once('@').map_or("", |(_, platform)| platform);
        self.limits.check_share(platform, others, length(entry))
    }

    /// The lease that is granted when `asked` is requested: a point in time, or `None` for ever.
    fn grant(
        &self,
        asked: Option<DateTime>,
        now: SystemTime,
    ) -> Result<Option<DateTime>, Exception> {
        let unrecognised = || Exception::UnrecognisedParameterValue {
            object: "df-agent-description".into(),
            slot: "lease-time".into(),
        };
        let now = unix_ms(now);
        let asked_end = asked.map(|asked| asked.unix_ms(now)).transpose();
        let asked_end = asked_end.map_err(|_| unrecognised())?;
        if asked_end.is_some_and(|end| end <= now) {
            return Err(unrecognised());
        }
        let longest = self.limits.longest_lease.map(|longest| {
            now.saturating_add(i64::try_from(longest.as_millis()).unwrap_or(i64::MAX))
        });
        let end = match (asked_end, longest) {
            (Some(asked), Some(longest)) => asked.min(longest),
            (Some(end), None) | (None, Some(end)) => end,
            (None, None) => return Ok(None),
        };
        match asked {
            Some(asked) if !asked.is_relative() && asked_end == Some(end) => Ok(Some(asked)),
            _ => DateTime::from_unix_ms(end)
                .map(Some)
                .map_err(|_| unrecognised()),
        }
    }

    pub(super) fn renew_lease(&mut self, name: &str) {
        let lease_time = self.entries.get(name).and_then(|entry| entry.lease_time);
        self.leases
            .set(name, lease_time.and_then(|end| end.unix_ms(0).ok()));
    }

    pub(super) fn deregister(
        &mut self,
        description: &DfAgentDescription,
        requester: &Requester,
        outcome: &mut Outcome,
    ) -> Result<(), Exception> {
        // Only the name matters, so the services may lack parameters that an entry must have.
        let name = DfAgentDescription {
            name: description.name.clone(),
            ..Default::default()
        };
        let name = &name.check_entry()?.name;
        requester.authorise(name)?;
        self.get(name).ok_or(Exception::NotRegistered)?;
        self.remove(name, outcome);
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str, outcome: &mut Outcome) {
        self.leases.set(name, None);
        if self.get(name).is_some() {
            let former = self.entries.remove(name, &mut outcome.batch);
            self.subscribers
                .tell(former.description(), None, &self.entries, outcome);
            outcome.undo.push(Undo(Change::Entry(Box::new(former))));
        }
    }
}

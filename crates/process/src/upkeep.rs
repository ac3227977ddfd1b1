//! The work beside the agents: the platform's commands, renewals, and refusals.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use sealbus_bus::{Moment, sleep_until};
use sealbus_seal::denylist::DenyList;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::agent::Entry;
use super::certification::{CertificationError, Certified};
use super::standing::CertificateStanding;
use super::{Agents, ProcessEnd, Shared, Stopping, THE_PROCESS, freeze, now, traffic};
use sealbus_control::attachment::ask;
use sealbus_control::host::Command;
use sealbus_control::{FaultCode, RefusalRecord, Subject};

/// The number of renewals at the same time.
const RENEWALS_AT_ONCE: usize = 32;

/// The clock counts as set if it moved by more than this against elapsed time.
const CLOCK_SET: Duration = Duration::from_secs(5);

/// How often a process with something to look after does so: refusals to report, letters that may expire, watches.
const LOOK: Duration = Duration::from_secs(1);

/// How often an idle process checks whether the clock was set.
const IDLE: Duration = Duration::from_secs(5);

/// Runs until the process has ended, or no handle to it is left.
pub(super) async fn run(
    process: Weak<Shared>,
    renewals_changed: Arc<Notify>,
    mut commands: mpsc::Receiver<Command>,
) {
    let mut renewing = JoinSet::new();
    // The report of refusals in progress, and whether the platform had all of them after the last one.
    let (mut telling, mut are_told) = (JoinSet::new(), true);
    let mut clocks = Clocks::now();
    let mut look = pin!(tokio::time::sleep(LOOK));
    let mut is_idle = false;
    let Some(shared) = process.upgrade() else {
        return;
    };
    let (refused, letter_came) = (shared.bus.refusals().noted(), shared.inbox.came());
    let mut stopping = shared.stopping.subscribe();
    drop(shared);
    loop {
        let Some(shared) = process.upgrade() else {
            return;
        };
        let mut ended = shared.ended.subscribe();
        if ended.borrow().is_some() {
            return;
        }
        let due = shared.agents.lock().renewals.next();
        let due = due.map(|due| shared.started + due);
        drop(shared);
        let event = tokio::select! {
            command = commands.recv() => match command {
                Some(command) => Event::Command(command),
                None => Event::PlatformGone,
            },
            () = sleep_until(due), if renewing.len() < RENEWALS_AT_ONCE => Event::RenewalDue,
            () = renewals_changed.notified() => continue,
            Some(_) = renewing.join_next() => continue,
            Some(told) = telling.join_next() => {
                are_told = matches!(told, Ok(true));
                match are_told {
                    true => continue,
                    // The next look tries again.
                    false => Event::Stirred,
                }
            }
            () = look.as_mut() => Event::Look,
            () = refused.notified(), if is_idle => Event::Stirred,
            () = letter_came.notified(), if is_idle => Event::Stirred,
            _ = ended.changed() => continue,
            Ok(()) = stopping.changed() => Event::Stopping,
        };
        let Some(shared) = process.upgrade() else {
            return;
        };
        match event {
            Event::Command(command) => obey(&shared, command).await,
            Event::PlatformGone => {
                let node = shared.host.membership().node.clone();
                let end = ProcessEnd::PlatformGone { node };
                // A process that ends anyway has left the platform by itself.
                if shared.stopping.borrow().is_none() {
                    tracing::error!("leaving: {end}");
                }
                shared.end(end);
            }
            // Commands are obeyed while the node is asked.
            Event::Stopping => {
                tokio::spawn(async move { freeze::end_at_rest(&shared).await });
            }
            Event::RenewalDue => {
                let now = shared.clock();
                while renewing.len() < RENEWALS_AT_ONCE {
                    let Some(number) = shared.agents.lock().renewals.pop(now) else {
                        break;
                    };
                    renewing.spawn(renew(shared.clone(), number));
                }
            }
            Event::Stirred => {
                is_idle = false;
                look.as_mut().reset(tokio::time::Instant::now() + LOOK);
            }
            Event::Look => {
                if clocks.were_set() {
                    shared.clock_was_set();
                }
                shared.watches.end_overdue(&shared.bus, Instant::now());
                let sealing = shared.sealing.as_ref();
                let seals_nothing = sealing.is_none_or(|sealing| sealing.forget());
                shared.inbox.sweep(&shared);
                is_idle = are_told
                    && seals_nothing
                    && shared.inbox.is_empty()
                    && !shared.bus.tap().is_open();
                let pause = if is_idle { IDLE } else { LOOK };
                look.as_mut().reset(tokio::time::Instant::now() + pause);
                // Commands are obeyed while the node is asked.
                if telling.is_empty() {
                    are_told = false;
                    telling.spawn(async move { tell_refusals(&shared).await });
                }
            }
        }
    }
}

enum Event {
    Command(Command),
    PlatformGone,
    RenewalDue,
    Look,
    Stirred,
    Stopping,
}

async fn obey(shared: &Arc<Shared>, command: Command) {
    match command {
        Command::Stop { grace, reason } => {
            tracing::info!(
                reason,
                grace_s = grace.as_secs_f64(),
                "the platform asks this process to stop"
            );
            if shared.has_moved_out() {
                freeze::moved(shared).await;
            } else {
                shared.stop(Stopping {
                    grace: Some(grace),
                    reason,
                });
            }
        }
        Command::Freeze { answer } => {
            tracing::info!("the platform asks this process to hand over its agents");
            // An earlier freeze is over, and agents at rest have nothing more to hand over.
            if shared.has_moved_out() {
                shared.thaw();
            }
            // Deny lists and other commands are obeyed while agents come to rest.
            let shared = shared.clone();
            tokio::spawn(async move {
                let frozen = freeze::freeze_all(&shared).await;
                if let Err(reason) = &frozen {
                    tracing::warn!(reason, "the agents stay here");
                }
                if answer.send(frozen).is_err() {
                    // Nobody waits for the result any more, because the move was given up.
                    shared.thaw();
                }
            });
        }
        Command::Thaw => {
            tracing::info!("the move did not come about: the agents go on here");
            shared.thaw();
        }
        Command::FormerKeys { key, answer } => {
            // If nobody waits for the answer any more, nobody misses it.
            let _ = answer.send(shared.former_keys(&key.0));
        }
        Command::AttachedAgain => shared.report_agents(),
        Command::DenyList(list) => shared.obey_deny_list(&list.0).await,
        Command::Letters { agent, letters } => shared.inbox.take_in(shared, &agent, letters),
        Command::DirectoryChanged(changes) => shared.directory_changed(&changes),
        Command::ProcessesJoined(processes) => shared.processes_joined(&processes),
        Command::ProcessesAre(processes) => shared.processes_are(processes),
        Command::ProcessesEnded(processes) => shared.processes_ended(&processes),
        Command::MasterMoved {
            former,
            agents,
            done,
        } => {
            shared.processes_ended(&[former]);
            shared.directory_changed(&agents);
            // If nobody waits for that any more, nobody misses it.
            let _ = done.send(());
        }
        Command::Rules(rules) => shared.obey_rules(&rules),
        Command::Heard { answer } => {
            // If nobody waits for the answer any more, nobody misses it.
            let _ = answer.send(());
        }
        Command::Observe { watch, answer } => {
            // If nobody waits for the answer any more, nobody misses it.
            let _ = answer.send(traffic::observe(&shared.bus, &shared.watches, watch));
        }
    }
}

/// The wall clock together with a monotonic clock, to notice when the wall clock is set.
struct Clocks {
    day: SystemTime,
    steady: Instant,
}

impl Clocks {
    fn now() -> Self {
        Self {
            day: SystemTime::now(),
            steady: Instant::now(),
        }
    }

    /// Whether the wall clock was set since the last look, or the machine slept.
    fn were_set(&mut self) -> bool {
        let before = std::mem::replace(self, Self::now());
        let expected = before.day + self.steady.duration_since(before.steady);
        let off = match self.day.duration_since(expected) {
            Ok(ahead) => ahead,
            Err(behind) => behind.duration(),
        };
        off > CLOCK_SET
    }
}

impl Shared {
    /// Certificates that came while a clock was wrong may not be valid now, so they are renewed at once.
    fn clock_was_set(&self) {
        let now = now();
        let early = self.renew_at_once(|standing| !standing.holds_at(now));
        if early > 0 {
            tracing::warn!(target: "sealbus::certification", certificates = early,
                "the clock was set: certificates that are not valid now are renewed");
        }
    }

    /// Renews the certificates that are useless now. Returns their number.
    pub(super) fn renew_at_once(&self, is_useless: impl Fn(&CertificateStanding) -> bool) -> usize {
        let steady = self.clock();
        let renew = |standing: &mut CertificateStanding| {
            is_useless(standing).then(|| std::mem::replace(&mut standing.due, steady))
        };
        let mut agents = self.agents.lock();
        let mut early: Vec<(Duration, u64)> = agents
            .by_number
            .values()
            .filter_map(|entry| Some((renew(&mut entry.standing.lock())?, entry.number)))
            .collect();
        if let Some((_, standing)) = &mut *self.own.lock() {
            early.extend(renew(standing).map(|due| (due, THE_PROCESS)));
        }
        let count = early.len();
        for (due, holder) in early {
            // A certificate that is being renewed is not in the schedule. The new one is checked when it comes.
            if agents.renewals.remove(due, holder) {
                agents.renewals.insert(steady, holder);
            }
        }
        count
    }

    /// The standing of a certificate that came for `who`, in place of one with the `former` standing. If it is useless
    /// already, because its CA was revoked meanwhile or a clock is wrong, it counts as another failed attempt, and the
    /// next one is soon.
    ///
    /// The caller has locked the agents, and keeps them locked until the standing is noted, so that no deny list comes
    /// in between.
    pub(super) fn standing_of(
        &self,
        who: &str,
        certified: &Certified,
        former: Option<CertificateStanding>,
    ) -> CertificateStanding {
        let clock = self.clock();
        let standing = certified.standing(clock);
        let lists = self.trust.deny_lists();
        let lists = lists.iter().map(|list| -> &DenyList { list });
        if standing.holds_at(now()) && !standing.lost_its_issuer(lists) {
            return standing;
        }
        let next = standing.useless_after(former, clock);
        let again_s = next.due.saturating_sub(clock).as_secs_f64();
        tracing::warn!(target: "sealbus::certification", who, again_s,
            "the certificate that came is not valid now, or its CA was revoked: it is renewed");
        next
    }

    fn thaw(&self) {
        let resting = std::mem::take(&mut *self.resting.lock());
        freeze::thaw(self, resting);
    }

    /// Whether the agents have handed over everything, and the move was not withdrawn.
    pub(super) fn has_moved_out(&self) -> bool {
        !self.resting.lock().is_empty()
    }
}

/// Renews one certificate. Until that succeeds the old certificate stays in use, even after its end: peers then refuse
/// it, but the platform may be back at any moment.
async fn renew(shared: Arc<Shared>, number: u64) {
    if number == THE_PROCESS {
        renew_process(&shared).await;
    } else {
        let entry = shared.agents.lock().by_number.get(&number).cloned();
        if let Some(entry) = entry {
            renew_agent(&shared, &entry).await;
        }
    }
    shared.renewals_changed.notify_one();
}

async fn renew_agent(shared: &Arc<Shared>, entry: &Entry) {
    let agent = entry.aid.name.as_str();
    let subject = Subject::Agent {
        name: entry.aid.local_name().to_owned(),
    };
    let identity = entry.identity.clone();
    let certified = shared
        .certifier
        .request_certificate(subject, agent, identity, true)
        .await;
    // The agent may have left in the meantime, and another one may have its name.
    let is_here = |agents: &Agents| agents.by_number.contains_key(&entry.number);
    if !is_here(&shared.agents.lock()) {
        return;
    }
    match &certified {
        Ok(certified) => shared.publish_key(entry.aid.local_name(), certified).await,
        Err(error) if is_final(error) => {
            return shared.agent_revoked(entry, &error.to_string()).await;
        }
        Err(_) => {}
    }
    let mut agents = shared.agents.lock();
    if !is_here(&agents) {
        return;
    }
    let mut standing = entry.standing.lock();
    *standing = match certified {
        Ok(certified) => {
            let next = shared.standing_of(agent, &certified, Some(*standing));
            if let Err(error) = shared.bus.set_credential(agent, certified.credential) {
                tracing::error!(agent, %error, "a renewed certificate could not be used");
            }
            next
        }
        Err(error) => {
            let next = standing.after_failure(shared.clock());
            say_failure(agent, &error, next, shared.clock());
            next
        }
    };
    agents.renewals.insert(standing.due, entry.number);
}

async fn renew_process(shared: &Shared) {
    let process = format!("process {}", shared.host.membership().process);
    let process = process.as_str();
    let certified = shared
        .certifier
        .request_certificate(Subject::Process, process, None, true)
        .await;
    if let Err(error) = &certified
        && is_final(error)
    {
        return shared.process_revoked(&error.to_string()).await;
    }
    let mut agents = shared.agents.lock();
    let mut own = shared.own.lock();
    let Some((_, standing)) = &mut *own else {
        return;
    };
    *standing = match certified {
        Ok(certified) => {
            if let Some(transport) = &shared.transport
                && let Err(error) = transport.set_process_credential(&certified.credential)
            {
                tracing::error!(process, %error, "the renewed certificate of this process could not be used");
            }
            shared.standing_of(process, &certified, Some(*standing))
        }
        Err(error) => {
            let next = standing.after_failure(shared.clock());
            say_failure(process, &error, next, shared.clock());
            next
        }
    };
    agents.renewals.insert(standing.due, THE_PROCESS);
}

/// Whether asking again can never help, because the platform has withdrawn its consent.
fn is_final(error: &CertificationError) -> bool {
    matches!(error, CertificationError::Refused(fault)
        if matches!(fault.code, FaultCode::NotPlaced | FaultCode::NotPermitted))
}

fn say_failure(who: &str, error: &CertificationError, next: CertificateStanding, now: Duration) {
    let again_s = next.due.saturating_sub(now).as_secs_f64();
    if next.expires <= now {
        tracing::error!(target: "sealbus::certification", who, again_s, %error,
            "the certificate has expired and cannot be renewed: others refuse it until it is");
    } else {
        let left_s = (next.expires - now).as_secs_f64();
        tracing::warn!(target: "sealbus::certification", who, again_s, left_s, %error,
            "the certificate could not be renewed yet");
    }
}

/// Reports the refusals since the last report. Returns whether the platform has all of them.
pub(super) async fn tell_refusals(shared: &Shared) -> bool {
    let mut told = shared.refusals_told.lock().await;
    let refusals = shared.bus.refusals();
    let total = refusals.total();
    let new = usize::try_from(total.saturating_sub(*told)).unwrap_or(usize::MAX);
    if new == 0 {
        return true;
    }
    let last = refusals.last();
    let mut records: HashMap<(String, Option<String>, Option<String>, String), RefusalRecord> =
        HashMap::new();
    for refusal in last.iter().rev().take(new) {
        let reason = said(&refusal.reason.to_string(), &refusal.explanation);
        let key = (
            refusal.tried_by.clone(),
            refusal.proved.clone(),
            refusal.receiver.clone(),
            reason.clone(),
        );
        records
            .entry(key)
            .and_modify(|record| record.count += 1)
            .or_insert_with(|| RefusalRecord {
                at: Moment::from(refusal.time).unix_ms(),
                who: refusal.tried_by.clone(),
                proved: refusal.proved.clone(),
                receiver: refusal.receiver.clone(),
                reason,
                count: 1,
                by: None,
            });
    }
    // If the platform is away, they are reported again with the next ones.
    let records = records.into_values().collect();
    let are_told = shared.host.ask(ask::Refusals { records }).await.is_ok();
    if are_told {
        *told = total;
    }
    are_told
}

/// The category and explanation of a refusal, as operators read them. An explanation from another process already names
/// its category.
fn said(category: &str, explanation: &str) -> String {
    if explanation
        .strip_prefix(category)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    {
        explanation.to_owned()
    } else {
        format!("{category}: {explanation}")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_category_of_a_refusal_is_said_once() {
        use super::said;
        assert_eq!(said("revoked", "by hand"), "revoked: by hand");
        assert_eq!(said("revoked", "revoked: by hand"), "revoked: by hand");
        assert_eq!(said("revoked", "revoked"), "revoked");
        assert_eq!(
            said("expired", "expired certificates"),
            "expired: expired certificates"
        );
    }
}

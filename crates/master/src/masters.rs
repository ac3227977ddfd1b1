//! The Masters of a platform, as the one that leads knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_control::admin::{MasterRole, MasterStatus};
use sealbus_control::clock::{now, timestamp};
use sealbus_control::correspondence::Correspondent;
use sealbus_control::node::{MasterContact, ask_node};
use sealbus_control::{Fault, FaultCode, UnixMillis};
use sealbus_seal::Fingerprint;
use sealbus_seal::token::MOST_ADDRESSES;
use sealbus_store::{Batch, Revision, Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::claim::LIFE;
use super::cut_off::Hearing;
use super::desk::{Desk, DeskHandle};
use super::standby::{Candidate, InstanceFacts, host};

/// The row with the addresses of the Masters, the latest first.
const MASTERS_ROW: &str = "masters";
/// How often the leader checks which other Masters are there.
const LOOK: Duration = Duration::from_secs(1);
/// The row with the time at which a Master last handed over because it was cut off from its nodes, in Unix milliseconds.
const YIELDED_ROW: &str = "masters-yielded";
/// The shortest time between two such hand-overs, in milliseconds.
const BETWEEN: UnixMillis = 60_000;
/// How long a Master leads before it judges whether it hears enough nodes.
const SETTLING: Duration = Duration::from_secs(10);
/// How old the last sign of life of a Master that stands by may be.
const PRESENT: Duration = Duration::from_secs(3);
/// How long a node may take to answer a call, and how often it is called. A node that does not know yet that this Master
/// leads sends its answer to the former one.
const PATIENCE: Duration = Duration::from_secs(5);
const CALLS: usize = 3;
/// How long a Master that ends tries to tell the others that the platform was ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// All Masters. The one that leads keeps its role as long as [`hold`](Self::hold) runs.
pub(crate) struct Masters {
    candidate: tokio::sync::Mutex<Candidate>,
    name: String,
    known: Mutex<Vec<Instance>>,
    handing_over: watch::Sender<bool>,
}

/// An instance that is there.
struct Instance {
    name: String,
    about: InstanceFacts,
    /// The revision of its row, and when this revision was first seen.
    revision: Revision,
    changed: Instant,
}

/// The fault of a Master that is the only one.
pub(crate) fn alone() -> Fault {
    Fault::new(FaultCode::NotPermitted, "no other Master stands by")
        .advise("start a second one with the same [store] on another machine: docs/operations.md")
}

/// The status of a Master that cannot have others beside it.
pub(crate) fn single(
    enrolment: SocketAddr,
    term: u64,
    since: UnixMillis,
    authority: String,
) -> MasterStatus {
    MasterStatus {
        host: host(),
        enrolment,
        authority,
        role: MasterRole::Leads,
        term: Some(term),
        since,
        lag: 0,
    }
}

impl Masters {
    pub(super) fn new(candidate: Candidate) -> Self {
        // The Master knows itself before it has looked for others.
        let itself = Instance {
            name: candidate.name().to_owned(),
            about: candidate.about().clone(),
            revision: 0,
            changed: Instant::now(),
        };
        Self {
            name: candidate.name().to_owned(),
            candidate: tokio::sync::Mutex::new(candidate),
            known: Mutex::new(vec![itself]),
            handing_over: watch::Sender::new(false),
        }
    }

    /// The name of this instance.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Tells the others which CA this Master has.
    pub(super) async fn certifies_with(&self, name: &str, certificate: &[u8]) {
        let mut candidate = self.candidate.lock().await;
        candidate.certifies_with(name, certificate);
    }

    /// Renews the lease, and learns which instances are there.
    pub(super) async fn hold(self: Arc<Self>) {
        let mut looked: Option<Instant> = None;
        loop {
            let mut candidate = self.candidate.lock().await;
            let (pause, _) = candidate.go_on().await;
            if looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                looked = Some(Instant::now());
                match candidate.instances().await {
                    Ok(rows) => self.note(rows),
                    Err(error) => tracing::debug!(%error, "it is not known which Masters stand by"),
                }
            }
            drop(candidate);
            tokio::time::sleep(pause).await;
        }
    }

    /// Tells the desk and the nodes where Masters are. A Master that begins to lead calls the nodes at once, also nodes
    /// that know only the lost Master.
    pub(super) async fn follow(
        self: Arc<Self>,
        desk: DeskHandle,
        store: Arc<dyn Store>,
        master: Correspondent,
    ) {
        // The calls end with this set.
        let mut calls = JoinSet::new();
        let mut told: Option<Vec<String>> = None;
        let mut noted = BTreeMap::new();
        let began = Instant::now();
        let mut was_cut_off = false;
        loop {
            if let Err(error) = self.tell(&desk, &*store).await {
                tracing::debug!(%error, "the Masters' addresses could not be kept");
            }
            while calls.try_join_next().is_some() {}
            if let Ok((present, nodes)) = desk.run(|desk, _| Ok(to_call(desk))).await
                && told.as_ref() != Some(&present.addresses)
            {
                for node in nodes {
                    calls.spawn(call(master.clone(), node, present.clone()));
                }
                told = Some(present.addresses);
            }
            self.note_authorities(&desk, &mut noted).await;
            let is_cut_off = began.elapsed() > SETTLING && self.is_cut_off(&desk).await;
            // A single look may fall into the moment in which this Master or a node awakes.
            if std::mem::replace(&mut was_cut_off, is_cut_off) && is_cut_off {
                self.yield_role(&*store).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether this Master hears fewer than half of the nodes that it and the others hear.
    async fn is_cut_off(&self, desk: &DeskHandle) -> bool {
        let alarmed: BTreeSet<String> = {
            let known = self.known.lock();
            let others = known.iter().filter(|known| known.name != self.name);
            let present = others.filter(|known| known.changed.elapsed() < PRESENT);
            present
                .flat_map(|known| known.about.alarms.clone())
                .collect()
        };
        if alarmed.is_empty() {
            return false;
        }
        let hearing = desk.run(move |desk, now| Ok(Hearing::of(desk, &alarmed, now)));
        let Ok(Hearing { heard, missed }) = hearing.await else {
            return false;
        };
        let is_cut_off = missed > heard;
        if is_cut_off {
            tracing::warn!(
                heard,
                missed,
                "master-cut-off: this Master does not hear most of the nodes that are there"
            );
        }
        is_cut_off
    }

    /// Hands over, unless another Master that was cut off has done so lately. So the role does not go to and fro.
    async fn yield_role(&self, store: &dyn Store) {
        match may_yield(store).await {
            Ok(true) => {
                tracing::warn!("master-cut-off: this Master hands over to one that hears them");
                self.handing_over.send_replace(true);
            }
            Ok(false) => {
                tracing::warn!("master-cut-off: a Master handed over lately, so this one leads on");
            }
            Err(error) => {
                tracing::debug!(%error, "it is not known whether a Master has lately handed over");
            }
        }
    }

    /// Notes the CAs of the other Masters, so that they can be revoked.
    async fn note_authorities(&self, desk: &DeskHandle, noted: &mut BTreeMap<Fingerprint, bool>) {
        let (names, present): (Vec<String>, Vec<Vec<u8>>) = {
            let known = self.known.lock();
            let abouts = known.iter().map(|known| &known.about);
            let abouts = abouts.filter(|about| !about.certificate.0.is_empty());
            abouts
                .map(|about| (about.authority.clone(), about.certificate.0.clone()))
                .unzip()
        };
        let looking = desk.run(move |desk, now| {
            desk.ca.are_present(&names, timestamp(now));
            Ok(())
        });
        // An error means that the Master is ending.
        let _ = looking.await;
        note_each(desk, present, noted).await;
    }

    fn note(&self, rows: Vec<(String, Revision, InstanceFacts)>) {
        let mut known = self.known.lock();
        let before = std::mem::take(&mut *known);
        *known = present(before, rows, &self.name);
    }

    /// Tells nodes the addresses of all instances, including those that were there lately.
    async fn tell(&self, desk: &DeskHandle, store: &dyn Store) -> Result<(), StoreError> {
        let present: Vec<_> = {
            let known = self.known.lock();
            let present = known.iter().map(|known| known.about.enrolment.to_string());
            present.collect()
        };
        let told = desk.run(|desk, _| Ok(desk.masters.clone())).await;
        let Ok(told) = told else { return Ok(()) };
        if present.iter().all(|address| told.contains(address)) {
            return Ok(());
        }
        let all = united(present, told);
        keep_addresses(store, &all).await?;
        // An error means that the Master is ending.
        let telling = desk.run(move |desk, _| {
            desk.masters = all;
            Ok(())
        });
        let _ = telling.await;
        Ok(())
    }

    /// The Masters, the leader first, whose CA is `authority`.
    pub(crate) fn list(&self, term: u64, authority: &str) -> Vec<MasterStatus> {
        let known = self.known.lock();
        let mut list: Vec<_> = known
            .iter()
            .map(|known| {
                let leads = known.name == self.name;
                MasterStatus {
                    host: known.about.host.clone(),
                    enrolment: known.about.enrolment,
                    authority: match leads {
                        true => authority.to_owned(),
                        false => known.about.authority.clone(),
                    },
                    role: match leads {
                        true => MasterRole::Leads,
                        false => MasterRole::StandsBy,
                    },
                    term: leads.then_some(term),
                    since: known.about.since,
                    lag: known.changed.elapsed().as_millis() as u64,
                }
            })
            .collect();
        list.sort_by_key(|status| (status.role != MasterRole::Leads, status.enrolment));
        list
    }

    /// Whether another instance stands by.
    pub(crate) fn has_standby(&self) -> bool {
        self.known
            .lock()
            .iter()
            .any(|known| known.name != self.name)
    }

    /// The Master that has taken over, as advice to operators, if it is known.
    pub(super) async fn leader(&self) -> Option<String> {
        let looking = async { self.candidate.lock().await.other_leader().await };
        let about = timeout(LOOK, looking).await.ok()??;
        let (host, address) = (about.host, about.enrolment.ip());
        Some(format!(
            "the Master on {host} ({address}) leads now: run the command there"
        ))
    }

    /// Begins to hand over.
    ///
    /// # Errors
    /// [`FaultCode::NotPermitted`] if nobody stands by.
    pub(crate) fn hand_over(&self) -> Result<(), Fault> {
        if !self.has_standby() {
            return Err(alone());
        }
        self.handing_over.send_replace(true);
        Ok(())
    }

    /// Waits until this Master is to hand over.
    pub(super) async fn handing_over(&self) {
        // The sender is here.
        let _ = self.handing_over.subscribe().wait_for(|it| *it).await;
    }

    /// Leaves the role to others. If the store does not answer, the lease has ended by itself before this returns.
    pub(super) async fn give_back(&self) {
        let leaving = async { self.candidate.lock().await.give_back().await };
        let _ = timeout(Duration::from_millis(LIFE), leaving).await;
    }

    /// Tells the other Masters that the platform was ended.
    pub(super) async fn end(&self) {
        let ending = async { self.candidate.lock().await.end().await };
        if timeout(FAREWELL, ending).await.is_err() && self.has_standby() {
            tracing::warn!(
                "the store does not answer: Masters that stand by do not know that the platform was ended, and one of them will lead; \
                 end them, too"
            );
        }
    }
}

/// Notes the CAs with these certificates (DER). `noted` says of each whether that is done. A CA that could not be noted because
/// the deny list was full is noted later.
pub(super) async fn note_each(
    desk: &DeskHandle,
    present: Vec<Vec<u8>>,
    noted: &mut BTreeMap<Fingerprint, bool>,
) {
    let before = std::mem::take(noted);
    for der in present {
        let fingerprint = Fingerprint::of(&der);
        let before = before.get(&fingerprint).copied();
        let mut is_done = before == Some(true);
        if !is_done {
            let noting = desk.run(move |desk, now| desk.ca.note_authority(&der, timestamp(now)));
            let noting = noting.await;
            if let Err(fault) = &noting
                && before.is_none()
            {
                tracing::warn!(%fault, "the CA of a Master that stands by is not noted");
            }
            // A certificate that is not believed is not looked at again.
            is_done = noting.map_or_else(|fault| fault.code == FaultCode::BadRequest, |()| true);
        }
        noted.insert(fingerprint, is_done);
    }
}

/// The instances that have rows. The instance called `itself` is among them even if its lease, and with it its row, has
/// just ended.
fn present(
    before: Vec<Instance>,
    rows: Vec<(String, Revision, InstanceFacts)>,
    itself: &str,
) -> Vec<Instance> {
    let mut present: Vec<Instance> = Vec::with_capacity(rows.len() + 1);
    for (name, revision, about) in rows {
        let same = before
            .iter()
            .find(|it| it.name == name && it.revision == revision);
        present.push(Instance {
            changed: same.map_or_else(Instant::now, |same| same.changed),
            name,
            about,
            revision,
        });
    }
    if !present.iter().any(|it| it.name == itself) {
        present.extend(before.into_iter().find(|it| it.name == itself));
    }
    present
}

/// Whether no Master that was cut off from its nodes has handed over for a while. Notes that this one does.
async fn may_yield(store: &dyn Store) -> Result<bool, StoreError> {
    let row = store.get(YIELDED_ROW).await?;
    let last = row.and_then(|row| serde_json::from_slice::<UnixMillis>(&row.value).ok());
    let time = now();
    if last.is_some_and(|last| time.abs_diff(last) < BETWEEN) {
        return Ok(false);
    }
    let mut batch = Batch::new();
    batch.put(YIELDED_ROW, time.to_string());
    store.commit(batch).await.map(|_| true)
}

/// The facts about Masters that nodes must know, and those nodes.
fn to_call(desk: &mut Desk) -> (ask_node::Masters, Vec<String>) {
    let nodes = desk.state.nodes().iter();
    let nodes = nodes.filter(|(_, node)| !node.state.is_gone());
    let names = nodes.map(|(name, _)| name.clone()).collect();
    let masters = ask_node::Masters {
        addresses: desk.masters.clone(),
        at: MasterContact {
            control: desk.platform.control.clone(),
            services: desk.platform.master.clone(),
        },
    };
    (masters, names)
}

/// Calls a node where it was last. It may be away.
async fn call(master: Correspondent, node: String, present: ask_node::Masters) {
    for _ in 0..CALLS {
        if master.ask(&node, present.clone(), PATIENCE).await.is_ok() {
            return;
        }
    }
}

/// The first addresses, and then those that are only among the others. There are at most as many as a token may have.
fn united(first: Vec<String>, others: Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for address in first.into_iter().chain(others) {
        if !all.contains(&address) && all.len() < MOST_ADDRESSES {
            all.push(address);
        }
    }
    all
}

/// The addresses of the Masters, this one's first.
pub(super) async fn addresses(
    store: &dyn Store,
    own: SocketAddr,
) -> Result<Vec<String>, StoreError> {
    let kept = store.get(MASTERS_ROW).await?;
    let kept = kept.and_then(|entry| serde_json::from_slice::<Vec<String>>(&entry.value).ok());
    Ok(united(vec![own.to_string()], kept.unwrap_or_default()))
}

async fn keep_addresses(store: &dyn Store, addresses: &[String]) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    batch.put(
        MASTERS_ROW,
        serde_json::to_vec(addresses).unwrap_or_default(),
    );
    store.commit(batch).await.map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_master_whose_lease_has_ended_still_knows_itself() {
        let row = |name: &str, port: u16| {
            let about =
                json!({"host": "", "enrolment": format!("10.0.0.1:{port}"), "since": 0, "beat": 1});
            (name.to_owned(), 7, serde_json::from_value(about).unwrap())
        };
        let names = |known: &[Instance]| {
            let names = known.iter().map(|it| it.name.clone());
            names.collect::<Vec<_>>()
        };
        let both = present(Vec::new(), vec![row("one", 1), row("two", 2)], "one");
        assert_eq!(names(&both), ["one", "two"]);
        let left = present(both, vec![row("two", 2)], "one");
        assert_eq!(names(&left), ["two", "one"]);
        let left = present(left, vec![row("one", 1)], "one");
        assert_eq!(names(&left), ["one"]);
    }

    #[test]
    fn the_latest_addresses_stay_and_their_number_is_bounded() {
        let old = (1..20).map(|it| format!("10.0.0.{it}:1")).collect();
        let all = united(vec!["10.0.0.3:1".to_owned(), "10.0.1.1:1".to_owned()], old);
        assert_eq!(all.len(), MOST_ADDRESSES);
        assert_eq!(all[..3], ["10.0.0.3:1", "10.0.1.1:1", "10.0.0.1:1"]);
    }
}

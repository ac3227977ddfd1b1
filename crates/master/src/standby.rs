//! An instance of the Master on a shared store: it waits until it may lead, and holds the role while it leads.

pub(super) mod twins;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_control::clock::now;
use sealbus_control::{Blob, UnixMillis};
use sealbus_seal::Term;
use sealbus_store::etcd::{EtcdStore, InstanceRow, Lease};
use sealbus_store::{Fenced, Revision, StoreError, latest_term};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::claim::{Claimant, LIFE, Moment, Outcome, Role, Step};
use super::cut_off::StandbyAlarms;
use twins::{Itself, Twin};

/// The pause before a watch that has ended is begun anew.
const WATCHING_AGAIN: Duration = Duration::from_millis(500);

/// The facts that an instance tells about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InstanceFacts {
    /// The name of its machine.
    pub(super) host: String,
    /// The address at which nodes join once it leads.
    pub(super) enrolment: SocketAddr,
    /// Since when the instance has been there, or has led.
    pub(super) since: UnixMillis,
    /// Its CA's name, and the CA's certificate, DER.
    #[serde(default)]
    pub(super) authority: String,
    #[serde(default)]
    pub(super) certificate: Blob,
    /// The nodes that told this instance that they do not hear the leader.
    #[serde(default)]
    pub(super) alarms: Vec<String>,
    /// A number that changes with each renewal, so that others see that the instance is awake.
    beat: u64,
}

/// The row of the role, beside the instance's name.
#[derive(Serialize, Deserialize)]
struct Holding {
    /// The operator ended the platform.
    #[serde(default)]
    ended: bool,
}

/// An instance that may lead.
pub(super) struct Candidate {
    store: Arc<EtcdStore>,
    claimant: Claimant,
    began: Instant,
    lease: Option<Lease>,
    about: InstanceFacts,
    /// The latest term, as seen before the role.
    latest: (Term, Revision),
    /// The term that was claimed.
    claimed: Option<Fenced>,
    leads: bool,
    /// The instance that was seen to lead.
    leader: Option<String>,
    /// The nodes that do not hear the leader.
    alarms: Arc<StandbyAlarms>,
    /// The address at which nodes join the leader.
    pub(super) leader_at: watch::Sender<Option<SocketAddr>>,
    /// Whether the instance has looked, after it wrote its own row, for a twin that began in the same moment. Until then it may
    /// write nothing but this row.
    pub(super) alone: watch::Sender<bool>,
    /// Whether the store does not answer.
    pub(super) away: watch::Sender<bool>,
}

/// How the waiting ended.
pub(super) enum Election {
    /// This instance leads.
    Won(Fenced),
    /// The operator ended the platform.
    Over,
    /// Another instance leads, and this one may not stand by.
    OnBroker(String),
    /// The state is not restored completely, so nobody may lead.
    Restoring,
    /// A twin came first.
    Copied(Box<Twin>),
}

fn facts_of(row: &InstanceRow) -> Option<InstanceFacts> {
    serde_json::from_slice(&row.value).ok()
}

/// The name of this machine.
pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.unwrap_or_default().trim().to_owned()
}

fn as_row(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

impl Candidate {
    /// An instance that stands by from now on, and yields if it has just handed over.
    pub(super) fn new(
        store: Arc<EtcdStore>,
        enrolment: SocketAddr,
        own: Option<(String, Vec<u8>)>,
        alarms: Arc<StandbyAlarms>,
        yields: bool,
    ) -> Self {
        let (authority, certificate) = own.unwrap_or_default();
        Self {
            store,
            claimant: Claimant::new(yields, 0),
            began: Instant::now(),
            lease: None,
            about: InstanceFacts {
                host: host(),
                enrolment,
                since: now(),
                authority,
                certificate: Blob(certificate),
                alarms: Vec::new(),
                beat: 0,
            },
            latest: (Term::default(), 0),
            claimed: None,
            leads: false,
            leader: None,
            alarms,
            leader_at: watch::Sender::new(None),
            alone: watch::Sender::new(false),
            away: watch::Sender::new(false),
        }
    }

    fn now(&self) -> Moment {
        self.began.elapsed().as_millis() as Moment
    }

    /// Takes the next step. Returns how long there is nothing to do, or the outcome of the waiting.
    pub(super) async fn go_on(&mut self) -> (Duration, Option<Election>) {
        let now = self.now();
        let outcome = match self.claimant.step(now) {
            Step::Wait(until) => {
                return (
                    Duration::from_millis(until.saturating_sub(now).max(1)),
                    None,
                );
            }
            Step::Lead => {
                self.leads = true;
                self.about.since = sealbus_control::clock::now();
                return (Duration::ZERO, self.claimed.take().map(Election::Won));
            }
            Step::Over => return (Duration::ZERO, Some(Election::Over)),
            Step::Lease => match self.get_lease().await {
                Ok(leased) => Outcome::Leased(leased),
                Err(twin) => return (Duration::ZERO, Some(Election::Copied(twin))),
            },
            Step::Renew => Outcome::Renewed(self.renew().await),
            Step::Look => self.look().await,
            Step::Take { seen } => {
                let holding = as_row(&Holding { ended: false });
                let taken = self.store.take_role(&holding, seen, self.lease).await;
                Outcome::Taken(self.heard(taken).unwrap_or(false))
            }
            Step::Claim { .. } => {
                let claimed = Fenced::claim_after(self.store.clone(), self.latest).await;
                if matches!(claimed, Err(StoreError::Restoring)) {
                    return (Duration::ZERO, Some(Election::Restoring));
                }
                self.claimed = self.heard(claimed);
                Outcome::Claimed(self.claimed.is_some())
            }
            Step::GiveBack => {
                self.give_back().await;
                Outcome::GivenBack
            }
        };
        match outcome {
            Outcome::Leased(false) | Outcome::Renewed(None) | Outcome::Unseen => {
                self.away.send_replace(true);
            }
            Outcome::Leased(true) | Outcome::Renewed(Some(_)) | Outcome::Seen { .. } => {
                self.away.send_replace(false);
            }
            Outcome::Taken(_) | Outcome::Claimed(_) | Outcome::GivenBack => {}
        }
        self.claimant.note(outcome, self.now());
        (Duration::ZERO, None)
    }

    fn heard<T>(&self, result: Result<T, StoreError>) -> Option<T> {
        result
            .inspect_err(|error| tracing::debug!(%error, "the role of the Master"))
            .ok()
    }

    /// Gets a lease for this instance's row. Returns whether there is one, or the twin that came first.
    async fn get_lease(&mut self) -> Result<bool, Box<Twin>> {
        let is_alone = self.is_alone();
        self.lease = match self.lease.filter(|_| !is_alone) {
            // The store did not answer before this instance had looked for twins. Its row hangs on this lease.
            Some(lease) => match self.heard(self.store.renew(lease).await) {
                Some(lives) => lives.then_some(lease),
                None => return Ok(false),
            },
            None => self.heard(self.store.lease(Duration::from_millis(LIFE)).await),
        };
        let Some(lease) = self.lease else {
            return Ok(false);
        };
        let written = self.announce(lease).await;
        if is_alone {
            return Ok(true);
        }
        let Some(rows) = self.heard(self.store.instances().await) else {
            return Ok(false);
        };
        let own = &self.about.certificate.0;
        let has_row = match Itself::new(self.name(), own).earlier_twin(&rows, lease) {
            Some(Some(twin)) => return Err(Box::new(twin)),
            Some(None) => true,
            // Nobody can read the row that is there. The next one takes its place.
            None if written == Some(false) => false,
            None => return Ok(false),
        };
        let cleared = self.heard(self.store.clear().await);
        // The removal may take longer than the lease lives, and another instance may come meanwhile.
        if cleared.is_none() || self.heard(self.store.renew(lease).await) != Some(true) {
            return Ok(false);
        }
        self.alone.send_replace(true);
        Ok(has_row)
    }

    fn is_alone(&self) -> bool {
        *self.alone.borrow()
    }

    async fn renew(&mut self) -> Option<bool> {
        let lease = self.lease?;
        let lives = self.heard(self.store.renew(lease).await)?;
        if lives {
            self.announce(lease).await;
            self.find_leader().await;
        }
        Some(lives)
    }

    async fn announce(&mut self, lease: Lease) -> Option<bool> {
        self.about.beat += 1;
        self.about.alarms = self.alarms.latest();
        let row = as_row(&self.about);
        // A twin must not take the other twin's row.
        let written = self.store.announce(&row, lease, !self.is_alone()).await;
        self.heard(written)
    }

    /// The facts about another instance that holds the role now.
    pub(super) async fn other_leader(&self) -> Option<InstanceFacts> {
        self.heard(other_leader(&self.store).await)?
    }

    /// Learns where the leader is, while this instance stands by.
    async fn find_leader(&mut self) {
        let (false, Some(leader)) = (self.leads, &self.leader) else {
            return;
        };
        if let Some(instances) = self.heard(self.instances().await) {
            let row = instances.iter().find(|(name, ..)| name == leader);
            self.leader_at
                .send_replace(row.map(|(.., about)| about.enrolment));
        }
    }

    async fn look(&mut self) -> Outcome {
        // The term comes first. If another instance claims in between, our claim fails.
        if !self.leads {
            match self.heard(latest_term(&*self.store).await) {
                Some(latest) => self.latest = latest,
                None => return Outcome::Unseen,
            }
        }
        let Some(row) = self.heard(self.store.role().await) else {
            return Outcome::Unseen;
        };
        let role = match &row {
            None => Role::Nobody,
            Some(row) if has_ended(row) => Role::Ended(row.revision),
            Some(row) if row.instance == self.store.instance() => Role::Mine(row.revision),
            Some(row) => {
                self.leader = Some(row.instance.clone());
                Role::Others
            }
        };
        let (_, term) = self.latest;
        Outcome::Seen { term, role }
    }

    /// Ends the lease, so that another instance may lead at once.
    pub(super) async fn give_back(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.heard(self.store.end_lease(lease).await);
        }
    }

    /// Tells the instances that stand by that the platform was ended.
    pub(super) async fn end(&mut self) {
        if let Some(Some(row)) = self.heard(self.store.role().await)
            && row.instance == self.store.instance()
        {
            let ended = as_row(&Holding { ended: true });
            self.heard(self.store.take_role(&ended, row.revision, None).await);
        }
        self.give_back().await;
    }

    /// The instances that are there, with what they say.
    pub(super) async fn instances(
        &self,
    ) -> Result<Vec<(String, Revision, InstanceFacts)>, StoreError> {
        let rows = self.store.instances().await?.into_iter();
        let read = |row: InstanceRow| {
            let about = facts_of(&row)?;
            Some((row.instance, row.revision, about))
        };
        Ok(rows.filter_map(read).collect())
    }

    /// From now on tells others this instance's CA, with the CA's certificate. An instance that begins the platform has its
    /// CA only once it leads.
    pub(super) fn certifies_with(&mut self, name: &str, certificate: &[u8]) {
        self.about.authority = name.to_owned();
        self.about.certificate = Blob(certificate.to_vec());
    }

    /// Waits until this instance leads or the platform is ended. `waits` is called once if another instance leads and
    /// this one `may_wait` for it.
    pub(super) async fn wait(&mut self, mut waits: impl FnMut(&str), may_wait: bool) -> Election {
        let changed = Notify::new();
        let store = self.store.clone();
        let watching = async {
            loop {
                let error = store.watch_role(&changed).await;
                tracing::debug!(%error, "the role of the Master is not watched");
                tokio::time::sleep(WATCHING_AGAIN).await;
            }
        };
        let waiting = async {
            let mut is_told = false;
            loop {
                let (pause, election) = self.go_on().await;
                if let Some(election) = election {
                    return election;
                }
                if self.claimant.stood_by() && !is_told {
                    is_told = true;
                    let leader = self.leader.clone().unwrap_or_default();
                    if !may_wait {
                        return Election::OnBroker(leader);
                    }
                    waits(&leader);
                }
                let timely = tokio::time::timeout(pause, changed.notified()).await;
                if timely.is_ok() {
                    let now = self.now();
                    self.claimant.changed(now);
                }
            }
        };
        tokio::select! {
            election = waiting => election,
            () = watching => Election::Over,
        }
    }

    /// Whether another instance was seen to lead.
    pub(super) fn stood_by(&self) -> bool {
        self.claimant.stood_by()
    }

    /// The facts that this instance tells about itself.
    pub(super) fn about(&self) -> &InstanceFacts {
        &self.about
    }

    /// The name of this instance.
    pub(super) fn name(&self) -> &str {
        self.store.instance()
    }
}

/// The facts about an instance beside this one that holds the role now.
///
/// # Errors
/// If the store cannot be read.
pub(super) async fn other_leader(store: &EtcdStore) -> Result<Option<InstanceFacts>, StoreError> {
    let Some(role) = store.role().await? else {
        return Ok(None);
    };
    if role.instance == store.instance() {
        return Ok(None);
    }
    let rows = store.instances().await?;
    let leader = rows.iter().find(|row| row.instance == role.instance);
    Ok(leader.and_then(facts_of))
}

fn has_ended(row: &InstanceRow) -> bool {
    serde_json::from_slice::<Holding>(&row.value).is_ok_and(|holding| holding.ended)
}

/// Reads any bytes as the facts about an instance, and as the row of the role, for the fuzz target.
///
/// # Panics
/// If the facts are written and read again as other facts.
pub fn check_instance(value: &[u8]) {
    if let Ok(about) = serde_json::from_slice::<InstanceFacts>(value) {
        let again = serde_json::from_slice::<InstanceFacts>(&as_row(&about));
        assert_eq!(again.ok(), Some(about));
    }
    if let Ok(holding) = serde_json::from_slice::<Holding>(value) {
        let again = serde_json::from_slice::<Holding>(&as_row(&holding));
        assert_eq!(again.ok().map(|it| it.ended), Some(holding.ended));
    }
}

//! The CA of a Master that stands by. While the store does not answer, nobody may lead, and this CA renews certificates at the
//! request of nodes. It revokes at an operator's order at any time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealbus_ca::{Blind, CaService, Renewal, Request, Unstored};
use sealbus_control::authority::IssuedChain;
use sealbus_control::clock::{now, timestamp};
use sealbus_control::statement::{Signed, Vouching};
use sealbus_control::word::{Reply, Word};
use sealbus_control::{Blob, Fault, FaultCode, Subject};
use sealbus_seal::denylist::{DenyListError, SignedDenyList};
use sealbus_seal::{CertificateChain, Identity, PlatformName, SecurityLevel, Trust};
use sealbus_store::etcd::EtcdStore;
use sealbus_store::{Store, StoreError};
use tokio::sync::{Mutex, Notify, watch};

use super::authorities::Authorities;
use super::cut_off::StandbyAlarms;
use super::foundation::PlatformSettings;
use super::master_error::MasterError;
use super::unstored::{Ledger, UNSTORED_ROW, row_of};

/// How often the CA brings its acts to the store, and learns of denials.
const LOOK: Duration = Duration::from_secs(1);
/// How long a revocation may take until a Master that leads has taken it in. After this time all nodes that hear no such Master
/// have asked for the revocation.
const IN_FORCE: Duration = Duration::from_secs(4);
/// How often the store is asked whether a revocation was taken in.
const PAUSE: Duration = Duration::from_millis(100);
/// Rows that are read at a time.
const PAGE: usize = 64;
/// The most pages of acts that are read each time.
const PAGES: usize = 16;

/// The CA, with its file of acts.
pub(super) struct BlindCa {
    platform: PlatformName,
    level: SecurityLevel,
    name: String,
    trust: Arc<Trust>,
    ca: Arc<Mutex<Blind>>,
    ledger: Arc<Ledger>,
    /// There is something to bring to the store at once.
    has_revoked: Notify,
    /// Whether the store does not answer.
    away: watch::Receiver<bool>,
    alarms: Arc<StandbyAlarms>,
}

impl BlindCa {
    /// The CA in a state directory. It goes on from its earlier acts.
    ///
    /// # Errors
    /// If its files cannot be read.
    pub(super) fn open(
        directory: &Path,
        settings: &PlatformSettings,
        trust: Arc<Trust>,
        away: watch::Receiver<bool>,
        alarms: Arc<StandbyAlarms>,
    ) -> Result<Self, MasterError> {
        let ledger = Ledger::open(directory).map_err(|error| MasterError::Directory {
            path: directory.to_owned(),
            error,
        })?;
        let authorities = Authorities::keep(
            directory,
            &settings.name,
            settings.signatures,
            timestamp(now()),
        )?;
        let authority = authorities.issuing;
        let (platform, name) = (settings.name.clone(), authority.name().to_owned());
        let mut ca = Blind::new(authority, trust.clone(), settings.certificate_lifetime);
        if let Err(fault) = ca.restore(&ledger.acts(), timestamp(now())) {
            tracing::error!(%fault, "not all that was revoked while the store was away is denied");
        }
        Ok(Self {
            platform,
            level: settings.level,
            name,
            trust,
            ca: Arc::new(Mutex::new(ca)),
            ledger,
            has_revoked: Notify::new(),
            away,
            alarms,
        })
    }

    /// Replies to a node.
    pub(super) async fn reply(&self, word: Word) -> Reply {
        match word {
            Word::Alarm { statement, known } => {
                if !self.alarms.note(&statement, now()) {
                    let message = "the alarm is not believed";
                    return Reply::Refused(Fault::new(FaultCode::NotPermitted, message));
                }
                let mut ca = self.ca.lock().await;
                let known = known.iter().find(|(of, _)| of == ca.identity());
                let known = known.map_or(0, |(_, version)| *version);
                if let Err(fault) = ca.is_held(known, timestamp(now())) {
                    tracing::warn!(%fault, "nodes hold a later deny list of this CA");
                }
                Reply::Noted {
                    deny_list: ca.deny_list_after(known).map(Blob),
                }
            }
            Word::Renew { voucher } => match self.renew(&voucher).await {
                Ok(chain) => Reply::Renewed { chain },
                Err(fault) => {
                    tracing::debug!(%fault, "no certificate was renewed");
                    Reply::Refused(fault)
                }
            },
        }
    }

    async fn renew(&self, voucher: &Signed) -> Result<IssuedChain, Fault> {
        if !*self.away.borrow() {
            let message = "this Master stands by for the one that leads";
            return Err(Fault::new(FaultCode::Unavailable, message));
        }
        sealbus_ca::check_level(self.level)?;
        let time = now();
        let (node, vouching) = voucher
            .open::<Vouching>(&self.trust, time)
            .map_err(|error| error.fault(FaultCode::Unavailable, "the node tries again"))?;
        let bad =
            |error: &dyn std::error::Error| Fault::new(FaultCode::BadRequest, error.to_string());
        let held = vouching.held.unwrap_or_default();
        let held = CertificateChain::decode(&held.0).map_err(|error| bad(&error))?;
        let name = node.identity().node_name();
        let name = name.map(ToString::to_string).unwrap_or_default();
        let process = vouching.process.as_str();
        let wanted = match &vouching.subject {
            Subject::Agent { name } => Identity::agent(&self.platform, name),
            Subject::Process => process
                .parse()
                .and_then(|process| Identity::process(&self.platform, &name, process)),
        };
        let wanted = wanted.map_err(|error| bad(&error))?;
        let request = Request {
            node: &node,
            wanted: &wanted,
            process: Some(process),
            request: &vouching.request.0,
        };
        let renewal = Renewal {
            request,
            held: &held,
        };
        // Requests are handled one after another. Nobody sees a certificate before it is kept, even if the node that asked
        // first has gone meanwhile.
        let mut ca = self.ca.clone().lock_owned().await;
        let (chain, act) = ca.renew(&renewal, vouching.at, timestamp(time))?;
        if let Some(act) = act {
            let ledger = self.ledger.clone();
            let keeping = tokio::spawn(async move {
                let kept = ledger.keep(act).await;
                if kept.is_err() {
                    ca.forget_answers();
                }
                kept
            });
            keeping.await.map_err(Fault::internal).flatten()?;
        }
        tracing::info!(target: "sealbus::certification", %wanted, node = %name,
            "renewed a certificate while the store is away");
        Ok(IssuedChain::from(&chain))
    }

    /// Revokes by an operator's order. Returns when the revocation is in force, and whether a Master that leads has taken it in.
    /// If none has, the revocation is in force at all nodes that do not hear one.
    ///
    /// # Errors
    /// As [`Blind::revoke`].
    pub(super) async fn revoke(
        &self,
        what: &str,
        said: &str,
        store: &dyn Store,
    ) -> Result<bool, Fault> {
        let (name, row) = {
            let mut ca = self.ca.lock().await;
            let act = ca.revoke(what, said, timestamp(now()))?;
            tracing::warn!(%what, reason = said, "revoked by an operator");
            let name = self.ledger.keep(act.clone()).await?;
            let row = row_of(&self.name, &name, &act);
            (name, row)
        };
        self.has_revoked.notify_one();
        let taking_in = async {
            while self.ledger.has(&name) || !matches!(store.get(&row).await, Ok(None)) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let taken_in = tokio::time::timeout(IN_FORCE, taking_in).await;
        Ok(taken_in.is_ok())
    }

    /// Learns all denials. A CA that was started anew renews nothing before.
    ///
    /// # Errors
    /// If the store cannot be read, or its deny list is damaged.
    pub(super) async fn learn(&self, store: &dyn Store) -> Result<(), StoreError> {
        self.learn_denials(store, &mut None).await?;
        let mut last = None;
        loop {
            self.learn_acts(store, &mut last).await?;
            if last.is_none() {
                return Ok(());
            }
        }
    }

    /// Brings this CA's acts to the store, and learns the denials of others.
    pub(super) async fn follow(&self, store: &EtcdStore) {
        let (mut last, mut unstored) = (None, None);
        loop {
            if let Err(error) = self.ledger.hand_in(store, &self.name).await {
                tracing::debug!(%error, "the acts of the CA are not stored yet");
            }
            if let Err(error) = self.learn_denials(store, &mut last).await {
                tracing::debug!(%error, "the denials are not known");
            }
            if let Err(error) = self.learn_acts(store, &mut unstored).await {
                tracing::debug!(%error, "the revocations of other CAs are not known");
            }
            // An error means that the time has passed.
            let _ = tokio::time::timeout(LOOK, self.has_revoked.notified()).await;
        }
    }

    /// Reads the rows of the deny list after the one called `last`. If the store fails in between, the next look begins where
    /// this one began, and if the rows do not fit together, at the first row.
    async fn learn_denials(
        &self,
        store: &dyn Store,
        last: &mut Option<String>,
    ) -> Result<(), StoreError> {
        let mut kept: Option<SignedDenyList> = None;
        let mut read = last.clone();
        let mut is_all = false;
        while !is_all {
            let rows = store.scan(CaService::DENY_LIST_ROW, read.as_deref(), PAGE);
            let rows = rows.await?;
            is_all = rows.len() < PAGE;
            for (key, entry) in rows {
                let (list, time) = (&entry.value, timestamp(now()));
                if self.trust.apply_deny_list(list, time).is_err() {
                    // It is in force all the same: only a later list of its CA, or the end of a certificate, keeps it out.
                    match self.trust.open_kept_deny_list(list, kept.as_deref()) {
                        Ok(opened) => kept = Some(opened),
                        // Nobody believes a CA that was revoked.
                        Err(DenyListError::NotTrusted(_)) => {}
                        Err(error) => {
                            // The whole list comes first among the rows.
                            *last = None;
                            let detail = error.to_string();
                            return Err(StoreError::DamagedRow { key, detail });
                        }
                    }
                }
                read = Some(key);
            }
        }
        if let Some(kept) = kept
            && let Err(fault) = self.ca.lock().await.take_over(&kept, timestamp(now()))
        {
            tracing::warn!(%fault, "not all that the stored deny list denies is denied here");
        }
        *last = read;
        Ok(())
    }

    /// Denies the identities that other CAs revoked, and those that this CA revoked before it handed that in, while no
    /// Master that leads has taken the acts in. Goes on after the row called `last`, and begins anew at the end, because
    /// there is no order among the rows of several CAs.
    async fn learn_acts(
        &self,
        store: &dyn Store,
        last: &mut Option<String>,
    ) -> Result<(), StoreError> {
        for _ in 0..PAGES {
            let rows = store.scan(UNSTORED_ROW, last.as_deref(), PAGE).await?;
            *last = match rows.len() < PAGE {
                true => None,
                false => rows.last().map(|(key, _)| key.clone()),
            };
            let acts = rows
                .iter()
                .map(|(_, row)| serde_json::from_slice(&row.value));
            let acts: Vec<Unstored> = acts.filter_map(Result::ok).collect();
            if let Err(fault) = self.ca.lock().await.restore(&acts, timestamp(now())) {
                tracing::warn!(%fault, "not all that other CAs revoked is denied here");
            }
            if last.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// The file of the CA's acts.
    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Whether the store does not answer.
    pub(super) fn is_away(&self) -> bool {
        *self.away.borrow()
    }
}

#[cfg(test)]
mod tests {
    mod denials;

    use std::net::IpAddr;
    use std::pin::pin;
    use std::sync::mpsc;

    use futures_util::FutureExt;
    use sealbus_seal::issuance::Grant;
    use sealbus_seal::{
        CLOCK_SKEW, Credential, KeyPair, Name, ProcessId, SigningRequest, Validity,
    };
    use sealbus_store::{Batch, MemoryStore};

    use super::*;

    /// A CA with state in this folder, and the trust in which its denials are in force.
    fn started(folder: &Path) -> (BlindCa, Arc<Trust>) {
        let settings = PlatformSettings::new(PlatformName::new("factory").unwrap());
        let time = timestamp(now());
        let authorities = Authorities::keep(folder, &settings.name, None, time).unwrap();
        let roots = [authorities.root.into()];
        let trust = Arc::new(Trust::new(settings.name.clone(), &roots, CLOCK_SKEW).unwrap());
        let (_tell, away) = watch::channel(false);
        let alarms = Arc::new(StandbyAlarms::new(None));
        let ca = BlindCa::open(folder, &settings, trust.clone(), away, alarms).unwrap();
        (ca, trust)
    }

    /// A node asks for a new certificate of its agent `seller`.
    fn voucher(folder: &Path) -> Signed {
        let platform = PlatformName::new("factory").unwrap();
        let (time, here) = (timestamp(now()), IpAddr::from([127, 0, 0, 1]));
        let authorities = Authorities::keep(folder, &platform, None, time).unwrap();
        let issue = |grant: Grant| {
            let key = KeyPair::generate().unwrap();
            let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
            let validity = Validity::starting(time, Duration::from_secs(3600));
            let issued = authorities.issuing.issue(&grant, &request, validity);
            Credential::new(key, issued.unwrap().chain).unwrap()
        };
        let node = Identity::node(&platform, "node-1").unwrap();
        let node = issue(Grant::by_operator(node, here));
        let process = ProcessId::random().unwrap();
        let seller = Grant::by_operator(Identity::agent(&platform, "seller").unwrap(), here);
        let held = issue(seller.to_process(process, Name::new("node", "node-1").unwrap()));
        let mut chain = Vec::new();
        held.chain().encode(&mut chain);
        let vouching = Vouching {
            process: process.to_string(),
            subject: Subject::Agent {
                name: "seller".to_owned(),
            },
            request: Blob(KeyPair::generate().unwrap().signing_request().unwrap()),
            held: Some(Blob(chain)),
            at: now(),
        };
        Signed::sign(&vouching, &node).unwrap()
    }

    #[test]
    fn nobody_sees_a_certificate_before_it_is_kept_although_its_first_asker_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (mut ca, _) = started(folder.path());
        ca.away = watch::channel(true).1;
        let voucher = voucher(folder.path());
        // One thread writes to the disk, and it is busy.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (release, released) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || released.recv().is_ok());
            assert!(ca.renew(&voucher).now_or_never().is_none());
            let mut again = pin!(ca.renew(&voucher));
            for _ in 0..10 {
                assert!(again.as_mut().now_or_never().is_none());
                tokio::task::yield_now().await;
            }
            assert!(ca.ledger.acts().is_empty());
            release.send(()).unwrap();
            again.await.unwrap();
            assert_eq!(ca.ledger.acts().len(), 1);
            assert!(busy.await.unwrap());
        });
    }

    fn is_denied(trust: &Trust, name: &str) -> bool {
        let agent = Identity::agent(trust.platform(), name).unwrap();
        trust.denied_before(&agent).is_some()
    }

    #[tokio::test]
    async fn a_revocation_is_answered_once_the_leader_has_taken_it_in() {
        let folder = tempfile::tempdir().unwrap();
        let store = MemoryStore::new();
        let (ca, _) = started(folder.path());
        let (is_stored, ()) = tokio::join!(ca.revoke("thief", "stolen", &store), async {
            ca.has_revoked.notified().await;
            ca.ledger.hand_in(&store, &ca.name).await.unwrap();
            let mut taken_in = Batch::new();
            for (row, _) in store.scan(UNSTORED_ROW, None, PAGE).await.unwrap() {
                taken_in.delete(row);
            }
            store.commit(taken_in).await.unwrap();
        });
        assert!(is_stored.unwrap());
    }

    #[tokio::test]
    async fn a_ca_that_is_started_anew_denies_what_it_handed_in_and_nobody_has_taken_in() {
        let folder = tempfile::tempdir().unwrap();
        let store = MemoryStore::new();
        let (ca, _) = started(folder.path());
        let handing_in = async {
            ca.has_revoked.notified().await;
            ca.ledger.hand_in(&store, &ca.name).await.unwrap();
        };
        tokio::select! {
            answered = ca.revoke("thief", "stolen", &store) => panic!("{answered:?}"),
            () = handing_in => assert!(ca.ledger.acts().is_empty()),
        }
        drop(ca);
        let (ca, trust) = started(folder.path());
        ca.learn(&store).await.unwrap();
        assert!(is_denied(&trust, "thief"));
        assert!(ca.ca.lock().await.deny_list_after(0).is_some());
    }

    /// However many acts of other CAs wait in the store, the revocations among them are found.
    #[tokio::test]
    async fn what_no_master_has_taken_in_is_denied() {
        let folder = tempfile::tempdir().unwrap();
        let (ca, trust) = started(folder.path());
        let time = timestamp(now());

        let store = MemoryStore::new();
        let mut batch = Batch::new();
        let mut put = |authority: &str, number: usize, act: &Unstored| {
            let key = format!("{UNSTORED_ROW}{authority}/{number:016x}");
            batch.put(key, serde_json::to_vec(act).unwrap());
        };
        let renewed = Unstored::Renewed {
            chain: Blob(Vec::new()),
            node: "node-1".to_owned(),
            process: String::new(),
            at: time,
        };
        for number in 0..PAGE * PAGES + 1 {
            put("ca-2", number, &renewed);
        }
        let revoked = |what: &str| Unstored::Revoked {
            what: what.to_owned(),
            said: String::new(),
            at: time,
        };
        put("ca-3", 1, &revoked("thief"));
        store.commit(batch).await.unwrap();
        let mut last = None;
        for is_found in [false, true] {
            ca.learn_acts(&store, &mut last).await.unwrap();
            assert_eq!(is_denied(&trust, "thief"), is_found);
        }
        // A later act of an earlier CA is found, too.
        let mut batch = Batch::new();
        let row = serde_json::to_vec(&revoked("other")).unwrap();
        batch.put(format!("{UNSTORED_ROW}ca-1/1"), row);
        store.commit(batch).await.unwrap();
        for is_found in [false, true] {
            assert_eq!(is_denied(&trust, "other"), is_found);
            ca.learn_acts(&store, &mut last).await.unwrap();
        }
    }
}

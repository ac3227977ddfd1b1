mod authorities;
mod blind;
mod blind_denials;
mod events;
mod full;
mod listed;
mod long_lived;
mod restored;
mod senders;
mod shares;
mod statements;
mod workload;

use std::net::{IpAddr, Ipv4Addr};

use sealbus_seal::denylist::SERIAL_ENTRY;
use sealbus_seal::{
    Credential, Fingerprint, KeyPair, Name, PlatformName, ProcessId, RootAuthority,
};
use sealbus_transparency::{LogError, LogFile, MerkleLog, leaf_hash};

use super::*;

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct On(&'static str);

impl Placements for On {
    fn is_member(&self, _: &Name) -> bool {
        true
    }

    fn node_of(&self, agent: &Name) -> Option<Name> {
        (agent.as_str() == "seller").then(|| Name::new("node", self.0).unwrap())
    }
}

fn platform() -> PlatformName {
    PlatformName::new("factory").unwrap()
}

fn root() -> RootAuthority {
    RootAuthority::create(&platform(), Validity::starting(NOW, HOUR * 1000)).unwrap()
}

fn service(root: &RootAuthority) -> CaService {
    let trust = Trust::new(
        platform(),
        &[root.certificate().clone()],
        Duration::from_secs(10),
    )
    .unwrap();
    let authority = root
        .create_authority("ca", Validity::starting(NOW, HOUR * 100))
        .unwrap();
    CaService::load(authority, Arc::new(trust), HOUR, [], None, NOW).unwrap()
}

/// The rows of a service that has written none yet.
fn stored(service: &mut CaService) -> BTreeMap<String, Vec<u8>> {
    let rows = service.take_rows().into_iter();
    rows.filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

/// A service that goes on from these rows.
fn loaded(
    authority: IssuingAuthority,
    trust: Arc<Trust>,
    stored: &BTreeMap<String, Vec<u8>>,
    now: Timestamp,
) -> CaService {
    let rows = stored
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()));
    CaService::load(authority, trust, HOUR, rows, None, now).unwrap()
}

fn node(service: &mut CaService) -> Credential {
    let key = KeyPair::generate().unwrap();
    let identity = Identity::node(&platform(), "node-1").unwrap();
    let request = key.signing_request().unwrap();
    let chain = service
        .certify_own(identity, HERE, None, &request, HOUR, NOW)
        .unwrap();
    Credential::new(key, chain).unwrap()
}

#[test]
fn only_what_is_placed_on_the_node_is_certified_and_refusals_are_kept() {
    let root = root();
    let mut service = service(&root);
    let node = node(&mut service);
    let vouches = service.trust().verify(node.chain(), NOW).unwrap();
    let key = KeyPair::generate().unwrap();
    let csr = key.signing_request().unwrap();
    let seller = Identity::agent(&platform(), "seller").unwrap();
    let request = Request {
        node: &vouches,
        wanted: &seller,
        process: Some("p"),
        request: &csr,
    };
    let chain = service.certify(&request, &On("node-1"), NOW).unwrap();
    assert_eq!(
        *service.trust().verify(&chain, NOW).unwrap().identity(),
        seller
    );
    let elsewhere = service.certify(&request, &On("node-2"), NOW).unwrap_err();
    assert_eq!(elsewhere.code, FaultCode::NotPlaced);
    let events = service.events().since(0, 100);
    let steps: Vec<u8> = events.iter().map(|event| event.step).collect();
    assert_eq!(steps, [5, 3, 4, 5, 3, 4, 0]);
    assert!(events[6].what.contains("node-2"), "{}", events[6].what);
}

#[test]
fn what_is_revoked_is_not_believed_and_stays_so_after_a_restart() {
    let root = root();
    let mut first = service(&root);
    let node = node(&mut first);
    let vouches = first.trust().verify(node.chain(), NOW).unwrap();
    let key = KeyPair::generate().unwrap();
    let csr = key.signing_request().unwrap();
    let seller = Identity::agent(&platform(), "seller").unwrap();
    let request = Request {
        node: &vouches,
        wanted: &seller,
        process: Some("p"),
        request: &csr,
    };
    let chain = first.certify(&request, &On("node-1"), NOW).unwrap();
    assert!(
        first
            .revoke_process("p", None, Reason::Killed, NOW)
            .unwrap()
    );
    first.publish(NOW).unwrap();
    assert!(
        first
            .trust()
            .verify(&chain, NOW)
            .unwrap_err()
            .to_string()
            .contains("revoked")
    );
    assert!(
        !first
            .revoke_process("p", None, Reason::Killed, NOW)
            .unwrap()
    );

    let rows = stored(&mut first);
    let trust = Trust::new(
        platform(),
        &[root.certificate().clone()],
        Duration::from_secs(10),
    )
    .unwrap();
    let CaService { authority, log, .. } = first;
    let rows = rows
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()));
    let mut again =
        CaService::load(authority, Arc::new(trust), HOUR, rows.clone(), None, NOW).unwrap();
    assert_eq!(again.log.tree(), log.tree());
    assert!(again.trust().verify(&chain, NOW).is_err());
    // A new certificate of the same agent is good.
    let renewed = again.certify(&request, &On("node-1"), NOW).unwrap();
    assert!(again.trust().verify(&renewed, NOW).is_ok());

    let gap = rows.filter(|(key, _)| !key.ends_with("0000000000000000"));
    let CaService {
        authority, trust, ..
    } = again;
    let error = CaService::load(authority, trust, HOUR, gap, None, NOW)
        .err()
        .unwrap();
    assert!(
        matches!(error, CaServiceError::LogGap { index: 0 }),
        "{error}"
    );
}

/// Has the CA certify an agent in a process of its own.
fn certified(service: &mut CaService, node: &Credential, process: &str) -> Result<(), Fault> {
    certified_at(service, node, process, NOW)
}

fn certified_at(
    service: &mut CaService,
    node: &Credential,
    process: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let vouches = service.trust().verify(node.chain(), NOW).unwrap();
    let request = Request {
        node: &vouches,
        wanted: &Identity::agent(&platform(), "seller").unwrap(),
        process: Some(process),
        request: &KeyPair::generate().unwrap().signing_request().unwrap(),
    };
    service.certify(&request, &On("node-1"), now).map(|_| ())
}

#[test]
fn what_is_revoked_together_is_signed_once() {
    let root = root();
    let mut service = service(&root);
    let node = node(&mut service);
    for process in 0..20 {
        certified(&mut service, &node, &process.to_string()).unwrap();
    }
    let version = service.deny_list_version();
    for process in 0..20 {
        let process = process.to_string();
        assert!(
            service
                .revoke_process(&process, None, Reason::NodeLost, NOW)
                .unwrap()
        );
        assert_eq!(service.deny_list_version(), version);
    }
    service.take_rows();
    service.publish(NOW).unwrap();
    assert!(service.deny_list_version() > version);
    assert_eq!(service.trust().deny_lists()[0].serials().count(), 20);
    assert_eq!(service.take_rows().len(), 1);
    // There is nothing new to sign.
    service.publish(NOW).unwrap();
    assert!(service.take_rows().is_empty());
}

/// However long the deny list is, a revocation writes and sends its own entry. The rows written together are the whole
/// list.
#[test]
fn a_revocation_costs_its_entry() {
    let root = root();
    let mut service = service(&root);
    let node = node(&mut service);
    let mut written: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut write = |service: &mut CaService| {
        let mut bytes = 0;
        for (key, value) in service.take_rows() {
            match value {
                Some(value) => {
                    if key.starts_with(DENY_LIST_ROW) {
                        bytes += value.len();
                    }
                    written.insert(key, value);
                }
                None => {
                    written.remove(&key);
                }
            }
        }
        let rows = written.keys().filter(|key| key.starts_with(DENY_LIST_ROW));
        assert!(rows.count() <= revocation::MOST_ROWS);
        bytes
    };
    let revoke = |service: &mut CaService, process: &str| {
        certified(service, &node, process).unwrap();
        service
            .revoke_process(process, None, Reason::Killed, NOW)
            .unwrap();
    };
    for process in 0..2_000 {
        revoke(&mut service, &process.to_string());
    }
    service.publish(NOW).unwrap();
    assert!(write(&mut service) > 2_000 * 33);
    let known = service.deny_list_version();
    revoke(&mut service, "one more");
    service.publish(NOW).unwrap();
    let changes = service.deny_list_since(known);
    assert!(changes.len() < 2_000, "{}", changes.len());
    assert_eq!(write(&mut service), changes.len());
    for process in 0..revocation::MOST_ROWS {
        revoke(&mut service, &format!("later {process}"));
        service.publish(NOW).unwrap();
        write(&mut service);
    }

    let trust = Trust::new(
        platform(),
        &[root.certificate().clone()],
        Duration::from_secs(10),
    );
    let digest = service.deny_list.digest();
    let rows = written
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()));
    let again = CaService::load(
        service.authority,
        Arc::new(trust.unwrap()),
        HOUR,
        rows,
        None,
        NOW,
    );
    assert_eq!(again.unwrap().deny_list.digest(), digest);
}

#[test]
fn whatever_is_certified_has_room_on_the_deny_list() {
    let root = root();
    let mut service = service(&root);
    let node = node(&mut service);
    service.room = 10 * SERIAL_ENTRY;
    for process in 0..10 {
        certified(&mut service, &node, &process.to_string()).unwrap();
    }
    let full = |service: &mut CaService| {
        let fault = certified(service, &node, "one too many").unwrap_err();
        assert_eq!(fault.code, FaultCode::Full);
        assert!(
            fault.to_string().contains("certificate-lifetime"),
            "{fault}"
        );
    };
    full(&mut service);
    // Revoking makes no room. Denied or alive, each certificate keeps its entry until it expires.
    for process in 0..10 {
        let process = process.to_string();
        assert!(
            service
                .revoke_process(&process, None, Reason::Killed, NOW)
                .unwrap()
        );
    }
    full(&mut service);
    service.publish(NOW).unwrap();
    assert_eq!(service.trust().deny_lists()[0].serials().count(), 10);
    let later = NOW.plus(HOUR + Duration::from_secs(1300));
    service.prune(later);
    service.check_room(later).unwrap();
    assert_eq!(service.revocable, 0);
}

#[test]
fn each_certificate_comes_with_the_proof_that_the_log_has_it() {
    let mut service = service(&root());
    let mut leaves = Vec::new();
    for _ in 0..5 {
        let node = node(&mut service);
        let chain = node.chain();
        Inclusion::check_of(chain, service.trust()).unwrap();
        // Those who ask get nothing before this row is in the store.
        let rows = service.take_rows();
        let index = service.log.size() - 1;
        let row = rows
            .into_iter()
            .find(|(key, _)| *key == leaf_row("ca", index));
        let leaf = row.unwrap().1.unwrap();
        let record = IssuanceRecord::from_leaf(&leaf).unwrap();
        assert_eq!(record.certificate, Fingerprint::of(chain.leaf()));
        leaves.push(leaf_hash(&leaf));
        // The published log is the one that the proof is about.
        let (checkpoint, _) = service.checkpoint().unwrap();
        let log = MerkleLog::from_leaf_hashes(leaves.iter().copied());
        assert_eq!((checkpoint.size, checkpoint.root), (log.size(), log.root()));
    }
}

#[test]
fn the_log_goes_on_from_its_files() {
    let root = root();
    let mut first = service(&root);
    // Its entries must go to files.
    first.log = LogWriter::default();
    node(&mut first);
    let mut files: BTreeMap<LogFile, Vec<u8>> = BTreeMap::new();
    let mut rows: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let keep = |service: &mut CaService, rows: &mut BTreeMap<String, Vec<u8>>| {
        for (key, value) in service.take_rows() {
            match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
    };
    for number in 0..600_u64 {
        let leaf = format!("{{\"entry\":{number}}}").into_bytes();
        let index = first.log.append(&leaf).unwrap();
        first.rows.put_bytes(leaf_row("ca", index), leaf);
    }
    keep(&mut first, &mut rows);
    let leaves = |rows: &BTreeMap<String, Vec<u8>>| {
        rows.keys().filter(|key| key.starts_with(LEAF_ROW)).count()
    };
    assert_eq!(leaves(&rows), 601);
    let (publication, note) = first.publication().unwrap();
    assert!(note.text().contains("\n601\n"));
    files.extend(publication.files);
    first.published_files(publication.head);
    keep(&mut first, &mut rows);
    assert_eq!(leaves(&rows), 601 - 512);

    let load = |rows: &BTreeMap<String, Vec<u8>>, files: &BTreeMap<LogFile, Vec<u8>>| {
        let roots = [root.certificate().clone()];
        let trust = Trust::new(platform(), &roots, Duration::from_secs(10)).unwrap();
        let authority = root.create_authority("ca", Validity::starting(NOW, HOUR * 100));
        let read = |_: &str, file: LogFile| {
            let why = "it is not there".to_owned();
            let found = files.get(&file).cloned();
            found.ok_or(LogError::Unreadable { file, why })
        };
        let rows = rows
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_slice()));
        CaService::load(
            authority.unwrap(),
            Arc::new(trust),
            HOUR,
            rows,
            Some(&read),
            NOW,
        )
    };
    let again = load(&rows, &files).unwrap();
    assert_eq!(again.log.tree(), first.log.tree());
    // Without its files, or without an entry, nothing is certified.
    let error = load(&rows, &BTreeMap::new()).err().unwrap();
    assert!(matches!(error, CaServiceError::Log(_)), "{error}");
    rows.remove(&leaf_row("ca", 550)).unwrap();
    let error = load(&rows, &files).err().unwrap();
    assert!(
        matches!(error, CaServiceError::LogGap { index: 550 }),
        "{error}"
    );
}

#[test]
fn a_process_is_revoked_by_its_identity_with_its_agents() {
    let mut service = service(&root());
    let id = |number| ProcessId::from_bytes([number; 16]);
    let process = |number| Identity::process(&platform(), "node-1", id(number)).unwrap();
    let agent = |name| Identity::agent(&platform(), name).unwrap();
    let mut certify = |identity: Identity, number| {
        let request = KeyPair::generate().unwrap().signing_request().unwrap();
        let holder = id(number).to_string();
        let issued = service.certify_own(identity, HERE, Some(&holder), &request, HOUR, NOW);
        issued.unwrap().certificate().unwrap().serial()
    };
    let revoked = [process(1), agent("seller"), agent("buyer")].map(|it| certify(it, 1));
    let others = [process(2), agent("clerk")].map(|it| certify(it, 2));
    let named = process(1).to_string();
    let elsewhere = named.replace("factory", "other");
    for unknown in [elsewhere, process(3).to_string(), id(1).to_string()] {
        let fault = service.revoke_by_hand(&unknown, "", NOW).unwrap_err();
        assert_eq!(fault.code, FaultCode::Unknown, "{unknown}");
    }
    let found = service.revoke_by_hand(&named, "stolen", NOW).unwrap();
    assert_eq!(found.len(), revoked.len());
    let is_denied = |serial: &Serial| service.denial(*serial).is_some();
    assert!(revoked.iter().all(is_denied) && !others.iter().any(is_denied));
    // Messages of its agents that still wait are not delivered.
    assert!(service.is_denied(&agent("seller")) && !service.is_denied(&agent("clerk")));
    assert_eq!(service.revoked_by_hand(&named, NOW).len(), revoked.len());
}

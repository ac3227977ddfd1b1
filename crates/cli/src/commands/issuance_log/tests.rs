//! Logs of a CA that lies, and witnesses that lie.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    Credential, IssuingAuthority, KeyPair, ProcessId, RootAuthority, SigningRequest, Validity,
    certificate_pem,
};
use sealbus_transparency::{Inclusion, LogWriter};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A platform whose keys the tests have.
pub(crate) struct TestPlatform {
    pub(crate) name: PlatformName,
    root: Vec<u8>,
    authority: IssuingAuthority,
    log: LogWriter,
}

fn present() -> Timestamp {
    Timestamp::from_unix_seconds(now() / 1000)
}

impl TestPlatform {
    pub(crate) fn new() -> Self {
        let name = PlatformName::new("factory").unwrap();
        let validity = Validity::starting(present(), 1000 * HOUR);
        let root = RootAuthority::create(&name, validity).unwrap();
        Self {
            root: root.certificate().to_vec(),
            authority: root.create_authority("ca", validity).unwrap(),
            log: LogWriter::default(),
            name,
        }
    }

    pub(crate) fn trust(&self) -> Trust {
        let roots = [self.root.clone().into()];
        Trust::new(self.name.clone(), &roots, CLOCK_SKEW).unwrap()
    }

    pub(crate) fn agent(&self, name: &str) -> (Credential, IssuanceRecord) {
        self.certified(&Identity::agent(&self.name, name).unwrap())
    }

    /// A certified key, and the entry that an honest CA makes of its certificate.
    fn certified(&self, identity: &Identity) -> (Credential, IssuanceRecord) {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let grant = Grant::by_operator(identity.clone(), address);
        let validity = Validity::starting(present(), HOUR);
        let issued = self.authority.issue(&grant, &request, validity).unwrap();
        let log = self.log.tree();
        let attached = Inclusion::attach(issued, None, log, &self.authority, present());
        let (chain, record) = attached.unwrap();
        (Credential::new(key, chain).unwrap(), record)
    }

    /// Publishes the log with the cosignatures of these, each at a time.
    fn publish(&self, place: &Path, witnesses: &[(&Credential, Timestamp)]) {
        let publication = self.log.publication(self.authority.identity());
        let checkpoint = publication.checkpoint;
        let mut note = checkpoint.sign(&self.authority).unwrap();
        let mut pem = String::new();
        for (credential, at) in witnesses {
            let name = credential.certificate().unwrap().identity().to_string();
            note.add(checkpoint.cosign(&name, credential.key(), *at).unwrap());
            for der in credential.chain().to_certificates() {
                pem.push_str(&certificate_pem(&der));
            }
        }
        let authority = certificate_pem(self.authority.chain().leaf());
        let mut files = publication.files;
        files.push((LogFile::Authority, authority.into_bytes()));
        files.push((LogFile::Witnesses, pem.into_bytes()));
        files.push((LogFile::Checkpoint, note.to_string().into_bytes()));
        Folder::new(place).write(&files).unwrap();
    }

    async fn open(&self, place: &Path, ca: Option<&str>) -> Result<Log, CliError> {
        let source = Source {
            root: self.root.clone(),
            platform: self.name.clone(),
            at: None,
            alarms: Vec::new(),
        };
        source.log(LogOrigin::Folder(Folder::new(place)), ca).await
    }
}

#[tokio::test]
async fn only_nodes_are_witnesses_and_one_that_lies_harms_no_other() {
    let platform = TestPlatform::new();
    let node = |name: &str| Identity::node(&platform.name, name).unwrap();
    let (liar, _) = platform.certified(&node("node-1"));
    let (honest, _) = platform.certified(&node("node-2"));
    let (agent, _) = platform.agent("mallory");
    let process = ProcessId::random().unwrap();
    let process = Identity::process(&platform.name, "node-3", process).unwrap();
    let (process, _) = platform.certified(&process);
    let place = tempfile::tempdir().unwrap();
    let witnesses = [
        (&agent, present()),
        (&process, present()),
        (&liar, Timestamp::from_unix_seconds(1)),
        (&honest, present()),
    ];
    platform.publish(place.path(), &witnesses);
    let mut log = platform.open(place.path(), None).await.unwrap();
    let (note, _) = log.checkpoint().await.unwrap();
    let found = log.cosignatures(&note, &[], 1).await.unwrap();
    let names: Vec<&str> = found.iter().map(|it| it.witness.as_str()).collect();
    assert_eq!(names, ["spiffe://factory/node/node-2"]);
    let refused = log.cosignatures(&note, &[], 2).await.err().unwrap();
    assert!(refused.to_string().contains("1 witnesses"), "{refused}");
}

#[tokio::test]
async fn the_log_of_another_ca_is_not_taken_for_the_one_that_was_asked_for() {
    let platform = TestPlatform::new();
    let place = tempfile::tempdir().unwrap();
    platform.publish(place.path(), &[]);
    assert!(platform.open(place.path(), Some("ca")).await.is_ok());
    let refused = platform.open(place.path(), Some("ca-2")).await;
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("the log of the CA ca-2"), "{refused}");
}

#[tokio::test]
async fn an_entry_hides_no_certificate_under_another_name() {
    let mut platform = TestPlatform::new();
    let (worker, record) = platform.agent("worker");
    let mut lie = record.clone();
    lie.identity = Identity::agent(&platform.name, "nobody").unwrap();
    let (true_place, false_place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    platform.log.append(&record.to_leaf().unwrap()).unwrap();
    platform.publish(true_place.path(), &[]);
    platform.log = LogWriter::default();
    platform.log.append(&lie.to_leaf().unwrap()).unwrap();
    platform.publish(false_place.path(), &[]);
    let wish = CaLogVerify {
        source: LogSource {
            folder: None,
            address: None,
            root: None,
            ca: None,
        },
        against: Vec::new(),
        certificate: Vec::new(),
        witness: Vec::new(),
        quorum: 0,
    };
    let output = Output::new(&General::of_typed(&[]));
    let mut found = Vec::new();
    for place in [&true_place, &false_place] {
        let der = worker.chain().leaf().to_vec();
        let mut wanted = [Wanted {
            path: place.path(),
            hash: Fingerprint::of(&der),
            der,
            is_there: false,
        }];
        let mut log = platform.open(place.path(), None).await.unwrap();
        let verified = verify_one(&wish, &mut log, &[], &[], &mut wanted, output).await;
        found.push(verified.map_err(|error| error.to_string()));
    }
    assert_eq!(found[0].as_ref().unwrap().certificates, [0]);
    let refused = found[1].as_ref().err().unwrap();
    assert!(
        refused.contains("under the name spiffe://factory/agent/nobody"),
        "{refused}"
    );
}

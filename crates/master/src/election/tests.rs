//! A Master that starts while etcd does not answer.

use std::net::{IpAddr, Ipv4Addr};

use sealbus_brokers::lasting_address;
use sealbus_control::admin::ask;
use sealbus_control::operators::connect_to_standby;
use sealbus_control::statement::{Signed, Vouching};
use sealbus_control::word::{Reply, Word};
use sealbus_control::{Blob, FaultCode, Subject};
use sealbus_enrolment::say;
use sealbus_seal::issuance::Grant;
use sealbus_seal::{Credential, Identity, KeyPair, Name, ProcessId, SigningRequest, Validity};
use sealbus_store::etcd::{EtcdAuthority, EtcdSettings};

use super::super::state_store::ELSEWHERE;
use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Far longer than anything takes.
const LONG: Duration = Duration::from_secs(600);
/// Nobody listens there.
const NOWHERE: &str = "https://127.0.0.1:1";

#[tokio::test]
async fn a_master_that_starts_while_etcd_is_away_renews_and_revokes() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = EtcdAuthority::keep(&folder.path().join("etcd")).unwrap();
    let name = PlatformName::new("factory").unwrap();
    let mut settings = PlatformSettings::new(name.clone());
    settings.etcd = Some(EtcdSettings {
        members: vec![NOWHERE.to_owned()],
        credentials: etcd.certify_client("master").unwrap(),
    });
    let config = MasterConfig {
        directory: folder.path().join("master"),
        settings,
        address: HERE,
        port: 0,
        enrolment_port: 0,
        metrics: None,
        accept_clock: false,
    };
    // A Master that never belonged to the platform has nothing to do.
    let refused = elect(&config, false, |_| panic!("it waits")).await.err();
    assert!(refused.unwrap().is_away());

    let directory = &config.directory;
    let time = timestamp(now());
    let authorities = Authorities::keep(directory, &name, None, time).unwrap();
    let ca = authorities.issuing;
    std::fs::write(directory.join(ELSEWHERE), NOWHERE).unwrap();
    let at = lasting_address(HERE, 0);
    keep_enrolment_port(directory, at.port()).unwrap();
    let issue = |grant: Grant| {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let validity = Validity::starting(time, Duration::from_secs(3600));
        let issued = ca.issue(&grant, &request, validity).unwrap();
        Credential::new(key, issued.chain).unwrap()
    };
    let node = issue(Grant::by_operator(
        Identity::node(&name, "node-1").unwrap(),
        HERE,
    ));
    let process = ProcessId::random().unwrap();
    let renew = |agent: &str| {
        let identity = Identity::agent(&name, agent).unwrap();
        let grant = Grant::by_operator(identity, HERE);
        let held = issue(grant.to_process(process, Name::new("node", "node-1").unwrap()));
        let mut chain = Vec::new();
        held.chain().encode(&mut chain);
        let vouching = Vouching {
            process: process.to_string(),
            subject: Subject::Agent {
                name: agent.to_owned(),
            },
            request: Blob(KeyPair::generate().unwrap().signing_request().unwrap()),
            held: Some(Blob(chain)),
            at: now(),
        };
        Word::Renew {
            voucher: Signed::sign(&vouching, &node).unwrap(),
        }
    };
    let said = async |word: Word| {
        let at = at.to_string();
        loop {
            match say(&at, &word, LONG).await {
                Ok(reply) => return reply,
                // It does not listen yet.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let mut waits = 0;
    let acting = elect(&config, false, |leader| {
        assert_eq!(leader, "");
        waits += 1;
    });
    let working = async {
        for agent in ["seller", "thief"] {
            let replied = said(renew(agent)).await;
            assert!(matches!(replied, Reply::Renewed { .. }), "{replied:?}");
        }
        let operator = connect_to_standby(directory).await.unwrap();
        let revoke = ask::Revoke {
            what: "thief".to_owned(),
            reason: "stolen".to_owned(),
        };
        let revoked = operator.ask(revoke, LONG).await.unwrap();
        assert!(!revoked.is_stored);
        let all = ask::Agents::default();
        let other = operator.ask(all, LONG).await.unwrap_err();
        assert_eq!(other.code, FaultCode::Unavailable);
        let replied = said(renew("thief")).await;
        assert!(matches!(replied, Reply::Refused(_)), "{replied:?}");
        let replied = said(renew("seller")).await;
        assert!(matches!(replied, Reply::Renewed { .. }), "{replied:?}");
    };
    tokio::select! {
        elected = acting => panic!("{:?}", elected.err()),
        worked = tokio::time::timeout(LONG, working) => worked.unwrap(),
    }
    assert_eq!(waits, 1);
    // After a restart the Master goes on from its earlier acts.
    let ledger = Ledger::open(directory).unwrap();
    assert_eq!(ledger.acts().len(), 4);
}

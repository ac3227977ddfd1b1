//! The renewal of the CA's own certificate, in time and too late.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use sealbus_control::clock::now;
use sealbus_seal::denylist::Reason;
use sealbus_seal::{Identity, KeyPair, PlatformName};
use sealbus_store::MemoryStore;

use super::*;
use crate::{AuthoritiesError, PlatformSettings, lay};

const DAY: UnixMillis = 86_400_000;

fn name() -> PlatformName {
    PlatformName::new("factory").unwrap()
}

/// Authorities that were made this many days ago, for a year.
fn aged(directory: &Path, days: u64) -> Authorities {
    Authorities::keep(directory, &name(), None, timestamp(now() - days * DAY)).unwrap()
}

async fn desk_of(authorities: Authorities, store: Arc<MemoryStore>) -> DeskHandle {
    let nowhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let settings = PlatformSettings::new(name());
    let foundation = lay(&settings, authorities, store, None, nowhere).await;
    foundation.unwrap().desk
}

#[tokio::test]
async fn the_running_ca_is_renewed_under_its_key_and_its_deny_list_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let authorities = aged(directory.path(), 310);
    let key = authorities.issuing.certificate().public_key().clone();
    let store = Arc::new(MemoryStore::new());
    let desk = desk_of(authorities, store).await;
    let path = directory.path().to_owned();
    let (before, after, chain) = desk
        .run(move |desk, now| {
            let time = timestamp(now);
            let guest = Identity::agent(&desk.name, "guest").unwrap();
            let request = KeyPair::generate().unwrap().signing_request().unwrap();
            let (address, year) = (
                Ipv4Addr::LOCALHOST.into(),
                Duration::from_secs(365 * 86_400),
            );
            let short =
                desk.ca
                    .certify_own(guest.clone(), address, Some("p"), &request, year, time)?;
            desk.ca
                .revoke_process("p", None, Reason::ByOperator, time)?;
            desk.ca.publish(time).unwrap();
            assert!(desk.ca.trust().verify(&short, time).is_err());

            let before = desk.ca.outlook(time);
            let version = desk.ca.deny_list_version();
            let after = look(desk, &path, now);
            assert!(desk.ca.deny_list_version() > version);
            assert!(desk.ca.trust().verify(&short, time).is_err());
            let chain = desk
                .ca
                .certify_own(guest, address, Some("q"), &request, year, time)?;
            desk.ca.trust().verify(&chain, time).unwrap();
            Ok((before, after, chain))
        })
        .await
        .unwrap();
    assert_eq!(before.0, Outlook::EndsSoon);
    assert_eq!(after.0, Outlook::Good);
    // New certificates outlive the former certificate of the CA.
    assert!(chain.certificate().unwrap().not_after() > before.1);
    let kept = aged(directory.path(), 0);
    assert_eq!(kept.issuing.certificate().not_after(), after.1);
    assert_eq!(kept.issuing.certificate().public_key(), &key);
}

#[tokio::test]
async fn without_the_roots_key_the_ca_goes_on_and_the_warning_has_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let authorities = aged(directory.path(), 360);
    let root_key = directory.path().join("root.key");
    let elsewhere = directory.path().join("elsewhere");
    fs::rename(&root_key, &elsewhere).unwrap();
    let desk = desk_of(authorities, Arc::default()).await;
    let path = directory.path().to_owned();
    let look_once = || {
        let path = path.clone();
        desk.run(move |desk, now| Ok(look(desk, &path, now)))
    };
    let ending = look_once().await.unwrap();
    assert_eq!(ending.0, Outlook::EndsVerySoon);
    let said = ending.to_string();
    assert!(said.starts_with("ca-certificate-ends: "), "{said}");
    assert!(said.contains("root.key"), "{said}");
    // An operator copies the key into the directory.
    fs::rename(&elsewhere, &root_key).unwrap();
    assert_eq!(look_once().await.unwrap().0, Outlook::Good);
}

#[tokio::test]
async fn a_master_that_starts_after_the_end_says_so_or_renews_and_keeps_its_denials() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::new());
    // The CA's certificate ended a month ago, with a deny list signed under it in the store.
    let desk = desk_of(aged(directory.path(), 395), store.clone()).await;
    desk.close().await;
    let root_key = directory.path().join("root.key");
    let elsewhere = directory.path().join("elsewhere");
    fs::rename(&root_key, &elsewhere).unwrap();
    let refused = Authorities::keep(directory.path(), &name(), None, timestamp(now()));
    let error = refused.err().unwrap();
    assert!(matches!(error, AuthoritiesError::Ended { .. }), "{error}");
    let said = error.to_string();
    assert!(said.starts_with("ca-certificate-ended: "), "{said}");
    assert!(said.contains("put the root's key there"), "{said}");

    fs::rename(&elsewhere, &root_key).unwrap();
    let desk = desk_of(aged(directory.path(), 0), store).await;
    let ending = desk
        .run(|desk, now| Ok(desk.ca.outlook(timestamp(now))))
        .await
        .unwrap();
    assert_eq!(ending.0, Outlook::Good);
}

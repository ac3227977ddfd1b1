//! Several CAs of one platform, which certify in turn.

use super::*;

type Stored = BTreeMap<String, Vec<u8>>;

fn store(service: &mut CaService, rows: &mut Stored) {
    for (key, value) in service.take_rows() {
        match value {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        };
    }
}

/// A CA of this platform that goes on from these rows. Others have published checkpoints of these logs.
fn begin(
    root: &RootAuthority,
    authority: IssuingAuthority,
    rows: &mut Stored,
    checkpoints: &BTreeMap<&str, Vec<u8>>,
) -> CaService {
    let roots = [root.certificate().clone()];
    let trust = Trust::new(platform(), &roots, Duration::from_secs(10)).unwrap();
    let read = |log: &str, file: LogFile| match (checkpoints.get(log), file) {
        (Some(checkpoint), LogFile::Checkpoint) => Ok(checkpoint.clone()),
        _ => Err(LogError::Unreadable {
            file,
            why: "it is not there".to_owned(),
        }),
    };
    let before = rows.clone();
    let view = before
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()));
    let trust = Arc::new(trust);
    let loaded = CaService::load(authority, trust, HOUR, view, Some(&read), NOW);
    let mut service = loaded.unwrap();
    store(&mut service, rows);
    service
}

fn authority(root: &RootAuthority, name: &str) -> IssuingAuthority {
    root.create_authority(name, Validity::starting(NOW, HOUR * 100))
        .unwrap()
}

/// The same authority after a restart of its Master.
fn again(service: &CaService) -> IssuingAuthority {
    let pem = service.authority().key().to_text().unwrap();
    let key = KeyPair::from_pkcs8_pem(&pem).unwrap();
    IssuingAuthority::load(key, service.authority().chain().clone()).unwrap()
}

fn certify(service: &mut CaService, agent: &str) -> CertificateChain {
    let identity = Identity::agent(&platform(), agent).unwrap();
    let request = KeyPair::generate().unwrap().signing_request().unwrap();
    let chain = service.certify_own(identity, HERE, Some("p"), &request, HOUR, NOW);
    chain.unwrap()
}

#[test]
fn a_ca_that_takes_over_denies_what_was_denied_and_revokes_what_the_other_one_certified() {
    let (root, mut rows, none) = (root(), Stored::new(), BTreeMap::new());
    let mut first = begin(&root, authority(&root, "ca"), &mut rows, &none);
    let (seller, buyer) = (certify(&mut first, "seller"), certify(&mut first, "buyer"));
    first.revoke_by_hand("seller", "stolen", NOW).unwrap();
    first.publish(NOW).unwrap();
    store(&mut first, &mut rows);

    let mut second = begin(&root, authority(&root, "ca-2"), &mut rows, &none);
    assert!(second.deny_list_version() > first.deny_list_version());
    assert!(second.trust().verify(&seller, NOW).is_err());
    assert!(second.trust().verify(&buyer, NOW).is_ok());
    // The operator may not have read the first one's answer.
    assert!(second.revoke_by_hand("seller", "stolen", NOW).is_err());
    assert_eq!(second.revoked_by_hand("seller", NOW).len(), 1);
    assert!(second.revoked_by_hand("buyer", NOW).is_empty());
    // A process that knows the first list alone believes the second one, too.
    let trust = first.trust();
    trust
        .apply_deny_list(&second.deny_list_since(0), NOW)
        .unwrap();
    second.revoke_by_hand("buyer", "", NOW).unwrap();
    second.publish(NOW).unwrap();
    store(&mut second, &mut rows);
    let known = trust.latest_deny_list().unwrap().version();
    trust
        .apply_deny_list(&second.deny_list_since(known), NOW)
        .unwrap();
    assert!(trust.verify(&buyer, NOW).is_err());

    // A node brings back the denials that the first one could not store.
    let late = certify(&mut first, "late");
    first.revoke_by_hand("late", "", NOW).unwrap();
    first.publish(NOW).unwrap();
    let handed = first.deny_list_since(0);
    let identity = Identity::agent(&platform(), "late").unwrap();
    let taken = second.take_back(&handed, NOW).unwrap();
    assert_eq!(taken.by_operator, [(identity, NOW)]);
    second.publish(NOW).unwrap();
    assert!(second.trust().verify(&late, NOW).is_err());
    store(&mut second, &mut rows);

    let first = begin(&root, again(&first), &mut rows, &none);
    assert!(first.deny_list_version() > second.deny_list_version());
    for chain in [&seller, &buyer, &late] {
        assert!(first.trust().verify(chain, NOW).is_err());
    }
}

#[test]
fn each_ca_goes_on_with_its_own_log_and_takes_up_once_what_the_other_one_could_not_publish() {
    let (root, mut rows) = (root(), Stored::new());
    let mut checkpoints = BTreeMap::new();
    let mut first = begin(&root, authority(&root, "ca"), &mut rows, &checkpoints);
    certify(&mut first, "a");
    certify(&mut first, "b");
    let (publication, note) = first.publication().unwrap();
    assert_eq!(publication.checkpoint.size, 2);
    checkpoints.insert("ca", note.to_string().into_bytes());
    certify(&mut first, "c");
    store(&mut first, &mut rows);

    let mut second = begin(&root, authority(&root, "ca-2"), &mut rows, &checkpoints);
    assert_eq!(second.issued_in_all(), 1);
    let place = |service: &CaService, name: &str| {
        let all = service
            .certificates(false, None, &Page::default(), NOW)
            .unwrap()
            .certificates;
        let identity = format!("spiffe://factory/agent/{name}");
        let found = all.iter().find(|it| it.identity == identity).unwrap();
        (found.log.clone(), found.index)
    };
    assert_eq!(place(&second, "b"), ("ca".to_owned(), 1));
    assert_eq!(place(&second, "c"), ("ca-2".to_owned(), 0));
    certify(&mut second, "d");
    store(&mut second, &mut rows);
    assert_eq!(place(&second, "d"), ("ca-2".to_owned(), 1));

    // Another one after it finds nothing more to take up of the first log, and the whole second one.
    let third = begin(
        &root,
        authority(&root, "ca-3"),
        &mut rows.clone(),
        &checkpoints,
    );
    assert_eq!(third.issued_in_all(), 2);
    let (_, note) = second.publication().unwrap();
    checkpoints.insert("ca-2", note.to_string().into_bytes());
    let third = begin(
        &root,
        authority(&root, "ca-3"),
        &mut rows.clone(),
        &checkpoints,
    );
    assert_eq!(third.issued_in_all(), 0);

    let first = begin(&root, again(&first), &mut rows, &checkpoints);
    assert_eq!(first.issued_in_all(), 3);
    let subjects = ["a", "b", "c", "d"];
    assert!(
        subjects
            .iter()
            .all(|agent| first.living(agent, NOW).is_some())
    );
}

/// The list of a CA in other hands states any version. Afterwards the CA that certifies is still obeyed.
#[test]
fn a_version_of_another_ca_that_none_can_follow_is_not_passed() {
    let root = root();
    let (mut service, other) = (service(&root), authority(&root, "ca-2"));
    let latest = sealbus_seal::denylist::latest_version(NOW);
    let serial = Serial::random().unwrap();
    let denial = Denial {
        at: NOW,
        reason: Reason::Ended,
    };
    let roots = [root.certificate().clone()];
    let holder = Trust::new(platform(), &roots, Duration::ZERO).unwrap();
    let mut list = DenyList::new(other.identity().clone());
    for is_new in [false, true] {
        if is_new {
            list = DenyList::new(other.identity().clone());
            list.deny_serial(serial, NOW.plus(HOUR), denial).unwrap();
        }
        list.raise_version(u64::MAX);
        let handed = list.sign(&other).unwrap().whole();
        assert_eq!(service.take_back(&handed, NOW).unwrap().is_new, is_new);
        service.publish(NOW).unwrap();
        assert!(service.deny_list_version() <= latest);
        holder
            .apply_deny_list(&service.deny_list_since(0), NOW)
            .unwrap();
    }
    assert_eq!(service.denial(serial), Some(denial));
    let seller = certify(&mut service, "seller");
    service.revoke_by_hand("seller", "stolen", NOW).unwrap();
    service.publish(NOW).unwrap();
    holder
        .apply_deny_list(&service.deny_list_since(0), NOW)
        .unwrap();
    assert!(holder.verify(&seller, NOW).is_err());
}

#[test]
fn a_ca_is_revoked_by_another_one_with_all_that_it_certified() {
    let (root, mut rows, none) = (root(), Stored::new(), BTreeMap::new());
    let mut first = begin(&root, authority(&root, "ca"), &mut rows, &none);
    let seller = certify(&mut first, "seller");
    store(&mut first, &mut rows);
    let itself = first.revoke_authority("ca", "", NOW).unwrap_err();
    assert_eq!(itself.code, FaultCode::NotPermitted);
    let mut second = begin(&root, authority(&root, "ca-2"), &mut rows, &none);
    let unknown = second.revoke_authority("ca-3", "", NOW).unwrap_err();
    assert_eq!(unknown.code, FaultCode::Unknown);
    let row = |rows: &Stored| rows[&CaService::authority_row("ca")].clone();
    assert!(!CaService::is_revoked(&row(&rows)));

    let revoked = second.revoke_authority("ca", "its disk was stolen", NOW);
    let revoked = revoked.unwrap();
    assert!(revoked.revoked.unwrap().contains("its disk was stolen"));
    second.publish(NOW).unwrap();
    store(&mut second, &mut rows);
    assert!(CaService::is_revoked(&row(&rows)));
    assert!(second.trust().verify(&seller, NOW).is_err());
    let chain = first.authority().chain().leaf().to_vec();
    assert!(second.trust().verify_authority(&chain, NOW).is_err());
    // Nor is its deny list believed any more, or another certificate of its key.
    let handed = second.take_back(&first.deny_list_since(0), NOW);
    assert_eq!(handed.unwrap_err().code, FaultCode::BadRequest);
    let renewed = root.renew_authority(first.authority(), Validity::starting(NOW, HOUR * 50));
    let renewed = renewed.unwrap().chain().leaf().to_vec();
    second.note_authority(&renewed, NOW).unwrap();
    second.publish(NOW).unwrap();
    assert!(second.trust().verify_authority(&renewed, NOW).is_err());
    let names: Vec<_> = second
        .authorities(NOW)
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert_eq!(names, ["ca", "ca-2"]);
}

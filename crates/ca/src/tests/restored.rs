use super::*;

#[test]
fn a_ca_that_was_restored_takes_back_what_it_had_denied() {
    let root = root();
    let mut service = service(&root);
    let agent = Identity::agent(&platform(), "seller").unwrap();
    let request = KeyPair::generate().unwrap().signing_request().unwrap();
    let certified = service.certify_own(agent.clone(), HERE, Some("p"), &request, HOUR, NOW);
    let chain = certified.unwrap();
    let mut rows: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    rows.extend(
        service
            .take_rows()
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    service.revoke_by_hand("seller", "stolen", NOW).unwrap();
    service.publish(NOW).unwrap();
    let in_force = service.deny_list_since(0);

    let view = rows
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()));
    let authority = root.renew_authority(service.authority(), Validity::starting(NOW, HOUR * 100));
    let trust = Trust::new(platform(), &[root.certificate().clone()], Duration::ZERO).unwrap();
    let trust = Arc::new(trust);
    let mut restored = CaService::load(authority.unwrap(), trust, HOUR, view, None, NOW).unwrap();
    restored.trust().verify(&chain, NOW).unwrap();
    let version = restored.deny_list_version();
    assert_eq!(restored.take_back(&in_force, NOW).unwrap(), [(agent, NOW)]);
    restored.publish(NOW).unwrap();
    assert!(restored.deny_list_version() > version);
    assert!(restored.trust().verify(&chain, NOW).is_err());
    assert!(
        restored
            .certificates(true, None, &Page::default(), NOW)
            .unwrap()
            .certificates[0]
            .revoked
            .is_some()
    );
    // A second call changes nothing.
    assert!(restored.take_back(&in_force, NOW).unwrap().is_empty());
    let fault = restored.take_back(b"no list", NOW).unwrap_err();
    assert_eq!(fault.code, FaultCode::BadRequest);
    let mut other = super::service(&super::root());
    other.publish(NOW).unwrap();
    let strange = restored.take_back(&other.deny_list_since(0), NOW);
    assert_eq!(strange.unwrap_err().code, FaultCode::BadRequest);
}

//! Any bytes: as a sealed event, a change of its group, a Welcome or a key package, an error; as an event to seal, it opens
//! as it was.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use sealbus_channels::SealedPart;
use sealbus_mls::{Candidate, Group, Invitee, Member};
use sealbus_seal::encryption::{EncryptionKey, EncryptionKeyId};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    CLOCK_SKEW, Credential, Identity, KeyPair, PlatformName, RootAuthority, SigningRequest,
    Timestamp, Trust, Validity,
};

const CHANNEL: &str = "/offers";

struct Scene {
    trust: Trust,
    now: Timestamp,
    publisher: Identity,
    ben: Identity,
    invitee: Invitee,
    key: Arc<EncryptionKey>,
    group: Group,
    member: Member,
}

impl Scene {
    fn new() -> Option<Self> {
        let now: Timestamp = SystemTime::now().into();
        let year = Duration::from_secs(365 * 86_400);
        let validity = Validity::starting(now, year);
        let name = PlatformName::new("factory").ok()?;
        let root = RootAuthority::create(&name, validity).ok()?;
        let authority = root.create_authority("ca-1", validity).ok()?;
        let trust = Trust::new(name.clone(), &[root.certificate().clone()], CLOCK_SKEW).ok()?;
        let certified = |identity: &Identity| {
            let key = KeyPair::generate().ok()?;
            let request = SigningRequest::parse(&key.signing_request().ok()?).ok()?;
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let grant = Grant::by_operator(identity.clone(), address);
            let issued = authority.issue(&grant, &request, validity).ok()?;
            Credential::new(key, issued.chain).ok().map(Arc::new)
        };
        let publisher = Identity::agent(&name, "ann").ok()?;
        let ben = Identity::agent(&name, "ben").ok()?;
        let mut group = Group::new(&certified(&publisher)?, &trust, now).ok()?;
        let invitee = Invitee::new(&certified(&ben)?, now.plus(year), now);
        let key = Arc::new(EncryptionKey::generate().ok()?);
        let package = invitee.offer(now).ok()?;
        let candidate =
            Candidate::verify(&package, key.public().clone(), &ben, &trust, now).ok()?;
        let welcome = group.change(&[], &[candidate], now).ok()?.welcome?;
        let find = |id: EncryptionKeyId| (key.public().id() == id).then(|| key.clone());
        let member = Member::join(&invitee, &welcome, &publisher, find, &trust, now).ok()?;
        Some(Self {
            trust,
            now,
            publisher,
            ben,
            invitee,
            key,
            group,
            member,
        })
    }
}

static SCENE: LazyLock<Mutex<Scene>> =
    LazyLock::new(|| Mutex::new(Scene::new().expect("a group of two")));

fuzz_target!(|bytes: &[u8]| {
    let mut scene = SCENE.lock().expect("no input panics");
    let Scene {
        trust,
        now,
        publisher,
        ben,
        invitee,
        key,
        group,
        member,
    } = &mut *scene;
    let part = SealedPart::parse(bytes, "ann@factory", CHANNEL);
    let inside = part.as_ref().map_or(bytes, |part| part.bytes);
    if let Ok(part) = &part {
        assert!(part.opened(inside.to_vec()).is_err());
        let outer = part.to_message();
        assert_eq!(outer.content_bytes(), Some(bytes));
    }
    assert!(member.follow(inside).is_err());
    assert!(member.open(b"", inside).is_err());
    let find = |_: EncryptionKeyId| Some(key.clone());
    assert!(Member::join(invitee, inside, publisher, find, trust, *now).is_err());
    assert!(Candidate::verify(inside, key.public().clone(), ben, trust, *now).is_err());
    if group.is_due(*now) {
        let change = group.change(&[], &[], *now).expect("a new epoch");
        member
            .follow(&change.commit.expect("ben stays"))
            .expect("the next epoch");
    }
    let sealed = group.seal(CHANNEL.as_bytes(), bytes).expect("it is sealed");
    let opened = member.open(CHANNEL.as_bytes(), &sealed).expect("it opens");
    assert_eq!(&*opened, bytes);
});

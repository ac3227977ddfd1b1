//! Addresses, paths, patterns and QoS as text.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use sealbus_bus::Acknowledgement;
use sealbus_channels::{
    AddressProblem, ChannelAddress, ChannelOwner, ChannelPath, ChannelPattern, PathProblem,
    PatternIndex, Persistence, Priority, Qos, QosOverride, Reliability, Time,
};
use sealbus_seal::SecurityLevel;

#[test]
fn the_papers_address_is_read_and_written() {
    let text = "cia://frank.kargl@de/dates/business/diary-agent";
    let address: ChannelAddress = text.parse().unwrap();
    assert_eq!(address.channel.as_str(), "/dates/business");
    assert_eq!(address.agent.as_deref(), Some("diary-agent"));
    assert_eq!(
        address.owner,
        Some(ChannelOwner {
            user: "frank.kargl".to_owned(),
            country: "de".to_owned(),
            pid: None
        })
    );
    assert_eq!(address.to_string(), text);

    let text = "cia:at-least-once,priority=7,expiry=5s,level=auth://frank.kargl@de:12/dates/";
    let address: ChannelAddress = text.parse().unwrap();
    assert_eq!(address.agent, None);
    assert_eq!(address.owner.as_ref().and_then(|owner| owner.pid), Some(12));
    assert_eq!(address.qos.reliability, Some(Reliability::AtLeastOnce));
    assert_eq!(address.qos.priority, Priority::new(7));
    assert_eq!(
        address.qos.expiry,
        Some(Time::After(Duration::from_secs(5)))
    );
    assert_eq!(address.qos.level, Some(SecurityLevel::Auth));
    assert_eq!(address.to_string(), text);

    let address: ChannelAddress = "SEALBUS:///dates/caf%c3%a9/a-b@factory".parse().unwrap();
    assert_eq!(address.channel.as_str(), "/dates/café");
    assert_eq!(address.owner, None);
    assert_eq!(address.agent.as_deref(), Some("a-b@factory"));
    assert_eq!(
        address.to_string(),
        "sealbus:///dates/caf%C3%A9/a-b@factory"
    );
}

#[test]
fn a_wrong_address_is_refused_at_its_place() {
    for (text, offset, problem) in [
        ("http://a@de/b/c", 0, AddressProblem::Scheme),
        ("cia:ordered", 4, AddressProblem::Slashes),
        ("cia://a@de", 10, AddressProblem::NoChannel),
        ("cia://a@de/b", 11, AddressProblem::NoChannel),
        ("cia://de/b/c", 6, AddressProblem::Owner),
        ("cia://@de/b/c", 6, AddressProblem::Empty("user")),
        ("cia://a@/b/c", 8, AddressProblem::Empty("country")),
        ("cia://a@de:x/b/c", 11, AddressProblem::Pid),
        ("cia://a@de:+1/b/c", 11, AddressProblem::Pid),
        ("cia://a@de:4294967296/b/c", 11, AddressProblem::Pid),
        ("cia://a@de/b%4/c", 12, AddressProblem::Percent),
        ("cia://a@de/b%ff/c", 12, AddressProblem::NotUtf8),
        ("cia://a@de/b d/c", 12, AddressProblem::Illegal(' ')),
        (
            "cia://a@de/%41%2fd/c",
            14,
            AddressProblem::Channel(PathProblem::IllegalCharacter('/')),
        ),
        (
            "cia://a@de/b/*/",
            13,
            AddressProblem::Channel(PathProblem::Wildcard),
        ),
        (
            "cia://a@de/b//c",
            13,
            AddressProblem::Channel(PathProblem::EmptyLevel),
        ),
    ] {
        let error = text.parse::<ChannelAddress>().unwrap_err();
        assert_eq!((error.offset, error.problem), (offset, problem), "{text}");
    }
    let error = "cia:ordered,urgent://a@de/b/"
        .parse::<ChannelAddress>()
        .unwrap_err();
    assert_eq!(error.offset, 12);
    assert!(error.to_string().contains("urgent"), "{error}");
}

#[test]
fn a_wrong_path_or_pattern_is_refused_at_its_place() {
    for (text, offset, problem) in [
        ("", 0, PathProblem::NotFromRoot),
        ("dates", 0, PathProblem::NotFromRoot),
        ("/", 1, PathProblem::EmptyLevel),
        ("/a//b", 3, PathProblem::EmptyLevel),
        ("/a/", 3, PathProblem::EmptyLevel),
        ("/a/..", 3, PathProblem::DotLevel),
        ("/a/b*", 4, PathProblem::PartialWildcard),
        ("/a/**/b", 3, PathProblem::RestNotLast),
        ("/a/b c", 4, PathProblem::IllegalCharacter(' ')),
        (
            "/1/2/3/4/5/6/7/8/9/a/b/c/d/e/f/g/h",
            33,
            PathProblem::TooManyLevels,
        ),
    ] {
        let error = ChannelPattern::new(text).unwrap_err();
        assert_eq!((error.offset, error.problem), (offset, problem), "{text}");
    }
    let error = ChannelPath::new("/dates/*").unwrap_err();
    assert_eq!((error.offset, error.problem), (7, PathProblem::Wildcard));
    assert!(ChannelPath::new(&"/a".repeat(16)).is_ok());
    assert!(ChannelPath::new(&format!("/{}", "a".repeat(129))).is_err());
}

#[test]
fn a_pattern_means_one_level_or_the_rest() {
    for (pattern, channel, expected) in [
        ("/dates/business", "/dates/business", true),
        ("/dates/*", "/dates/business", true),
        ("/dates/*", "/dates", false),
        ("/dates/*", "/dates/business/today", false),
        ("/*/business", "/dates/business", true),
        ("/dates/**", "/dates/business/today", true),
        ("/dates/**", "/dates", true),
        ("/dates/*/**", "/dates", false),
        ("/**", "/dates", true),
        ("/dates/**", "/date", false),
    ] {
        let pattern = ChannelPattern::new(pattern).unwrap();
        let channel = ChannelPath::new(channel).unwrap();
        assert_eq!(pattern.matches(&channel), expected, "{pattern} {channel}");
    }
}

#[test]
fn a_qos_is_read_and_written() {
    let text = "at-least-once,unordered,persistent=7d,priority=9,valid-from=10s,expiry=20300101T000000000Z,level=signed,ack=disk";
    let qos: Qos = text.parse().unwrap();
    assert_eq!(
        qos.persistence,
        Persistence::PersistentFor(Duration::from_secs(7 * 86_400))
    );
    assert_eq!(qos.acknowledgement, Some(Acknowledgement::OnDisk));
    assert_eq!(qos.to_string(), text);
    assert_eq!("".parse(), Ok(Qos::default()));
    assert_eq!(Qos::default().to_string(), "exactly-once");
    for (text, offset) in [
        ("ordered,", 8),
        ("ordered,unordered", 8),
        ("priority=10", 9),
        ("priority=", 9),
        ("expiry=soon", 7),
        ("expiry=19690101T000000000Z", 7),
        ("level=top", 6),
        ("ack=some", 4),
        ("best-effort=1", 0),
    ] {
        assert_eq!(text.parse::<Qos>().unwrap_err().offset, offset, "{text}");
    }
}

fn level() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]",
        "[a-zA-Z0-9äß%:@#?&=+~.-]{1,12}".prop_filter("dots", |text| text != "." && text != "..")
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(level(), 1..6).prop_map(|levels| format!("/{}", levels.join("/")))
}

fn pattern() -> impl Strategy<Value = String> {
    (
        prop::collection::vec(prop_oneof![2 => level(), 1 => Just("*".to_owned())], 0..5),
        any::<bool>(),
    )
        .prop_map(|(mut levels, rest)| {
            if rest || levels.is_empty() {
                levels.push("**".to_owned());
            }
            format!("/{}", levels.join("/"))
        })
}

fn short_path() -> impl Strategy<Value = String> {
    prop::collection::vec("[ab]", 1..5).prop_map(|levels| format!("/{}", levels.join("/")))
}

fn short_pattern() -> impl Strategy<Value = String> {
    (prop::collection::vec("[ab*]", 0..5), any::<bool>()).prop_map(|(mut levels, rest)| {
        if rest || levels.is_empty() {
            levels.push("**".to_owned());
        }
        format!("/{}", levels.join("/"))
    })
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        any::<u32>().prop_map(|ms| Time::After(Duration::from_millis(ms.into()))),
        (0u64..253_402_300_799_999).prop_map(|ms| Time::At(sealbus_bus::Moment::from_unix_ms(ms))),
    ]
}

fn qos() -> impl Strategy<Value = QosOverride> {
    (
        prop::option::of(prop::sample::select(Reliability::ALL.to_vec())),
        any::<Option<bool>>(),
        prop::option::of(prop_oneof![
            Just(Persistence::Transient),
            Just(Persistence::Persistent),
            any::<u32>()
                .prop_map(|ms| Persistence::PersistentFor(Duration::from_millis(ms.into()))),
        ]),
        prop::option::of((0u8..10).prop_map(|number| Priority::new(number).unwrap())),
        prop::option::of(time()),
        prop::option::of(time()),
        prop::option::of(prop::sample::select(SecurityLevel::ALL.to_vec())),
        prop::option::of(prop::option::of(prop::sample::select(
            Acknowledgement::ALL.to_vec(),
        ))),
    )
        .prop_map(
            |(
                reliability,
                ordered,
                persistence,
                priority,
                valid_from,
                expiry,
                level,
                acknowledgement,
            )| {
                QosOverride {
                    reliability,
                    ordered,
                    persistence,
                    priority,
                    valid_from,
                    expiry,
                    level,
                    acknowledgement,
                }
            },
        )
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        channel in path(),
        agent in prop::option::of(level()),
        owner in prop::option::of(("\\PC{1,20}", "[a-zé :/@%]{1,20}", any::<Option<u32>>())),
        qos in qos(),
    ) {
        let address = ChannelAddress {
            scheme: Default::default(),
            qos,
            owner: owner.map(|(user, country, pid)| ChannelOwner { user, country, pid }),
            channel: ChannelPath::new(&channel).unwrap(),
            agent,
        };
        prop_assert_eq!(address.to_string().parse(), Ok(address));
    }

    #[test]
    fn no_text_breaks_the_readers(text in "(cia|sealbus)?:?\\PC{0,60}") {
        if let Ok(address) = text.parse::<ChannelAddress>() {
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }
        let _ = text.parse::<Qos>();
        let _ = ChannelPattern::new(&text);
    }

    #[test]
    fn a_difference_restores_the_qos(one in qos(), two in qos()) {
        let base = Qos { level: None, valid_from: None, expiry: None, ..Qos::default().with(&one) };
        let other = Qos::default().with(&two);
        prop_assert_eq!(base.with(&other.difference(&base)), other);
    }

    #[test]
    fn the_index_finds_what_matches(
        patterns in prop::collection::vec(prop_oneof![pattern(), short_pattern()], 0..40),
        channels in prop::collection::vec(prop_oneof![path(), short_path()], 1..20),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let patterns: Vec<_> = patterns.iter().map(|text| ChannelPattern::new(text).unwrap()).collect();
        let mut index = PatternIndex::new();
        for (number, pattern) in patterns.iter().enumerate() {
            index.insert(pattern, number);
        }
        let mut gone = std::collections::HashSet::new();
        for at in removed {
            if !patterns.is_empty() {
                let number = at.index(patterns.len());
                let count = index.remove(&patterns[number], |value| *value == number);
                prop_assert_eq!(count, usize::from(gone.insert(number)));
            }
        }
        prop_assert_eq!(index.len(), patterns.len() - gone.len());
        for channel in &channels {
            let channel = ChannelPath::new(channel).unwrap();
            let mut found = Vec::new();
            index.for_each_match(&channel, |number| found.push(*number));
            found.sort_unstable();
            let expected: Vec<_> = (0..patterns.len())
                .filter(|number| !gone.contains(number) && patterns[*number].matches(&channel))
                .collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn patterns_overlap_where_a_channel_matches_both(one in short_pattern(), two in short_pattern(), channel in short_path()) {
        let (one, two) = (ChannelPattern::new(&one).unwrap(), ChannelPattern::new(&two).unwrap());
        let channel = ChannelPath::new(&channel).unwrap();
        if one.matches(&channel) && two.matches(&channel) {
            prop_assert!(one.overlaps(&two));
        }
        prop_assert_eq!(one.overlaps(&two), two.overlaps(&one));
    }
}

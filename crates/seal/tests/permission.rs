//! The compiled policy, compared with the rules read one by one.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sealbus_seal::PlatformName;
use sealbus_seal::permission::{Messages, Permissions, Policy, PolicyError, Rule};

fn platform() -> PlatformName {
    PlatformName::new("factory").unwrap()
}

#[test]
fn everybody_may_write_to_everybody_by_default() {
    for permissions in [
        Permissions::default(),
        Policy::default().compile(&platform()).unwrap(),
    ] {
        assert!(permissions.may_send("a@factory", "b@factory"));
        assert!(permissions.may_send("a@elsewhere", "b@factory"));
        assert!(permissions.allow_everything());
    }
}

#[test]
fn the_first_rule_that_fits_decides() {
    let policy: Policy = toml::from_str(
        r#"
        [groups]
        sellers = ["seller-1", "seller-2@factory"]

        [[rule]]
        allow = { from = ["sellers"], to = ["broker", "sellers"] }

        [[rule]]
        deny = { from = ["sellers"], to = ["*"] }

        [[rule]]
        deny = { from = ["*"], to = ["safe"] }
        "#,
    )
    .unwrap();
    let permissions = policy.compile(&platform()).unwrap();
    let may = |from: &str, to: &str| {
        permissions.may_send(&format!("{from}@factory"), &format!("{to}@factory"))
    };
    assert!(may("seller-1", "broker"));
    assert!(may("seller-1", "seller-2"));
    assert!(!may("seller-2", "buyer"));
    assert!(!may("seller-1", "safe"));
    assert!(!may("buyer", "safe"));
    assert!(may("buyer", "seller-1"));
    assert!(may("broker", "buyer"));
    // Names count as a whole: a stranger with the same local name is another agent.
    assert!(permissions.may_send("seller-1@elsewhere", "buyer@factory"));
    assert!(!permissions.allow_everything());
}

#[test]
fn everybody_does_not_mean_the_services() {
    let policy: Policy = toml::from_str(
        r#"
        [groups]
        directories = ["df"]

        [[rule]]
        deny = { from = ["buyer"], to = ["directories"] }

        [[rule]]
        deny = { from = ["*"], to = ["*"] }
        "#,
    )
    .unwrap();
    let permissions = policy
        .compile_beside(&platform(), &["ams", "df", "node-1"])
        .unwrap();
    let may = |from: &str, to: &str| {
        permissions.may_send(&format!("{from}@factory"), &format!("{to}@factory"))
    };
    assert!(!may("seller", "buyer"));
    assert!(may("seller", "df") && may("df", "seller"));
    assert!(may("node-1", "ams") && may("ams", "node-1"));
    // A rule with the service's name applies to it.
    assert!(!may("buyer", "df"));
    assert!(may("buyer", "ams"));
    assert!(may("df", "buyer"));
}

#[test]
fn a_rule_means_the_services_that_it_names_beside_everybody() {
    let policy: Policy = toml::from_str(
        r#"
        [groups]
        registers = ["ams"]

        [[rule]]
        deny = { from = ["mallory"], to = ["*", "df", "registers"] }

        [[rule]]
        deny = { from = ["ca", "*"], to = ["safe"] }
        "#,
    )
    .unwrap();
    let permissions = policy
        .compile_beside(&platform(), &["ams", "ca", "df", "master"])
        .unwrap();
    let may = |from: &str, to: &str| {
        permissions.may_send(&format!("{from}@factory"), &format!("{to}@factory"))
    };
    assert!(!may("mallory", "buyer") && !may("mallory", "df") && !may("mallory", "ams"));
    assert!(!may("buyer", "safe") && !may("ca", "safe"));
    assert!(may("mallory", "master") && may("master", "safe") && may("buyer", "df"));
    // A name beside `*` is checked like any other.
    let rule = r#"[[rule]]
        deny = { from = ["*", "no such"], to = ["*"] }"#;
    let policy: Policy = toml::from_str(rule).unwrap();
    let error = policy.compile(&platform()).unwrap_err();
    assert!(matches!(error, PolicyError::Name { .. }), "{error}");
}

#[test]
fn rules_say_on_whose_behalf_an_agent_may_ask() {
    let policy: Policy = toml::from_str(
        r#"
        [groups]
        directors = ["boss", "deputy"]

        [[rule]]
        allow = { from = ["clerk"], to = ["vault"], on-behalf-of = ["directors"] }

        [[rule]]
        deny = { from = ["clerk"], to = ["vault"] }

        [[rule]]
        deny = { from = ["*"], to = ["safe"], on-behalf-of = ["*"] }

        [[rule]]
        deny = { from = ["*"], to = ["desk"], on-behalf-of = ["stranger"] }
        "#,
    )
    .unwrap();
    let permissions = policy.compile(&platform()).unwrap();
    let may = |from: &str, to: &str, askers: &[&str]| {
        let whole = |name: &&str| format!("{name}@factory");
        let askers: Vec<String> = askers.iter().map(whole).collect();
        permissions.may_send_for(&whole(&from), &whole(&to), &askers)
    };
    assert!(may("clerk", "vault", &["boss"]));
    assert!(may("clerk", "vault", &["boss", "deputy"]));
    // One agent that may not is enough.
    assert!(!may("clerk", "vault", &["boss", "stranger"]));
    assert!(!may("clerk", "vault", &[]));
    assert!(may("clerk", "safe", &[]));
    assert!(!may("clerk", "safe", &["boss"]));
    assert!(may("clerk", "desk", &["boss"]));
    assert!(!may("clerk", "desk", &["boss", "stranger", "deputy"]));
    assert!(may("other", "vault", &["stranger"]));
    assert!(!permissions.allow_everything());
    let only = "[[rule]]\ndeny = { from = ['*'], to = ['*'], on-behalf-of = ['*'] }";
    let only: Policy = toml::from_str(only).unwrap();
    assert!(!only.compile(&platform()).unwrap().allow_everything());
    assert_eq!(
        toml::from_str::<Policy>(&toml::to_string(&only).unwrap()),
        Ok(only)
    );
}

#[test]
fn mistakes_are_named() {
    let parse = |text: &str| toml::from_str::<Policy>(text);
    assert!(parse("[[rule]]\nallow = { form = ['a'], to = ['b'] }").is_err());
    assert!(parse("[[rules]]").is_err());
    let rule = |name: &str| Policy {
        groups: BTreeMap::new(),
        rules: vec![Rule::Deny(Messages {
            from: vec![name.into()],
            to: vec!["*".into()],
            on_behalf_of: None,
        })],
        ..Policy::default()
    };
    let error = rule("no such").compile(&platform()).unwrap_err();
    assert!(matches!(error, PolicyError::Name { .. }));
    assert!(error.to_string().contains("no such"), "{error}");
    let group = Policy {
        groups: [("*".to_owned(), vec![])].into(),
        rules: vec![],
        ..Policy::default()
    };
    assert!(matches!(
        group.compile(&platform()),
        Err(PolicyError::GroupName(_))
    ));
}

#[test]
fn hostile_policies_are_bounded() {
    // Each agent is in a rule of its own, so that each is a class of its own.
    let policy = |rules| Policy {
        groups: BTreeMap::new(),
        rules: (0..rules)
            .map(|number| {
                Rule::Deny(Messages {
                    from: vec![format!("a{number}")],
                    to: vec!["x".into()],
                    on_behalf_of: None,
                })
            })
            .collect(),
        ..Policy::default()
    };
    assert!(policy(100).compile(&platform()).is_ok());
    assert!(matches!(
        policy(600).compile(&platform()),
        Err(PolicyError::TooManyClasses)
    ));
    assert!(matches!(
        policy(1025).compile(&platform()),
        Err(PolicyError::TooManyRules(1025))
    ));
}

proptest! {
    #[test]
    fn compiled_and_read_rules_agree(
        groups in prop::collection::vec(prop::collection::vec(0..6usize, 0..4), 0..3),
        rules in prop::collection::vec(
            (
                any::<bool>(),
                prop::collection::vec(0..10usize, 0..4),
                prop::collection::vec(0..10usize, 0..4),
                prop::option::of(prop::collection::vec(0..10usize, 0..4)),
            ),
            0..6,
        ),
        chain in prop::collection::vec(0..7usize, 0..3),
    ) {
        let entry = |number: &usize| match *number {
            9 => "*".to_owned(),
            number @ 6.. if number - 6 < groups.len() => format!("g{}", number - 6),
            number => format!("a{}", number % 6),
        };
        let policy = Policy {
            groups: groups
                .iter()
                .enumerate()
                .map(|(number, members)| {
                    (format!("g{number}"), members.iter().map(|member| format!("a{member}")).collect())
                })
                .collect(),
            rules: rules
                .iter()
                .map(|(allow, from, to, askers)| {
                    let entries = |side: &Vec<usize>| side.iter().map(entry).collect();
                    let messages = Messages {
                        from: entries(from),
                        to: entries(to),
                        on_behalf_of: askers.as_ref().map(entries),
                    };
                    if *allow { Rule::Allow(messages) } else { Rule::Deny(messages) }
                })
                .collect(),
            ..Policy::default()
        };
        let fits = |entries: &[String], agent: &str| {
            entries.iter().any(|entry| {
                entry == "*"
                    || entry == agent
                    || policy.groups.get(entry).is_some_and(|group| group.iter().any(|member| member == agent))
            })
        };
        let chain: Vec<String> = chain.iter().map(|it| format!("a{it}")).collect();
        let is_for = |allow: bool, entries: &[String], chain: &[String]| {
            !chain.is_empty()
                && match allow {
                    true => chain.iter().all(|asker| fits(entries, asker)),
                    false => chain.iter().any(|asker| fits(entries, asker)),
                }
        };
        let expected = |from: &str, to: &str, chain: &[String]| {
            policy
                .rules
                .iter()
                .find_map(|rule| {
                    let (allow, messages) = match rule {
                        Rule::Allow(messages) => (true, messages),
                        Rule::Deny(messages) => (false, messages),
                    };
                    let askers = messages.on_behalf_of.as_deref();
                    let is_for = askers.is_none_or(|askers| is_for(allow, askers, chain));
                    (fits(&messages.from, from) && fits(&messages.to, to) && is_for).then_some(allow)
                })
                .unwrap_or(true)
        };
        let permissions = policy.compile(&platform()).unwrap();
        for from in 0..7 {
            for to in 0..7 {
                let (from, to) = (format!("a{from}"), format!("a{to}"));
                let whole = |name: &String| format!("{name}@factory");
                prop_assert_eq!(
                    permissions.may_send(&whole(&from), &whole(&to)),
                    expected(&from, &to, &[])
                );
                let askers: Vec<String> = chain.iter().map(whole).collect();
                prop_assert_eq!(
                    permissions.may_send_for(&whole(&from), &whole(&to), &askers),
                    expected(&from, &to, &chain)
                );
            }
        }
    }
}

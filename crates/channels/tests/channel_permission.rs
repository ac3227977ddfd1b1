//! The compiled rules about channels, compared with the rules read one by one.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use sealbus_channels::{ChannelPath, ChannelPattern, ChannelPermissions};
use sealbus_seal::PlatformName;
use sealbus_seal::permission::{ChannelRight, ChannelRule, ChannelUses, Policy};

fn platform() -> PlatformName {
    PlatformName::new("factory").unwrap()
}

fn path(text: &str) -> ChannelPath {
    ChannelPath::new(text).unwrap()
}

#[test]
fn everybody_may_do_everything_by_default() {
    for permissions in [
        ChannelPermissions::default(),
        ChannelPermissions::compile(&Policy::default(), &platform()).unwrap(),
    ] {
        assert!(permissions.allow_everything());
        for right in ChannelRight::ALL {
            assert!(permissions.may("a@factory", right, &path("/dates")));
        }
    }
}

#[test]
fn the_first_rule_that_fits_decides() {
    let policy: Policy = toml::from_str(
        r#"
        [groups]
        sellers = ["seller-1", "seller-2@factory"]

        [[channel]]
        allow = { agents = ["sellers"], do = ["publish", "answer"], on = ["/prices/**"] }

        [[channel]]
        deny = { agents = ["*"], do = ["publish", "answer"], on = ["/prices/**"] }

        [[channel]]
        allow = { agents = ["auditor"], do = ["subscribe"], on = ["/books/**"] }

        [[channel]]
        deny = { agents = ["*"], do = ["subscribe"], on = ["/books/**"] }
        "#,
    )
    .unwrap();
    let permissions = ChannelPermissions::compile(&policy, &platform()).unwrap();
    let may = |agent: &str, right, channel: &str| {
        permissions.may(&format!("{agent}@factory"), right, &path(channel))
    };
    use ChannelRight::{Answer, Publish, Subscribe};
    assert!(may("seller-1", Publish, "/prices/tea"));
    assert!(may("seller-2", Answer, "/prices"));
    assert!(!may("buyer", Publish, "/prices/tea"));
    assert!(may("buyer", Subscribe, "/prices/tea"));
    assert!(may("buyer", Publish, "/dates"));
    assert!(may("auditor", Subscribe, "/books/today"));
    assert!(!may("buyer", Subscribe, "/books/today"));
    assert!(!permissions.may("seller-1@elsewhere", Publish, &path("/prices/tea")));
    let some = |agent: &str, pattern: &str| {
        let pattern = ChannelPattern::new(pattern).unwrap();
        permissions.may_on_some(&format!("{agent}@factory"), Subscribe, &pattern)
    };
    assert!(some("auditor", "/books/*"));
    assert!(!some("buyer", "/books/*"));
    assert!(some("buyer", "/**"));
}

#[test]
fn a_wrong_rule_is_refused_by_its_number() {
    let rule = |agent: &str, on: &str| Policy {
        channel_rules: vec![ChannelRule::Deny(ChannelUses {
            agents: vec![agent.to_owned()],
            rights: vec![ChannelRight::Publish],
            on: vec![on.to_owned()],
        })],
        ..Policy::default()
    };
    let error = ChannelPermissions::compile(&rule("a", "/a//b"), &platform()).unwrap_err();
    assert!(error.to_string().starts_with("rule 1 "), "{error}");
    assert!(ChannelPermissions::compile(&rule("a b", "/a"), &platform()).is_err());
    assert!(
        toml::from_str::<Policy>("[[channel]]\ndeny = { agents = [], do = [\"eat\"], on = [] }")
            .is_err()
    );
}

fn uses() -> impl Strategy<Value = ChannelRule> {
    (
        any::<bool>(),
        prop::collection::vec(prop::sample::select(vec!["a", "b", "g", "*"]), 0..3),
        prop::collection::vec(prop::sample::select(ChannelRight::ALL.to_vec()), 0..3),
        prop::collection::vec(
            prop::sample::select(vec!["/**", "/x", "/x/*", "/x/**", "/*/y", "/x/y"]),
            0..3,
        ),
    )
        .prop_map(|(allow, agents, rights, on)| {
            let texts = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
            let uses = ChannelUses {
                agents: texts(agents),
                rights,
                on: texts(on),
            };
            if allow {
                ChannelRule::Allow(uses)
            } else {
                ChannelRule::Deny(uses)
            }
        })
}

proptest! {
    #[test]
    fn compiled_rules_decide_as_they_read(rules in prop::collection::vec(uses(), 0..80)) {
        let policy = Policy {
            groups: [("g".to_owned(), vec!["b".to_owned(), "c".to_owned()])].into(),
            channel_rules: rules.clone(),
            ..Policy::default()
        };
        let permissions = ChannelPermissions::compile(&policy, &platform()).unwrap();
        for agent in ["a", "b", "c", "d"] {
            for right in ChannelRight::ALL {
                let decide = |channel: &str| {
                    let fits = |uses: &ChannelUses| {
                        let named = uses.agents.iter().any(|name| match name.as_str() {
                            "*" => true,
                            "g" => agent == "b" || agent == "c",
                            name => name == agent,
                        });
                        let on = uses.on.iter().any(|on| ChannelPattern::new(on).unwrap().matches(&path(channel)));
                        named && on && uses.rights.contains(&right)
                    };
                    rules.iter().find_map(|rule| match rule {
                        ChannelRule::Allow(uses) => fits(uses).then_some(true),
                        ChannelRule::Deny(uses) => fits(uses).then_some(false),
                    }).unwrap_or(true)
                };
                let name = format!("{agent}@factory");
                for channel in ["/x", "/x/y", "/x/y/z", "/z/y"] {
                    prop_assert_eq!(permissions.may(&name, right, &path(channel)), decide(channel));
                    for pattern in ["/**", "/x/*", "/*/y", "/x/**"] {
                        let pattern = ChannelPattern::new(pattern).unwrap();
                        if pattern.matches(&path(channel)) && decide(channel) {
                            prop_assert!(permissions.may_on_some(&name, right, &pattern));
                        }
                    }
                }
            }
        }
    }
}

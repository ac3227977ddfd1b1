use proptest::prelude::*;

use super::arbitrary::*;
use super::*;
use crate::sl::{Content, ContentExpression, Term, Wff};
use crate::{AclMessage, Aid, Limits, Performative};

const LIMITS: Limits = Limits::DEFAULT;

fn term(text: &str) -> Term<'_> {
    Term::parse(text, &LIMITS).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn entry(text: &str) -> DfAgentDescription {
    DfAgentDescription::from_term(&term(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The registration that a JADE 4.6.5 DF accepted, and the slots as the DF gave them back.
const PINGER: &str = "(df-agent-description :name (agent-identifier :name pinger@pyplat :addresses (sequence http://127.0.0.1:7990/acc)) :services (set (service-description :name ping :type ping-service :ownership \"me inc\" :ontologies (set planets) :properties (set (property :name cost :value 12)))) :protocols (set fipa-request) :languages (set fipa-sl) :ontologies (set planets))";

#[test]
fn a_registration_that_jade_gave_back_is_read() {
    let pinger = entry(PINGER);
    assert_eq!(
        pinger.name.as_ref().map(|aid| aid.name.as_str()),
        Some("pinger@pyplat")
    );
    assert_eq!(
        pinger.name.as_ref().unwrap().addresses,
        ["http://127.0.0.1:7990/acc"]
    );
    let service = &pinger.services[0];
    assert_eq!(service.name.as_deref(), Some("ping"));
    assert_eq!(service.service_type.as_deref(), Some("ping-service"));
    assert_eq!(service.ownership.as_deref(), Some("me inc"));
    assert_eq!(service.properties[0].value, Some(Term::Integer(12)));
    assert_eq!(pinger.protocols, ["fipa-request"]);
    assert_eq!(pinger.ontologies, ["planets"]);
    assert!(pinger.matches(&entry(
        "(df-agent-description :services (set (service-description :type ping-service)))"
    )));
}

#[test]
fn other_spellings_are_the_same_object() {
    let plain = entry(
        "(df-agent-description :name (agent-identifier :name a@p) \
         :services (set (service-description :name s :type t)) :protocols (set q))",
    );
    for other in [
        "(DF-Agent-Description :NAME (Agent-Identifier :Name a@p) \
         :services (sequence (service-description :name s :type t)) :protocols (sequence q))",
        "(df-agent-description (agent-identifier a@p) (set (service-description s t)) (set q))",
        "( df-agent-description :X-unknown (f x) :name ( agent-identifier :name \"a@p\"  ) \
         :services (set (service-description :type \"t\" :name \"s\")) :protocols (set \"q\"))",
    ] {
        let other = entry(other);
        assert_eq!(other, plain);
        assert_eq!(other.to_term(), plain.to_term());
    }
}

/// JADE's words end at 0x7E, and a quoted keyword is no word: such symbols are no words of an ACL expression.
#[test]
fn functions_without_a_form_in_acl_are_read_back_as_they_were_written() {
    for value in [
        "(pfan\x7fproperty :name cost)",
        "(pfan\x7fproperty cost)",
        "(\"two words\" :name cost)",
        "(\"set\" :name cost)",
        "(\"sequence\" cost)",
        "(f :\"two words\" cost)",
        "(f :name (\"set\" a))",
    ] {
        let text = format!("(agent-identifier :name a@p :X-x (set {value}))");
        let aid = Aid::from_term(&term(&text)).unwrap();
        let written = aid.to_term().to_string();
        assert_eq!(Aid::from_term(&term(&written)), Ok(aid.clone()), "{value}");
        let message = AclMessage::new(Performative::Inform).with_receiver(aid);
        assert!(
            crate::string::encode(&message, &mut Vec::new()).is_ok(),
            "{value}"
        );
    }
}

#[test]
fn user_defined_parameters_of_an_agent_identifier_are_kept() {
    let text = "(agent-identifier :name df@plat9 :addresses (sequence http://127.0.0.1:7878/acc) \
                :X-JADE-agent-classname jade.domain.df)";
    let aid = Aid::from_term(&term(text)).unwrap();
    assert_eq!(
        aid.user_defined,
        [("X-JADE-agent-classname".to_owned(), "jade.domain.df".into())]
    );
    assert_eq!(aid.to_term().to_string(), text);
}

#[test]
fn a_variable_in_an_agent_identifier_is_read_back_as_it_was() {
    let aid = Aid::from_term(&term("(agent-identifier :name df@p :X-class ?x.y)")).unwrap();
    let written = aid.to_term().to_string();
    assert_eq!(Aid::from_term(&term(&written)), Ok(aid));
}

#[test]
fn what_jade_refuses_is_refused_alike() {
    let read = |text: &str| match DfFunction::from_term(&term(text)) {
        Ok(DfFunction::Register(description)) => description.check_entry().map(drop),
        Ok(_) => Ok(()),
        Err(exception) => Err(exception),
    };
    for (call, act, reason) in [
        (
            "(register (df-agent-description :services (set)))",
            Performative::Refuse,
            "(missing-parameter df-agent-description name)",
        ),
        (
            "(register (df-agent-description :name (agent-identifier :name a@p) \
             :services (set (service-description :type t))))",
            Performative::Refuse,
            "(missing-parameter service-description name)",
        ),
        (
            "(register (df-agent-description :name (agent-identifier)))",
            Performative::Refuse,
            "(missing-parameter agent-identifier name)",
        ),
        (
            "(frobnicate x)",
            Performative::Refuse,
            "(unsupported-function frobnicate)",
        ),
        (
            "(register)",
            Performative::Refuse,
            "(missing-argument df-agent-description)",
        ),
        (
            "(register a b)",
            Performative::Refuse,
            "unexpected-argument-count",
        ),
        (
            "(register (apple))",
            Performative::Refuse,
            "(unexpected-argument apple)",
        ),
        (
            "(register (df-agent-description :colour red))",
            Performative::Refuse,
            "(unexpected-parameter df-agent-description colour)",
        ),
        (
            "(register (df-agent-description :languages (set a) :languages (set b)))",
            Performative::Refuse,
            "(unexpected-parameter df-agent-description languages)",
        ),
        (
            "(register (df-agent-description :services (set apple)))",
            Performative::Refuse,
            "(unrecognised-parameter-value df-agent-description services)",
        ),
        (
            "(register (df-agent-description :lease-time tomorrow))",
            Performative::Refuse,
            "(unrecognised-parameter-value df-agent-description lease-time)",
        ),
        (
            "(search (df-agent-description) (search-constraints :max-results many))",
            Performative::Refuse,
            "(unrecognised-parameter-value search-constraints max-results)",
        ),
    ] {
        let exception = read(call).unwrap_err();
        assert_eq!(exception.to_wff().to_string(), reason, "{call}");
        assert_eq!(exception.performative(), act, "{call}");
    }
    let state = term("(register (ams-agent-description :state asleep))");
    assert_eq!(
        AmsFunction::from_term(&state)
            .unwrap_err()
            .to_wff()
            .to_string(),
        "(unrecognised-parameter-value ams-agent-description state)"
    );
}

#[test]
fn functions_are_read_by_name_and_by_position() {
    let search = DfFunction::Search(DfAgentDescription::default(), SearchConstraints::at_most(5));
    for text in [
        "(search (df-agent-description) (search-constraints :max-results 5))",
        "(search :template (df-agent-description) :constraints (search-constraints :max-results 5))",
        "(SEARCH (df-agent-description :services (set)) (search-constraints :max-results 5))",
    ] {
        assert_eq!(
            DfFunction::from_term(&term(text)).as_ref(),
            Ok(&search),
            "{text}"
        );
    }
    assert_eq!(
        DfFunction::from_term(&term("(search (df-agent-description))")),
        Ok(DfFunction::Search(
            DfAgentDescription::default(),
            SearchConstraints::default()
        ))
    );
    for text in ["(get-description)", "get-description"] {
        assert_eq!(
            AmsFunction::from_term(&term(text)),
            Ok(AmsFunction::GetDescription)
        );
    }
}

#[test]
fn the_number_of_results_follows_the_standard() {
    assert_eq!(SearchConstraints::default().results(100), 1);
    assert_eq!(SearchConstraints::all().results(100), 100);
    assert_eq!(SearchConstraints::at_most(7).results(100), 7);
    assert_eq!(SearchConstraints::at_most(700).results(100), 100);
}

#[test]
fn exceptions_are_read_in_either_spelling() {
    let read = |text: &str| match &Content::parse(text, &LIMITS).unwrap().expressions[0] {
        ContentExpression::Proposition(wff) => Exception::from_wff(wff),
        other => panic!("{other}"),
    };
    assert_eq!(
        read("(already-registered)"),
        Some(Exception::AlreadyRegistered)
    );
    assert_eq!(
        read("((already-registered))"),
        Some(Exception::AlreadyRegistered)
    );
    assert_eq!(read("(unauthorized)"), Some(Exception::Unauthorised));
    assert_eq!(
        read("((Unsupported-value \"language\"))"),
        Some(Exception::UnsupportedValue("language".into()))
    );
    assert_eq!(
        read("((unrecognized-value content))"),
        Some(Exception::UnrecognisedValue("content".into()))
    );
    assert_eq!(
        read("((internal-error \"no such thing\"))"),
        Some(Exception::InternalError("no such thing".into()))
    );
    assert_eq!(read("((price box 3))"), None);
}

#[test]
fn the_platform_description_of_jade_is_read() {
    let text = r#"((result (action (agent-identifier :name ams@plat9) (get-description)) (sequence (ap-description :name "\"plat9\"" :ap-services (sequence (ap-service :name fipa.mts.mtp.http.std :type fipa.mts.mtp.http.std :addresses (sequence http://127.0.0.1:7878/acc)))))))"#;
    let content = Content::parse(text, &LIMITS).unwrap();
    let [platform] = &results(&content, ApDescription::from_term).unwrap()[..] else {
        panic!()
    };
    assert_eq!(platform.name, "plat9");
    assert_eq!(platform.services[0].name, "fipa.mts.mtp.http.std");
    assert_eq!(
        platform.services[0].addresses,
        ["http://127.0.0.1:7878/acc"]
    );
}

#[test]
fn agents_of_a_jade_platform_are_read() {
    let text = "((result (action (agent-identifier :name ams@plat9) (search (ams-agent-description) (search-constraints :max-results -1))) (sequence (ams-agent-description :name (agent-identifier :name df@plat9 :addresses (sequence http://127.0.0.1:7878/acc) :X-JADE-agent-classname jade.domain.df) :ownership NONE :state active))))";
    let content = Content::parse(text, &LIMITS).unwrap();
    let agents = results(&content, AmsAgentDescription::from_term).unwrap();
    assert_eq!(agents[0].state, Some(AgentState::Active));
    assert_eq!(agents[0].ownership.as_deref(), Some("NONE"));
}

#[test]
fn a_subscription_is_told_from_its_search() {
    let df = Aid::new("df@p").unwrap();
    let template = DfAgentDescription::default().with_service(ServiceDescription::of_type("t"));
    let search = DfFunction::Search(template, SearchConstraints::default());
    let content = Content::of(subscription::expression(search.action(&df)));
    assert_eq!(
        content.to_string(),
        "((iota ?x (result (action (agent-identifier :name df@p) (search (df-agent-description \
         :services (set (service-description :type t))) (search-constraints))) ?x)))"
    );
    let [ContentExpression::Identifying(expression)] = content.expressions.as_slice() else {
        panic!("{content}");
    };
    assert_eq!(subscription::action(expression), Ok(&search.action(&df)));

    let pinger = entry(PINGER);
    let told = subscription::content(expression.clone(), [pinger.to_term()]);
    let bytes = told.to_bytes();
    let told = Content::parse(&bytes, &LIMITS).unwrap();
    assert_eq!(
        subscription::entries(&told, DfAgentDescription::from_term),
        Ok(vec![pinger])
    );
}

#[test]
fn templates_of_values_match_by_structure() {
    for (value, template, matches) in [
        ("12", "12", true),
        ("12", "13", false),
        ("word", "\"word\"", true),
        ("word", "#4\"word", true),
        ("(set a b c)", "(set c a)", true),
        ("(set a b)", "(set a d)", false),
        ("(sequence a b c)", "(sequence a c)", true),
        ("(sequence a b c)", "(sequence c a)", false),
        ("(sequence a a)", "(sequence a a a)", false),
        ("(range :low 1 :high 2)", "(range :high 2)", true),
        ("(range :low 1 :high 2)", "(range)", true),
        ("(range :low 1)", "(range :high 2)", false),
        ("(loc 1 2)", "(loc 1 2)", true),
        ("(loc 1 2)", "(loc 1)", false),
        ("(loc (set 1 2))", "(loc (set 2))", true),
    ] {
        assert_eq!(
            term(value).matches(&term(template)),
            matches,
            "{value} / {template}"
        );
    }
}

/// Drops some slots and members of a description, as `choices` says.
fn weakened(description: &DfAgentDescription, mut choices: u64) -> DfAgentDescription {
    let mut keep = move || {
        let keep = choices & 1 == 1;
        choices >>= 1;
        keep
    };
    let mut weaker = description.clone();
    if !keep() {
        weaker.name = None;
    }
    if !keep() {
        weaker.lease_time = None;
    }
    weaker.protocols.retain(|_| keep());
    weaker.ontologies.retain(|_| keep());
    weaker.languages.retain(|_| keep());
    weaker.scope.retain(|_| keep());
    weaker.services.retain(|_| keep());
    for service in &mut weaker.services {
        if !keep() {
            service.name = None;
        }
        if !keep() {
            service.service_type = None;
        }
        if !keep() {
            service.ownership = None;
        }
        service.protocols.retain(|_| keep());
        service.properties.retain(|_| keep());
        for property in &mut service.properties {
            if !keep() {
                property.value = None;
            }
        }
    }
    weaker
}

proptest! {
    #[test]
    fn agent_identifiers_survive(aid in aid()) {
        let bytes = aid.to_term().to_bytes();
        let back = Aid::from_term(&Term::parse(&bytes, &LIMITS).unwrap()).unwrap();
        prop_assert_eq!(&back, &aid);
    }

    #[test]
    fn functions_of_the_df_survive(
        description in df_description(),
        constraints in constraints(),
        which in 0..4,
    ) {
        let function = match which {
            0 => DfFunction::Register(description),
            1 => DfFunction::Deregister(description),
            2 => DfFunction::Modify(description),
            _ => DfFunction::Search(description, constraints),
        };
        let bytes = function.to_term().to_bytes();
        let back = DfFunction::from_term(&Term::parse(&bytes, &LIMITS).unwrap());
        prop_assert_eq!(back.as_ref(), Ok(&function));
        prop_assert_eq!(back.unwrap().to_term().to_bytes(), bytes);
    }

    #[test]
    fn functions_of_the_ams_survive(
        description in ams_description(),
        constraints in constraints(),
        which in 0..4,
    ) {
        let function = match which {
            0 => AmsFunction::Register(description),
            1 => AmsFunction::Deregister(description),
            2 => AmsFunction::Modify(description),
            _ => AmsFunction::Search(description, constraints),
        };
        let bytes = function.to_term().to_bytes();
        let back = AmsFunction::from_term(&Term::parse(&bytes, &LIMITS).unwrap());
        prop_assert_eq!(back, Ok(function));
    }

    #[test]
    fn every_entry_matches_itself_and_the_empty_template(entry in df_description()) {
        prop_assert!(entry.matches(&entry));
        prop_assert!(entry.matches(&DfAgentDescription::default()));
    }

    #[test]
    fn a_weaker_template_matches_what_a_stronger_one_does(
        entry in df_description(),
        first in any::<u64>(),
        second in any::<u64>(),
    ) {
        let template = weakened(&entry, first);
        prop_assert!(entry.matches(&template));
        prop_assert!(entry.matches(&weakened(&template, second)));
    }

    #[test]
    fn what_matches_still_matches_when_the_entry_gains(
        entry in df_description(),
        template in df_description(),
        more in service(),
    ) {
        let template = weakened(&template, 0b1000_0000_0100_0010_0000);
        let mut richer = entry.clone();
        richer.services.push(more);
        richer.protocols.push("more".into());
        prop_assert!(!entry.matches(&template) || richer.matches(&template));
    }

    #[test]
    fn matching_is_transitive(entry in df_description(), a in any::<u64>(), b in any::<u64>()) {
        let middle = weakened(&entry, a);
        let weakest = weakened(&middle, b);
        prop_assert!(middle.matches(&weakest));
        prop_assert!(entry.matches(&weakest));
    }

    #[test]
    fn a_search_by_ams_state_finds_just_that(entry in ams_description(), template in ams_description()) {
        prop_assert!(entry.matches(&entry));
        let state_only = AmsAgentDescription { state: template.state, ..Default::default() };
        prop_assert_eq!(
            entry.matches(&state_only),
            template.state.is_none() || template.state == entry.state
        );
    }

    #[test]
    fn any_exception_survives(object in "[a-z]{1,5}", slot in ".*") {
        use Exception::*;
        for exception in [
            UnsupportedAct(slot.clone()), UnexpectedAct(slot.clone()),
            UnsupportedValue(slot.clone()), UnrecognisedValue(slot.clone()), Unauthorised,
            UnsupportedFunction(slot.clone()), MissingArgument(slot.clone()),
            UnexpectedArgument(slot.clone()), UnexpectedArgumentCount,
            MissingParameter { object: object.clone(), slot: slot.clone() },
            UnexpectedParameter { object: object.clone(), slot: slot.clone() },
            UnrecognisedParameterValue { object: object.clone(), slot: slot.clone() },
            AlreadyRegistered, NotRegistered, InternalError(slot.clone()),
        ] {
            let bytes = Content::of(exception.to_wff()).to_bytes();
            let content = Content::parse(&bytes, &LIMITS).unwrap();
            let [ContentExpression::Proposition(wff)] = content.expressions.as_slice() else {
                panic!("{content}");
            };
            prop_assert_eq!(Exception::from_wff(wff), Some(exception));
        }
    }

    #[test]
    fn any_term_is_read_or_turned_down(term in crate::sl::arbitrary::term()) {
        let _ = Aid::from_term(&term);
        let _ = DfFunction::from_term(&term);
        let _ = AmsFunction::from_term(&term);
        let _ = ApDescription::from_term(&term);
        let _ = Exception::from_wff(&Wff::predicate("internal-error", vec![term]));
    }
}

//! Random lives of a DF and an AMS against simple models, with restarts in between.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sealbus_fipa::management::{
    AgentState, AmsAgentDescription, DfAgentDescription, SearchConstraints, ServiceDescription,
};
use sealbus_fipa::sl::Term;

use super::*;
use crate::client::{Answer, cancel, subscribe};
use crate::df::Outcome as DfOutcome;
use sealbus_store::StoreError;

const AGENTS: [&str; 5] = ["a@p", "b@p", "c@p", "d@p", "e@p"];

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(
        prop::sample::select(vec!["x", "y", "z"]).prop_map(str::to_owned),
        0..3,
    )
}

fn description() -> impl Strategy<Value = DfAgentDescription> {
    let service = (words(), words(), words(), 0i64..3, any::<bool>()).prop_map(
        |(name, service_type, protocols, number, with_property)| {
            let service = ServiceDescription {
                name: name.first().cloned(),
                service_type: service_type.first().cloned(),
                protocols,
                ..Default::default()
            };
            if with_property {
                service.with_property("n", Term::Integer(number))
            } else {
                service
            }
        },
    );
    (words(), words(), prop::collection::vec(service, 0..3)).prop_map(
        |(languages, ontologies, services)| DfAgentDescription {
            languages,
            ontologies,
            services,
            ..Default::default()
        },
    )
}

#[derive(Debug, Clone)]
enum Step {
    Register(usize, DfAgentDescription, Option<u64>),
    Modify(usize, DfAgentDescription, Option<u64>),
    Deregister(usize),
    Subscribe(usize, u8, DfAgentDescription),
    Cancel(usize, u8),
    Gone(usize),
    Pass(u64),
    Restart,
    /// The store refuses the changes of the next step.
    Fail,
}

fn step() -> impl Strategy<Value = Step> {
    let agent = 0..AGENTS.len();
    let lease = || prop::option::weighted(0.3, 1u64..20);
    prop_oneof![
        4 => (agent.clone(), description(), lease()).prop_map(|(a, d, l)| Step::Register(a, d, l)),
        3 => (agent.clone(), description(), lease()).prop_map(|(a, d, l)| Step::Modify(a, d, l)),
        2 => agent.clone().prop_map(Step::Deregister),
        5 => (agent.clone(), 0u8..2, description()).prop_map(|(a, c, d)| Step::Subscribe(a, c, d)),
        3 => (agent.clone(), 0u8..2).prop_map(|(a, c)| Step::Cancel(a, c)),
        1 => agent.prop_map(Step::Gone),
        2 => (1u64..10).prop_map(Step::Pass),
        1 => Just(Step::Restart),
        4 => Just(Step::Fail),
    ]
}

/// The knowledge of the DF, kept in the simplest way.
#[derive(Default, Clone)]
struct Model {
    /// In the order of registration.
    entries: Vec<(usize, DfAgentDescription)>,
    subscriptions: BTreeMap<(usize, u8), DfAgentDescription>,
}

impl Model {
    fn position(&self, agent: usize) -> Option<usize> {
        self.entries.iter().position(|(it, _)| *it == agent)
    }

    /// How many subscribers are told of a change.
    fn concerned(
        &self,
        before: Option<&DfAgentDescription>,
        after: Option<&DfAgentDescription>,
    ) -> usize {
        let matches = |template: &&DfAgentDescription| {
            [before, after]
                .into_iter()
                .flatten()
                .any(|entry| entry.matches(template))
        };
        self.subscriptions.values().filter(matches).count()
    }
}

struct World {
    store: MemoryStore,
    df: Df,
    model: Model,
    seconds: u64,
    failing: bool,
}

fn new_df() -> Df {
    Df::new(aid("df@p"), DirectoryLimits::default())
}

impl World {
    fn now(&self) -> SystemTime {
        after(self.seconds)
    }

    /// Commits an outcome, or takes it back if the store is to fail.
    fn settle(&mut self, outcome: DfOutcome, former: Model) {
        if std::mem::take(&mut self.failing) && !outcome.batch.is_empty() {
            let error = StoreError::TooLarge { length: 0 };
            for apology in self.df.revert(outcome, &error) {
                assert_eq!(apology.performative, Performative::Failure);
            }
            self.model = former;
        } else {
            commit(&self.store, &outcome.batch);
        }
    }

    fn ask(&mut self, agent_index: usize, function: DfFunction) -> DfOutcome {
        let name = AGENTS[agent_index];
        let message = ask_df(&aid("df@p"), &function).with_sender(aid(name));
        self.df.handle(&message, &agent(name), self.now())
    }

    fn entry(
        &self,
        agent: usize,
        mut it: DfAgentDescription,
        lease: Option<u64>,
    ) -> DfAgentDescription {
        it.name = Some(aid(AGENTS[agent]));
        for service in &mut it.services {
            service.name.get_or_insert_with(|| "x".into());
            service.service_type.get_or_insert_with(|| "y".into());
        }
        it.lease_time = lease.map(|seconds| {
            sealbus_fipa::DateTime::from_system_time(self.now() + Duration::from_secs(seconds))
                .unwrap()
        });
        it
    }

    fn step(&mut self, step: Step) {
        let former = self.model.clone();
        match step {
            Step::Register(who, description, lease) => {
                let entry = self.entry(who, description, lease);
                let known = self.model.position(who).is_some();
                let concerned = self.model.concerned(None, Some(&entry));
                let outcome = self.ask(who, DfFunction::Register(entry.clone()));
                if known {
                    assert_eq!(one(&outcome.messages).0, "failure");
                } else {
                    assert_eq!(outcome.messages.len(), 1 + concerned);
                    self.model.entries.push((who, entry));
                }
                self.settle(outcome, former);
            }
            Step::Modify(who, description, lease) => {
                let entry = self.entry(who, description, lease);
                let known = self.model.position(who);
                let outcome = self.ask(who, DfFunction::Modify(entry.clone()));
                match known {
                    None => assert_eq!(one(&outcome.messages).0, "failure"),
                    Some(position) => {
                        let before = &self.model.entries[position].1;
                        let concerned = self.model.concerned(Some(before), Some(&entry));
                        assert_eq!(outcome.messages.len(), 1 + concerned);
                        self.model.entries[position].1 = entry;
                    }
                }
                self.settle(outcome, former);
            }
            Step::Deregister(who) => {
                let name = DfAgentDescription::of(aid(AGENTS[who]));
                let outcome = self.ask(who, DfFunction::Deregister(name));
                match self.model.position(who) {
                    None => assert_eq!(one(&outcome.messages).0, "failure"),
                    Some(position) => {
                        let (_, entry) = self.model.entries.remove(position);
                        let concerned = self.model.concerned(Some(&entry), None);
                        assert_eq!(outcome.messages.len(), 1 + concerned);
                    }
                }
                self.settle(outcome, former);
            }
            Step::Subscribe(who, conversation, template) => {
                let found = self
                    .model
                    .entries
                    .iter()
                    .any(|(_, entry)| entry.matches(&template));
                let message = subscription(who, conversation, &template);
                let outcome = self.df.handle(&message, &agent(AGENTS[who]), self.now());
                assert_eq!(outcome.messages.len(), 1 + usize::from(found));
                self.model
                    .subscriptions
                    .insert((who, conversation), template);
                self.settle(outcome, former);
            }
            Step::Cancel(who, conversation) => {
                let message = cancel(&subscription(who, conversation, &Default::default()));
                let outcome = self.df.handle(&message, &agent(AGENTS[who]), self.now());
                let known = self
                    .model
                    .subscriptions
                    .remove(&(who, conversation))
                    .is_some();
                let expected = if known { "inform" } else { "not-understood" };
                assert_eq!(one(&outcome.messages).0, expected);
                self.settle(outcome, former);
            }
            Step::Gone(who) => {
                let outcome = self.df.agent_gone(AGENTS[who]);
                self.model.entries.retain(|(it, _)| *it != who);
                self.model.subscriptions.retain(|(it, _), _| *it != who);
                self.settle(outcome, former);
            }
            Step::Pass(seconds) => {
                self.seconds += seconds;
                let outcome = self.df.tick(self.now());
                let now = self.now();
                self.model.entries.retain(|(_, entry)| {
                    entry
                        .lease_time
                        .is_none_or(|end| end.system_time(now).unwrap() > now)
                });
                self.settle(outcome, former);
            }
            Step::Restart => {
                let limits = DirectoryLimits::default();
                self.df = ready(Df::load(aid("df@p"), limits, &self.store)).unwrap();
            }
            Step::Fail => self.failing = true,
        }
    }

    /// Every search finds the model's entries in the model's order, by index and after a restart.
    fn check(&mut self, templates: &[DfAgentDescription]) {
        let mut reloaded = ready(Df::load(
            aid("df@p"),
            DirectoryLimits::default(),
            &self.store,
        ))
        .unwrap();
        assert_eq!(reloaded.deadline(), self.df.deadline());
        for template in templates {
            let expected: Vec<_> = self.model.entries.iter().map(|(_, entry)| entry).collect();
            let expected: Vec<_> = expected
                .into_iter()
                .filter(|entry| entry.matches(template))
                .collect();
            assert_eq!(self.df.search(template, usize::MAX), expected);
            assert_eq!(reloaded.search(template, usize::MAX), expected);
            let first = expected.first().copied().into_iter().collect::<Vec<_>>();
            assert_eq!(self.df.search(template, 1), first);
            let (mut parts, mut next) = (Vec::new(), Some(0));
            while let Some(first) = next {
                let (part, rest) = self.df.search_part(template, first, 2, 200);
                assert!(part.len() <= 2);
                parts.extend(part);
                next = rest;
            }
            assert_eq!(parts, expected);
        }
        // Subscriptions survive too: both DFs send the same notifications of the same new entry.
        for template in templates {
            let name = "newcomer@p";
            let newcomer = self.entry(0, template.clone(), None);
            let newcomer = DfAgentDescription {
                name: Some(aid(name)),
                ..newcomer
            };
            let message =
                ask_df(&aid("df@p"), &DfFunction::Register(newcomer)).with_sender(aid(name));
            let now = self.now();
            let [mine, theirs] = [&mut self.df, &mut reloaded].map(|df| {
                let outcome = df.handle(&message, &agent(name), now);
                let told = told(&outcome.messages);
                let _ = df.revert(outcome, &StoreError::TooLarge { length: 0 });
                told
            });
            assert_eq!(mine, theirs);
        }
    }
}

fn subscription(who: usize, conversation: u8, template: &DfAgentDescription) -> AclMessage {
    subscribe(&aid("df@p"), template.clone(), SearchConstraints::all())
        .with_sender(aid(AGENTS[who]))
        .with_conversation_id(i64::from(conversation))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_df_knows_what_it_was_told_also_after_restarts(
        steps in prop::collection::vec(step(), 1..40),
        templates in prop::collection::vec(description(), 1..4),
    ) {
        let mut world = World {
            store: MemoryStore::new(),
            df: new_df(),
            model: Model::default(),
            seconds: 0,
            failing: false,
        };
        let mut templates = templates;
        templates.push(DfAgentDescription::default());
        for step in steps {
            world.step(step);
        }
        world.check(&templates);
    }

    #[test]
    fn an_ams_knows_what_it_was_told_also_after_restarts(
        steps in prop::collection::vec((0..AGENTS.len(), 0u8..4, 0..5usize), 1..40),
    ) {
        use AgentState::*;
        let states = [Initiated, Active, Suspended, Waiting, Transit];
        let store = MemoryStore::new();
        let mut ams = Ams::new(aid("ams@p"), DirectoryLimits::default());
        let mut model: Vec<(usize, AgentState)> = Vec::new();
        for (who, what, state) in steps {
            let (name, state) = (AGENTS[who], states[state]);
            let known = model.iter().position(|(it, _)| *it == who);
            match what {
                0 => {
                    let entry = AmsAgentDescription {
                        state: Some(state),
                        ..AmsAgentDescription::of(aid(name))
                    };
                    commit(&store, &ams.place(entry).unwrap().batch);
                    match known {
                        Some(position) => model[position].1 = state,
                        None => model.push((who, state)),
                    }
                }
                1 => {
                    commit(&store, &ams.follow(&aid(name), Some(state)).unwrap().batch);
                    match known {
                        Some(position) => model[position].1 = state,
                        None => model.push((who, state)),
                    }
                }
                2 => {
                    commit(&store, &ams.remove(name).batch);
                    model.retain(|(it, _)| *it != who);
                }
                _ => {
                    let limits = DirectoryLimits::default();
                    ams = ready(Ams::load(aid("ams@p"), limits, &store)).unwrap();
                }
            }
            prop_assert_eq!(ams.len(), model.len());
        }
        let reloaded = ready(Ams::load(aid("ams@p"), DirectoryLimits::default(), &store)).unwrap();
        for state in states {
            let template = AmsAgentDescription { state: Some(state), ..Default::default() };
            let expected = model.iter().filter(|(_, it)| *it == state).map(|(who, _)| AGENTS[*who]);
            let expected: Vec<_> = expected.collect();
            for ams in [&ams, &reloaded] {
                let found = ams.search(&template, usize::MAX);
                let found: Vec<_> =
                    found.iter().map(|it| it.name.as_ref().unwrap().name.as_str()).collect();
                prop_assert_eq!(&found, &expected);
            }
        }
    }

    #[test]
    fn any_content_is_answered_once(content in "[()#\"\\\\ :?a-z=|12-]{0,60}", act in 0..22usize) {
        let mut df = new_df();
        let mut message = request("a@p", &content);
        message.performative = Performative::STANDARD[act].clone();
        let outcome = df.handle(&message, &agent("a@p"), now());
        prop_assert!(outcome.messages.len() <= 1);
        let mut ams = Ams::new(aid("ams@p"), DirectoryLimits::default());
        let outcome = ams.handle(&message, &agent("a@p"), now());
        prop_assert!(outcome.messages.len() <= 1);
        for answer in &outcome.messages {
            prop_assert!(Answer::read(answer).is_err());
        }
    }
}

#[test]
fn a_row_that_cannot_be_read_is_named() {
    for (key, row) in [
        ("df/entry/a@p", &b"1234"[..]),
        ("df/entry/a@p", b"12345678(nonsense"),
        ("df/entry/a@p", b"12345678(apple)"),
        ("df/subscription/zz", b"x"),
        ("df/subscription/01", b"x"),
    ] {
        let store = MemoryStore::new();
        let mut batch = Batch::new();
        batch.put(key, row);
        commit(&store, &batch);
        let error = ready(Df::load(aid("df@p"), DirectoryLimits::default(), &store)).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
}

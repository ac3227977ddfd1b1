//! A replica and its original, while updates are lost, doubled and late, nodes come and go, and the Master starts anew.

mod processes;

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::ProcessContact;

fn at(port: u16) -> AgentLocation {
    match port {
        0 => AgentLocation::Unknown,
        1 => AgentLocation::InTransit,
        _ => AgentLocation::Process(ProcessContact {
            node: "node-1".to_owned(),
            process: "p".to_owned(),
            address: ([127, 0, 0, 1], port).into(),
        }),
    }
}

fn contact(process: usize, port: u16) -> ProcessContact {
    ProcessContact {
        node: "node-1".to_owned(),
        process: format!("process-{process}"),
        address: ([127, 0, 0, 1], port).into(),
    }
}

fn node(name: &str) -> AgentLocation {
    AgentLocation::Process(ProcessContact {
        node: name.to_owned(),
        process: format!("process-of-{name}"),
        address: ([127, 0, 0, 1], 9).into(),
    })
}

/// Asks until there is nothing more to ask for. Returns the changes, and the number of questions.
fn catch_up(directory: &mut Directory, name: &str, replica: &mut Replica) -> (Vec<Changed>, usize) {
    let mut changed = Vec::new();
    loop {
        let standing = replica.standing();
        changed.push(replica.answered(directory.answer(name, &standing)));
        if !replica.wants() {
            let asked = changed.len();
            return (changed, asked);
        }
        assert!(changed.len() < 1000, "{replica:?}");
    }
}

/// Checks that the replica equals the original, as far as it covers it.
fn check(directory: &Directory, replica: &Replica, names: impl Iterator<Item = String>) {
    for name in names {
        let known = replica.locate(&name);
        // Nothing remains of what it once covered.
        if replica.covers(&name) || known != AgentLocation::Unknown {
            assert_eq!(directory.locate(&name), known, "{name}");
        }
    }
    let heard = replica.hears_of_processes().then(|| directory.processes());
    assert_eq!(replica.processes(), heard);
    assert_eq!(directory.rules(), replica.rules());
}

/// Everything that can happen to a platform of a few nodes.
#[derive(Clone, Debug)]
enum Event {
    /// An agent has another place.
    Moves(usize, u16),
    Joins(usize, u16),
    Ends(usize),
    /// The platform has this many agents in addition to those that move.
    Grows(usize),
    NodeComes(usize),
    NodeGoes(usize),
    MasterStartsAnew,
    /// A node begins or stops to follow an agent.
    Follows(usize, usize),
    Unfollows(usize, usize),
    OwnAgents(usize, Vec<usize>),
    /// A process of a node begins to use channels, or the last one that uses them ends.
    Hears(usize, bool),
    /// The Master tells a node its news, which arrives this many times; or later.
    Tells(usize, usize),
    TellsLate(usize),
    /// Late news arrive.
    Arrives,
    /// A node asks. The question, the answer, or neither is lost.
    Asks(usize),
    AsksInVain(usize),
    AnswerIsLost(usize),
}

const NODES: usize = 6;
const AGENTS: usize = 40;

fn event() -> impl Strategy<Value = Event> {
    let (agent, node) = (0..AGENTS, 0..NODES);
    prop_oneof![
        6 => (agent.clone(), 0_u16..6).prop_map(|(agent, port)| Event::Moves(agent, port)),
        2 => (0_usize..5, 7_u16..9).prop_map(|(process, port)| Event::Joins(process, port)),
        1 => (0_usize..5).prop_map(Event::Ends),
        2 => prop_oneof![Just(0_usize), Just(1600), Just(2100), Just(4500)].prop_map(Event::Grows),
        1 => node.clone().prop_map(Event::NodeComes),
        1 => node.clone().prop_map(Event::NodeGoes),
        1 => Just(Event::MasterStartsAnew),
        3 => (node.clone(), agent.clone()).prop_map(|(node, agent)| Event::Follows(node, agent)),
        1 => (node.clone(), agent.clone()).prop_map(|(node, agent)| Event::Unfollows(node, agent)),
        1 => (node.clone(), prop::collection::vec(agent, 0..4))
            .prop_map(|(node, agents)| Event::OwnAgents(node, agents)),
        2 => (node.clone(), any::<bool>()).prop_map(|(node, hears)| Event::Hears(node, hears)),
        3 => (node.clone(), 0_usize..3).prop_map(|(node, times)| Event::Tells(node, times)),
        1 => node.clone().prop_map(Event::TellsLate),
        1 => Just(Event::Arrives),
        6 => node.clone().prop_map(Event::Asks),
        1 => node.clone().prop_map(Event::AsksInVain),
        1 => node.prop_map(Event::AnswerIsLost),
    ]
}

struct World {
    directory: Directory,
    replicas: Vec<Replica>,
    there: HashSet<usize>,
    agents: usize,
    ended: HashSet<usize>,
    late: Vec<(usize, DirectoryUpdate)>,
}

fn name_of(node: usize) -> String {
    format!("node-of-{node}")
}

fn agent(number: usize) -> String {
    format!("agent-{number}")
}

fn filler(number: usize) -> String {
    format!("filler-{number}")
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            directory: Directory::starting_at(1),
            replicas: (0..NODES).map(|_| Replica::default()).collect(),
            there: (0..4).collect(),
            agents: 0,
            ended: HashSet::new(),
            late: Vec::new(),
        };
        for number in 0..4 {
            let name = name_of(number);
            world.directory.set(&name, node(&name));
        }
        world
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Moves(number, port) => {
                self.directory.set(&agent(number), at(port));
            }
            Event::Joins(process, port) => self.directory.joined(contact(process, port)),
            Event::Ends(process) => {
                self.ended.insert(process);
                let agents = [agent(process)];
                self.directory.ended(contact(process, 7).named(), &agents);
            }
            Event::Grows(agents) => {
                for number in 0..agents.max(self.agents) {
                    let location = at(if number < agents { 5 } else { 0 });
                    self.directory.set(&filler(number), location);
                }
                self.agents = agents;
            }
            Event::NodeComes(number) => {
                if self.there.insert(number) {
                    self.replicas[number] = Replica::default();
                }
                let name = name_of(number);
                self.directory.set(&name, node(&name));
            }
            Event::NodeGoes(number) => {
                self.there.remove(&number);
                self.directory.set(&name_of(number), AgentLocation::Unknown);
            }
            Event::MasterStartsAnew => {
                let mut anew = Directory::starting_at(self.directory.revision() + 1_000_000);
                for number in &self.there {
                    let name = name_of(*number);
                    anew.set(&name, node(&name));
                }
                for name in self.names() {
                    anew.set(&name, self.directory.locate(&name));
                }
                for process in self.directory.processes() {
                    anew.joined(process);
                }
                self.directory = anew;
            }
            Event::Follows(node, number) => self.replicas[node].follow(&agent(number)),
            Event::Unfollows(node, number) => self.replicas[node].unfollow(&agent(number)),
            Event::OwnAgents(node, own) => {
                let own = own.into_iter().map(agent).collect();
                self.replicas[node].own_agents_are(&Arc::new(own));
            }
            Event::Hears(node, hears) => self.replicas[node].hear_processes(hears),
            Event::Tells(node, times) => {
                let news = self.directory.news_for(&name_of(node));
                for update in (0..times).filter_map(|_| news.clone()) {
                    self.replicas[node].told(update);
                }
            }
            Event::TellsLate(node) => {
                let news = self.directory.news_for(&name_of(node));
                self.late.extend(news.map(|news| (node, news)));
            }
            Event::Arrives => {
                for (node, update) in self.late.drain(..) {
                    self.replicas[node].told(update);
                }
            }
            Event::Asks(node) => {
                let standing = self.replicas[node].standing();
                // News that overtakes the answer changes nothing.
                let answer = self.directory.answer(&name_of(node), &standing);
                if let Some(news) = self.directory.news_for(&name_of(node)) {
                    self.replicas[node].told(news);
                }
                self.replicas[node].answered(answer);
            }
            Event::AsksInVain(node) => {
                self.replicas[node].standing();
                self.replicas[node].unanswered();
            }
            Event::AnswerIsLost(node) => {
                let standing = self.replicas[node].standing();
                self.directory.answer(&name_of(node), &standing);
                self.replicas[node].unanswered();
            }
        }
    }

    fn names(&self) -> impl Iterator<Item = String> + use<> {
        let (agents, nodes) = ((0..AGENTS).map(agent), (0..NODES).map(name_of));
        agents.chain(nodes).chain((0..self.agents).map(filler))
    }

    /// Whether an agent that is there is known to somebody who can be asked, or to the Master alone.
    fn finds(&self, name: &str) -> bool {
        let Some(asker) = self.there.iter().next() else {
            return true;
        };
        let holders = self.replicas[*asker].holders(name);
        holders.iter().any(|holder| {
            let number = (0..NODES).find(|number| name_of(*number) == *holder);
            let replica = number.filter(|number| self.there.contains(number));
            replica
                .is_some_and(|number| self.replicas[number].locate(name) != AgentLocation::Unknown)
        })
    }

    /// Lets all nodes ask until they want nothing more.
    fn settles(&mut self) {
        // Holders state what they hold, and then the others drop it.
        for _ in 0..3 {
            for number in self.there.clone() {
                catch_up(
                    &mut self.directory,
                    &name_of(number),
                    &mut self.replicas[number],
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Updates may be lost, doubled or late, nodes come and go, the platform grows and shrinks, and the Master starts
    /// anew. Still, a replica that gets the answers to its standings equals the original in what it covers, and covers
    /// what it must hold.
    #[test]
    fn a_replica_catches_up(events in prop::collection::vec(event(), 1..60)) {
        let mut world = World::new();
        for event in events {
            world.happens(event);
        }
        world.settles();
        let World { directory, replicas, there, .. } = &mut world;
        let mut held = 0;
        for number in there.iter() {
            let replica = &replicas[*number];
            for followed in (0..AGENTS).map(agent).filter(|name| replica.follows(name)) {
                prop_assert!(replica.covers(&followed), "{followed}");
            }
            held += replica.held().count() as usize;
        }
        let whole = SLICES * if directory.is_sliced() { HOLDERS.min(there.len()) } else { there.len() };
        prop_assert_eq!(held, whole);
        for number in &world.there {
            check(&world.directory, &world.replicas[*number], world.names());
        }
        // A later change is told to the nodes that it concerns.
        world.directory.concerned();
        world.directory.set("agent-1", at(4000));
        if let Concerned::Nodes(nodes) = world.directory.concerned() {
            for name in nodes {
                let number = (0..NODES).find(|number| name_of(*number) == name).unwrap();
                // A node that has gone did not settle, so it may not know yet that it follows the agent.
                if !world.there.contains(&number) {
                    continue;
                }
                let news = world.directory.news_for(&name);
                world.replicas[number].told(news.unwrap());
                prop_assert_eq!(world.replicas[number].locate("agent-1"), at(4000));
            }
        }
    }

    /// Nodes come and go one after the other, and each has the time to be told. An agent that is there can be found at
    /// every moment, even if the Master is lost at that moment.
    #[test]
    fn a_present_agent_is_found_while_holders_change(
        changes in prop::collection::vec((0..NODES, any::<bool>(), 0_usize..4), 1..20),
    ) {
        let mut world = World::new();
        world.happens(Event::Grows(2100));
        for number in 0..AGENTS {
            world.happens(Event::Moves(number, 5));
        }
        world.settles();
        for (number, comes, size) in changes {
            match (comes, world.there.len()) {
                (true, _) => world.happens(Event::NodeComes(number)),
                (false, 4..) => world.happens(Event::NodeGoes(number)),
                (false, _) => world.happens(Event::Grows([2100, 1600, 1400, 2500][size])),
            }
            // Every node asks in turn, one part at a time.
            for _ in 0..12 {
                for number in world.there.clone() {
                    world.happens(Event::Asks(number));
                    for number in (0..AGENTS).step_by(3) {
                        prop_assert!(world.finds(&agent(number)), "agent-{number}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_update_tells_what_it_changed() {
    let mut directory = Directory::starting_at(10);
    directory.set("a", at(5));
    directory.set("b", at(6));
    let mut replica = Replica::default();
    let (changed, asked) = catch_up(&mut directory, "node-1", &mut replica);
    assert_eq!((changed[0].agents.len(), asked), (2, 1));
    directory.set("a", at(0));
    let (changed, _) = catch_up(&mut directory, "node-1", &mut replica);
    let change = DirectoryChange {
        agent: "a".to_owned(),
        location: at(0),
    };
    assert_eq!(changed[0].agents, [change]);
    let ended = EndedProcess {
        node: "node-1".to_owned(),
        process: "p".to_owned(),
    };
    // Its node has asked for an agent of the process, so it may have a link to it.
    directory.ended(ended.clone(), &["a".to_owned()]);
    let changed = replica.told(directory.news_for("node-1").unwrap());
    assert_eq!((changed.agents.len(), changed.ended), (0, vec![ended]));
    assert_eq!(directory.news_for("node-1"), None);
    let (changed, _) = catch_up(&mut directory, "node-1", &mut replica);
    assert_eq!(changed, [Changed::default()]);
}

/// A node on which an agent ran before speaks for the agent. So only a change of its place counts.
#[test]
fn an_agent_leaves_a_node_when_its_place_changes() {
    let mut directory = Directory::starting_at(10);
    directory.set("a", at(5));
    let mut replica = Replica::default();
    catch_up(&mut directory, "node-1", &mut replica);
    // In another process of the node.
    directory.set("a", at(6));
    let moved = directory.news_for("node-1").unwrap();
    assert_eq!(replica.told(moved.clone()).left, []);
    directory.set("a", node("node-2"));
    let standing = replica.standing();
    let elsewhere = directory.news_for("node-1").unwrap();
    // It is refused while the Master is asked.
    assert_eq!(replica.told(elsewhere), Changed::default());
    let left = replica.answered(directory.answer("node-1", &standing)).left;
    assert_eq!(left, [("a".to_owned(), "node-1".to_owned())]);
    // An older one comes again.
    assert_eq!(replica.told(moved), Changed::default());
    assert_eq!(replica.locate("a"), node("node-2"));
    directory.set("a", at(1));
    let left = replica.told(directory.news_for("node-1").unwrap()).left;
    assert_eq!(left, [("a".to_owned(), "node-2".to_owned())]);
    directory.set("a", at(7));
    assert_eq!(replica.told(directory.news_for("node-1").unwrap()).left, []);
}

/// No message contains more than a part of a large directory, and no node waits for a heartbeat to have all of it.
#[test]
fn a_whole_transfer_goes_in_parts() {
    let mut directory = Directory::starting_at(10);
    let name = name_of(0);
    directory.set(&name, node(&name));
    for number in 0..20_000 {
        directory.set(&filler(number), at(number as u16 % 8));
        directory.joined(contact(number, 7));
    }
    let there = (0..20_000).filter(|number| number % 8 > 0).count();
    let mut replica = Replica::default();
    replica.hear_processes(true);
    let mut parts = 0;
    loop {
        let standing = replica.standing();
        let update = directory.answer(&name, &standing);
        assert!(serde_json::to_vec(&update).unwrap().len() < 512 * 1024);
        parts += update.part.is_some() as usize;
        // It continues all the while.
        directory.set(&filler(parts * 100), at(3000 + parts as u16));
        replica.answered(update);
        if !replica.wants() {
            break;
        }
        assert!(replica.processes().is_none() || parts > 20);
    }
    assert_eq!(parts, (there + 20_001).div_ceil(PART));
    catch_up(&mut directory, &name, &mut replica);
    assert_eq!(replica.held(), Slices::ALL);
    check(&directory, &replica, (0..20_000).map(filler));
}

/// If the Master says the same, it is no change.
#[test]
fn the_word_of_another_node_is_believed_in_nothing_that_matters() {
    let mut directory = Directory::starting_at(10);
    for number in 0..NODES {
        let name = name_of(number);
        directory.set(&name, node(&name));
    }
    for number in 0..MOST_WHOLE + 1 {
        directory.set(&filler(number), at(5));
    }
    let mut replica = Replica::default();
    for _ in 0..2 {
        catch_up(&mut directory, "stranger", &mut replica);
    }
    assert_eq!((replica.held(), replica.agents()), (Slices::NONE, 0));
    for (name, said) in [("filler-1", at(5)), ("filler-2", at(6))] {
        replica.follow(name);
        replica.heard(name, &said);
        // A node is not believed in anything that matters.
        assert_eq!(replica.locate(name), AgentLocation::Unknown);
    }
    // In the meantime, some processes were told another place.
    for said in [at(6), at(5), at(5)] {
        replica.follow("filler-4");
        replica.heard("filler-4", &said);
    }
    let (changed, _) = catch_up(&mut directory, "stranger", &mut replica);
    let names = changed.iter().flat_map(|changed| &changed.agents);
    let mut names: Vec<&str> = names.map(|change| change.agent.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["filler-2", "filler-4"]);
    assert!(replica.covers("filler-1") && !replica.covers("filler-3"));
}

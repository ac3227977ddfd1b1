//! Instances that claim the leadership from a model of etcd, in virtual time: answers get lost, leases end, processes sleep
//! between any two steps and are killed. Leaders give orders to nodes, over a network that loses and delays them, so that
//! orders of a former leader come after those of the next one.

use sealbus_seal::{Heard, Term};

use super::*;

/// When faults end, and how long everything may take to settle afterwards.
const FAULTS_END: Moment = 60_000;
const END: Moment = FAULTS_END + 30_000;

/// The rows of the store, as the instances use them.
#[derive(Default)]
struct Store {
    revision: Revision,
    /// Revision, instance, and the lease it hangs on.
    role: Option<(Revision, usize, u64)>,
    /// Revision and owner of the latest term, and its number.
    term: (Revision, usize, u64),
    /// When each lease ends, by number.
    leases: Vec<Moment>,
    /// The lease on which the owner of the latest term claimed it.
    led_on: u64,
}

impl Store {
    fn pass(&mut self, now: Moment) {
        if let Some((.., lease)) = self.role
            && self.leases[lease as usize] <= now
        {
            self.role = None;
        }
    }

    fn next(&mut self) -> Revision {
        self.revision += 1;
        self.revision
    }
}

/// A node. The highest term is on its disk.
#[derive(Default)]
struct Node {
    highest: Option<Term>,
    /// The terms of the orders that the node obeyed.
    obeyed: Vec<Term>,
}

/// An order on its way.
struct Order {
    arrives: Moment,
    node: usize,
    term: Term,
}

/// Nodes of a platform.
const NODES: usize = 3;

struct Instance {
    claimant: Claimant,
    lease: u64,
    /// When the instance goes on.
    at: Moment,
    /// An outcome on its way.
    pending: Option<Outcome>,
    /// The revision of its term, while it leads.
    leads: Option<Revision>,
    /// Its latest term.
    term: Term,
}

/// A small generator: its seed repeats a run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct World {
    store: Store,
    instances: Vec<Instance>,
    nodes: Vec<Node>,
    orders: Vec<Order>,
    /// Whether nodes compare terms.
    are_compared: bool,
    chance: Chance,
    faults: bool,
    /// The claims so far.
    terms: u64,
}

impl World {
    fn new(seed: u64, count: usize, faults: bool) -> Self {
        let instance = |_| Instance {
            claimant: Claimant::new(false, 0),
            lease: 0,
            at: 0,
            pending: None,
            leads: None,
            term: Term::default(),
        };
        Self {
            store: Store::default(),
            instances: (0..count).map(instance).collect(),
            nodes: (0..NODES).map(|_| Node::default()).collect(),
            orders: Vec::new(),
            are_compared: true,
            chance: Chance(seed | 1),
            faults,
            terms: 0,
        }
    }

    fn is_faulty(&self, now: Moment) -> bool {
        self.faults && now < FAULTS_END
    }

    /// Carries out a step of an instance now. Its outcome comes later.
    fn carry_out(&mut self, me: usize, step: Step, now: Moment) -> Option<Outcome> {
        // Either nothing happens, or only the answer is lost.
        let (is_lost, is_unanswered) = match self.is_faulty(now) {
            true => (self.chance.below(12) == 0, self.chance.below(12) == 0),
            false => (false, false),
        };
        if step == Step::GiveBack {
            self.instances[me].leads = None;
        }
        if is_lost {
            return failure(step);
        }
        let store = &mut self.store;
        store.pass(now);
        let lease = self.instances[me].lease;
        let lives = |store: &Store| store.leases.get(lease as usize).is_some_and(|at| *at > now);
        let outcome = match step {
            Step::Wait(_) | Step::Lead | Step::Over => return None,
            Step::Lease => {
                store.leases.push(now + LIFE);
                self.instances[me].lease = store.leases.len() as u64 - 1;
                Outcome::Leased(true)
            }
            Step::Renew => {
                let lives = lives(store);
                if lives {
                    store.leases[lease as usize] = now + LIFE;
                }
                Outcome::Renewed(Some(lives))
            }
            Step::Look => Outcome::Seen {
                term: store.term.0,
                role: match store.role {
                    None => Role::Nobody,
                    Some((revision, holder, _)) if holder == me => Role::Mine(revision),
                    Some(_) => Role::Others,
                },
            },
            Step::Take { seen } => {
                let present = store.role.map_or(0, |(revision, ..)| revision);
                let taken = present == seen && lives(store);
                if taken {
                    let revision = store.next();
                    store.role = Some((revision, me, lease));
                }
                Outcome::Taken(taken)
            }
            Step::Claim { term } => {
                let claimed = store.term.0 == term;
                if claimed {
                    let (_, former, number) = store.term;
                    // Nobody deposes an instance that has kept its lease since it began to lead.
                    let is_over = term == 0
                        || former == me
                        || self.instances[former].leads != Some(term)
                        || store.leases[store.led_on as usize] <= now;
                    assert!(
                        is_over,
                        "{me} deposed {former} at {now}, which had kept its lease"
                    );
                    let revision = store.next();
                    store.term = (revision, me, number + 1);
                    store.led_on = lease;
                    self.terms += 1;
                    self.instances[me].leads = Some(revision);
                    self.instances[me].term.number = number + 1;
                }
                Outcome::Claimed(claimed)
            }
            Step::GiveBack => {
                store.leases[lease as usize] = now;
                store.pass(now);
                Outcome::GivenBack
            }
        };
        match is_unanswered {
            true => failure(step),
            false => Some(outcome),
        }
    }

    fn run_until(&mut self, end: Moment) {
        let mut now = 0;
        while let Some((me, at)) = self
            .instances
            .iter()
            .map(|instance| instance.at)
            .enumerate()
            .min_by_key(|(_, at)| *at)
            .filter(|(_, at)| *at < end)
        {
            now = now.max(at);
            self.deliver(now);
            self.go_on(me, now);
        }
    }

    /// Each node hears something of a leader, sooner or later.
    fn give_orders(&mut self, me: usize, now: Moment) {
        for node in 0..NODES {
            let is_faulty = self.is_faulty(now);
            if is_faulty && self.chance.below(8) == 0 {
                continue;
            }
            let delay = match is_faulty && self.chance.below(8) == 0 {
                true => self.chance.below(12_000),
                false => self.chance.below(30),
            };
            self.orders.push(Order {
                arrives: now + delay,
                node,
                term: self.instances[me].term,
            });
        }
    }

    /// The orders that have arrived by now, in the order of their arrival.
    fn deliver(&mut self, now: Moment) {
        let mut arrived: Vec<Order> = self
            .orders
            .extract_if(.., |order| order.arrives <= now)
            .collect();
        arrived.sort_by_key(|order| order.arrives);
        for Order { node, term, .. } in arrived {
            let node = &mut self.nodes[node];
            match term.heard_after(node.highest) {
                Heard::Over { .. } if self.are_compared => continue,
                Heard::Over { .. } | Heard::Same => {}
                Heard::Higher => node.highest = Some(term),
            }
            node.obeyed.push(term);
        }
    }

    /// Whether no node obeyed a lower term after a higher one.
    fn never_falls(&self) -> bool {
        self.nodes.iter().all(|node| node.obeyed.is_sorted())
    }

    fn go_on(&mut self, me: usize, now: Moment) {
        if let Some(outcome) = self.instances[me].pending.take() {
            self.instances[me].claimant.note(outcome, now);
        }
        if self.is_faulty(now) && self.chance.below(400) == 0 {
            // Killed, and started again.
            self.instances[me].claimant = Claimant::new(false, now);
            self.instances[me].leads = None;
        }
        let is_deposed = |instance: &Instance, store: &Store| {
            instance.leads.is_some_and(|term| term != store.term.0)
        };
        if is_deposed(&self.instances[me], &self.store) {
            // The fence has told the instance.
            self.instances[me].leads = None;
            self.instances[me].claimant = Claimant::new(false, now);
        }
        if self.instances[me].leads.is_some() {
            self.give_orders(me, now);
        }
        let step = self.instances[me].claimant.step(now);
        let outcome = self.carry_out(me, step, now);
        let instance = &mut self.instances[me];
        instance.pending = outcome;
        instance.at = match step {
            Step::Wait(until) => until.max(now + 1),
            _ => now + 1 + self.chance.below(20),
        };
        if self.is_faulty(now) && self.chance.below(60) == 0 {
            self.instances[me].at += self.chance.below(9000);
        }
    }
}

/// The outcome for an instance that gets no answer.
fn failure(step: Step) -> Option<Outcome> {
    Some(match step {
        Step::Wait(_) | Step::Lead | Step::Over => return None,
        Step::Lease => Outcome::Leased(false),
        Step::Renew => Outcome::Renewed(None),
        Step::Look => Outcome::Unseen,
        Step::Take { .. } => Outcome::Taken(false),
        Step::Claim { .. } => Outcome::Claimed(false),
        Step::GiveBack => Outcome::GivenBack,
    })
}

/// Runs of every number of instances. `SOAK_SCHEDULES` runs more.
fn seeds() -> impl Iterator<Item = (u64, usize)> {
    let runs = std::env::var("SOAK_SCHEDULES").ok();
    let runs = runs.and_then(|runs| runs.parse().ok()).unwrap_or(1000_u64);
    // Neighbouring numbers would begin alike.
    let spread = |run: u64| run.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (1..=runs).map(move |run| (spread(run), 1 + run as usize % 4))
}

#[test]
fn whatever_fails_one_leads_in_the_end() {
    for (seed, count) in seeds() {
        let mut world = World::new(seed, count, true);
        world.run_until(END);
        let leaders: Vec<_> = (0..count)
            .filter(|me| world.instances[*me].leads.is_some())
            .collect();
        let (_, owner, number) = world.store.term;
        assert_eq!(leaders, [owner], "seed {seed}");
        assert_eq!(number, world.terms, "seed {seed}");
        let holder = world.store.role.map(|(_, holder, _)| holder);
        assert_eq!(holder, Some(owner), "seed {seed}");
        let place = world.instances[owner].claimant.place;
        assert_eq!(place, Candidacy::Leading { holds: true }, "seed {seed}");
        assert!(world.never_falls(), "seed {seed}");
        let term = Some(world.instances[owner].term);
        let mut nodes = world.nodes.iter();
        assert!(nodes.all(|node| node.highest == term), "seed {seed}");
    }
}

#[test]
fn nodes_that_do_not_compare_terms_obey_a_former_leader() {
    let falls = seeds().take(100).any(|(seed, count)| {
        let mut world = World::new(seed, count, true);
        world.are_compared = false;
        world.run_until(END);
        !world.never_falls()
    });
    assert!(falls);
}

#[test]
fn without_faults_the_first_leader_stays() {
    for (seed, count) in seeds() {
        let mut world = World::new(seed, count, false);
        world.run_until(END);
        assert_eq!(world.terms, 1, "seed {seed}");
        let mut others = (0..count).filter(|me| *me != world.store.term.1);
        let stood_by = others.all(|me| world.instances[me].claimant.stood_by());
        assert!(stood_by, "seed {seed}");
    }
}

#[test]
fn an_instance_that_was_started_again_takes_its_own_role_back_at_once() {
    let mut claimant = Claimant::new(false, 0);
    assert_eq!(claimant.step(0), Step::Lease);
    claimant.note(Outcome::Leased(true), 0);
    assert_eq!(claimant.step(0), Step::Look);
    let role = Role::Mine(7);
    claimant.note(Outcome::Seen { term: 3, role }, 1);
    assert_eq!(claimant.step(1), Step::Take { seen: 7 });
    claimant.note(Outcome::Taken(true), 1);
    assert_eq!(claimant.step(1), Step::Claim { term: 3 });
    claimant.note(Outcome::Claimed(true), 2);
    assert_eq!(claimant.step(2), Step::Lead);
    assert!(!claimant.stood_by());
}

#[test]
fn a_standby_ends_with_the_platform_and_a_newcomer_begins_it_again() {
    let look = |claimant: &mut Claimant, role, now| {
        claimant.note(Outcome::Seen { term: 3, role }, now);
        claimant.step(now)
    };
    let mut standby = Claimant::new(false, 0);
    standby.note(Outcome::Leased(true), 0);
    assert!(matches!(look(&mut standby, Role::Others, 0), Step::Wait(_)));
    assert_eq!(look(&mut standby, Role::Ended(9), 400), Step::Over);
    let mut newcomer = Claimant::new(false, 0);
    newcomer.note(Outcome::Leased(true), 0);
    assert_eq!(
        look(&mut newcomer, Role::Ended(9), 0),
        Step::Take { seen: 9 }
    );
}

#[test]
fn one_that_handed_over_leaves_the_role_to_others() {
    let mut claimant = Claimant::new(true, 0);
    claimant.note(Outcome::Leased(true), 0);
    let role = Role::Nobody;
    claimant.note(Outcome::Seen { term: 3, role }, 0);
    assert!(matches!(claimant.step(0), Step::Wait(_)));
    claimant.note(Outcome::Renewed(Some(true)), YIELDING);
    claimant.note(Outcome::Seen { term: 3, role }, YIELDING);
    assert_eq!(claimant.step(YIELDING), Step::Take { seen: 0 });
}

#[test]
fn one_that_handed_over_takes_the_role_as_soon_as_the_next_one_gives_it_back() {
    let mut claimant = Claimant::new(true, 0);
    claimant.note(Outcome::Leased(true), 0);
    for (term, role, now) in [(3, Role::Others, 10), (4, Role::Nobody, 20)] {
        claimant.note(Outcome::Seen { term, role }, now);
    }
    assert_eq!(claimant.step(20), Step::Take { seen: 0 });
}

//! Following the trail. Before a letter goes to another place than its predecessors went to, the nodes that received
//! the predecessors are asked whether one is still there.
//!
//! A node keeps a letter until the next node has it, and notes on disk to which nodes it carried letters. So every
//! predecessor of a letter is on a node that can be reached along these notes from the letter's own node. A letter with
//! no predecessor anywhere on the trail goes next. Letters of one origin are numbered, so there is always one without a
//! predecessor.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Instant;

use super::carrier::Carrier;
use sealbus_control::Fault;
use sealbus_control::post::{LetterMark, LetterStanding};

/// The most nodes of a trail that are asked.
const MOST_NODES: usize = 256;
/// How often the trail is followed until nothing moves on it in the meantime.
const MOST_LOOKS: usize = 4;

/// The findings along the trail.
#[derive(PartialEq, Eq)]
struct Sight {
    /// The standing of each letter.
    standings: Vec<LetterStanding>,
    /// For each node that answered, its life and the number of letters that had come there.
    answered: BTreeMap<String, (u64, u64)>,
    waiting: u64,
    /// Whether nodes that do not answer were skipped.
    is_incomplete: bool,
}

impl Carrier {
    /// Selects, from these letters, those without a predecessor on the trail. Removes letters that were carried on.
    pub(super) async fn follow(
        &self,
        numbers: &[u64],
        to: Option<&str>,
    ) -> Result<HashSet<u64>, Fault> {
        let marks: Vec<(u64, LetterMark)> = {
            let shelf = self.mailbox.shelf.lock();
            let marks = numbers
                .iter()
                .filter_map(|number| Some((*number, shelf.get(*number)?.cover.mark())));
            marks.collect()
        };
        let mut before = None;
        for _ in 0..MOST_LOOKS {
            let Some(sight) = self.look(&marks, to).await else {
                return Ok(HashSet::new());
            };
            // A letter that moves during a look may be missed. If nothing arrived anywhere between two looks, nothing
            // moved.
            if before.as_ref() == Some(&sight) {
                return self.found(&marks, &sight, to).await;
            }
            before = Some(sight);
        }
        Ok(HashSet::new())
    }

    async fn found(
        &self,
        marks: &[(u64, LetterMark)],
        sight: &Sight,
        to: Option<&str>,
    ) -> Result<HashSet<u64>, Fault> {
        let mut may_go = HashSet::new();
        let mut gone = Vec::new();
        for ((number, mark), standing) in marks.iter().zip(&sight.standings) {
            match standing {
                LetterStanding::Free => {
                    may_go.insert(*number);
                }
                LetterStanding::Behind => {}
                LetterStanding::Had => gone.push((*number, *mark)),
            }
        }
        {
            let mut trail = self.mailbox.trail.lock();
            for (node, in_doubt) in &mut trail.in_doubt {
                if sight.answered.contains_key(node) {
                    in_doubt.retain(|number| !marks.iter().any(|(asked, _)| asked == number));
                }
            }
        }
        for number in may_go
            .iter()
            .filter(|number| self.is_in_doubt(**number, to.unwrap_or("")))
        {
            self.mailbox.shelf.lock().may_have_gone(*number);
        }
        self.post.carried(&self.mailbox, &gone).await?;
        if sight.waiting == 0 && !sight.is_incomplete {
            let nodes = self.mailbox.trail.lock().nodes.clone();
            let passed: BTreeSet<String> = nodes
                .into_keys()
                .filter(|node| Some(node.as_str()) != to && sight.answered.contains_key(node))
                .filter(|node| !self.has_doubts_about(node))
                .collect();
            let forgotten = self.mailbox.forget_trail(&passed);
            forgotten.map_err(super::storage)?;
        }
        Ok(may_go)
    }

    /// Looks once. Returns `None` if a node does not answer and has not been silent for long.
    async fn look(&self, marks: &[(u64, LetterMark)], to: Option<&str>) -> Option<Sight> {
        let asked: Vec<LetterMark> = marks.iter().map(|(_, mark)| *mark).collect();
        let mut sight = Sight {
            standings: vec![LetterStanding::Free; marks.len()],
            answered: BTreeMap::new(),
            waiting: 0,
            is_incomplete: false,
        };
        let mut nodes: VecDeque<String> = self.mailbox.trail.lock().nodes.keys().cloned().collect();
        let mut known: HashSet<String> = to.map(str::to_owned).into_iter().collect();
        known.insert(self.post.node.clone());
        while let Some(node) = nodes.pop_front() {
            if !known.insert(node.clone()) {
                continue;
            }
            if known.len() > MOST_NODES || self.was_given_up(&node) {
                sight.is_incomplete = true;
                continue;
            }
            let answer = self
                .ways
                .trail(&node, &self.mailbox.agent, asked.clone())
                .await;
            match answer {
                Ok(trail) if trail.standings.len() == asked.len() => {
                    self.mailbox.trail.lock().silent.remove(&node);
                    for (all, here) in sight.standings.iter_mut().zip(trail.standings) {
                        *all = here.max(*all);
                    }
                    sight.answered.insert(node, (trail.life, trail.arrivals));
                    sight.waiting = sight.waiting.saturating_add(trail.waiting);
                    nodes.extend(trail.nodes);
                }
                answer => {
                    let problem = answer.err().map_or_else(String::new, |fault| fault.message);
                    if !self.is_given_up(&node, &problem) {
                        return None;
                    }
                    sight.is_incomplete = true;
                }
            }
        }
        Some(sight)
    }

    /// Whether a node has been silent for so long that the post no longer waits for its letters. The node is still
    /// asked now and then.
    fn was_given_up(&self, node: &str) -> bool {
        let given_up = self.post.pace.given_up;
        let trail = self.mailbox.trail.lock();
        let silent = trail.silent.get(node);
        silent.is_some_and(|(since, asked)| {
            asked.duration_since(*since) > given_up && asked.elapsed() < given_up
        })
    }

    /// Notes that a node does not answer. Returns whether it has been silent for so long that the post no longer waits
    /// for its letters.
    fn is_given_up(&self, node: &str, problem: &str) -> bool {
        let now = Instant::now();
        let mut trail = self.mailbox.trail.lock();
        let (since, asked) = trail.silent.entry(node.to_owned()).or_insert((now, now));
        let given_up = self.post.pace.given_up;
        let was_given_up = asked.duration_since(*since) > given_up;
        *asked = now;
        let is_given_up = asked.duration_since(*since) > given_up;
        let agent = &self.mailbox.agent;
        if is_given_up && !was_given_up {
            tracing::warn!(
                agent,
                node,
                problem,
                "persistent messages that this node keeps for the agent may come after newer ones: it does not answer"
            );
        } else if !is_given_up {
            let why = format!("{node}, which may have earlier ones, does not answer: {problem}");
            *self.mailbox.held_up.lock() = Some(why);
        }
        is_given_up
    }

    fn has_doubts_about(&self, node: &str) -> bool {
        let trail = self.mailbox.trail.lock();
        trail
            .in_doubt
            .get(node)
            .is_some_and(|numbers| !numbers.is_empty())
    }

    /// Whether a node other than `to` may have been sent this letter and still have it.
    pub(super) fn is_in_doubt(&self, number: u64, to: &str) -> bool {
        let trail = self.mailbox.trail.lock();
        let mut others = trail.in_doubt.iter().filter(|(node, _)| *node != to);
        others.any(|(_, numbers)| numbers.contains(&number))
    }
}

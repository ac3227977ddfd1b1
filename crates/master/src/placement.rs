//! The choice of the node for an agent process.

/// A node that could take a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The node's name.
    pub name: &'a str,
    /// Agents placed on it.
    pub agents: u64,
    /// Processors it has.
    pub processors: u32,
}

/// The constraints of a process on its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish<'a> {
    /// The only allowed node.
    pub pin: Option<&'a str>,
    /// The forbidden nodes.
    pub forbid: &'a [String],
}

/// The reason why no node can take a process now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// There is no living node at all.
    #[error("no node is alive; add one with `sealbus node --join`")]
    NoNode,
    /// The node it must run on is not alive.
    #[error("its node {0} is not alive")]
    PinnedAway(String),
    /// The process is pinned to a node that it forbids.
    #[error("it must run on {0} and must not")]
    Contradiction(String),
    /// All living nodes are forbidden.
    #[error("every living node is forbidden to it: {}", .0.join(", "))]
    AllForbidden(Vec<String>),
}

/// Chooses the candidate with the fewest agents a processor. Among equals it is the one with the fewest agents, then
/// the first by name.
///
/// # Errors
/// [`NoPlace`]. All candidates count as alive.
pub fn place<'a>(candidates: &[Candidate<'a>], wish: Wish<'_>) -> Result<&'a str, NoPlace> {
    if let Some(pin) = wish.pin {
        if wish.forbid.iter().any(|forbidden| forbidden == pin) {
            return Err(NoPlace::Contradiction(pin.to_owned()));
        }
        let found = candidates.iter().find(|candidate| candidate.name == pin);
        return found
            .map(|candidate| candidate.name)
            .ok_or_else(|| NoPlace::PinnedAway(pin.to_owned()));
    }
    if candidates.is_empty() {
        return Err(NoPlace::NoNode);
    }
    candidates
        .iter()
        .filter(|candidate| {
            !wish
                .forbid
                .iter()
                .any(|forbidden| forbidden == candidate.name)
        })
        .min_by(|one, two| load_order(one, two))
        .map(|candidate| candidate.name)
        .ok_or_else(|| {
            NoPlace::AllForbidden(candidates.iter().map(|c| c.name.to_owned()).collect())
        })
}

fn load_order(one: &Candidate<'_>, two: &Candidate<'_>) -> std::cmp::Ordering {
    let share = |of: &Candidate<'_>, by: &Candidate<'_>| {
        u128::from(of.agents) * u128::from(by.processors.max(1))
    };
    share(one, two)
        .cmp(&share(two, one))
        .then(one.agents.cmp(&two.agents))
        .then(one.name.len().cmp(&two.name.len()))
        .then(one.name.cmp(two.name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nodes(loads: &[(u64, u32)]) -> Vec<(String, u64, u32)> {
        loads
            .iter()
            .enumerate()
            .map(|(index, (agents, processors))| {
                (format!("node-{}", index + 1), *agents, *processors)
            })
            .collect()
    }

    fn candidates(nodes: &[(String, u64, u32)]) -> Vec<Candidate<'_>> {
        nodes
            .iter()
            .map(|(name, agents, processors)| Candidate {
                name,
                agents: *agents,
                processors: *processors,
            })
            .collect()
    }

    #[test]
    fn a_pin_is_obeyed_or_refused() {
        let nodes = nodes(&[(9, 1), (0, 1)]);
        let wish = Wish {
            pin: Some("node-1"),
            forbid: &[],
        };
        assert_eq!(place(&candidates(&nodes), wish), Ok("node-1"));
        let away = Wish {
            pin: Some("node-7"),
            forbid: &[],
        };
        let refusal = Err(NoPlace::PinnedAway("node-7".to_owned()));
        assert_eq!(place(&candidates(&nodes), away), refusal);
    }

    #[test]
    fn without_a_node_the_advice_is_to_add_one() {
        assert_eq!(place(&[], Wish::default()), Err(NoPlace::NoNode));
    }

    proptest! {
        #[test]
        fn the_choice_is_least_loaded_and_allowed(
            loads in prop::collection::vec((0_u64..50, 1_u32..9), 1..10),
            forbidden in prop::collection::vec(1_usize..12, 0..6),
        ) {
            let nodes = nodes(&loads);
            let candidates = candidates(&nodes);
            let forbid: Vec<String> = forbidden.iter().map(|n| format!("node-{n}")).collect();
            let allowed: Vec<&Candidate<'_>> =
                candidates.iter().filter(|c| !forbid.contains(&c.name.to_owned())).collect();
            match place(&candidates, Wish { pin: None, forbid: &forbid }) {
                Ok(name) => {
                    let chosen = allowed.iter().find(|c| c.name == name).expect("allowed");
                    for other in &allowed {
                        prop_assert!(
                            chosen.agents * u64::from(other.processors)
                                <= other.agents * u64::from(chosen.processors)
                        );
                    }
                }
                Err(NoPlace::AllForbidden(_)) => prop_assert!(allowed.is_empty()),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }

        #[test]
        fn replicas_spread_evenly_over_equal_nodes(count in 1_usize..8, replicas in 0_usize..40) {
            let mut nodes = nodes(&vec![(0, 2); count]);
            for _ in 0..replicas {
                let name = place(&candidates(&nodes), Wish::default()).unwrap().to_owned();
                nodes.iter_mut().find(|node| node.0 == name).unwrap().1 += 1;
            }
            let loads: Vec<u64> = nodes.iter().map(|node| node.1).collect();
            prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
        }
    }
}

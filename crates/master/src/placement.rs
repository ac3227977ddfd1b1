//! The choice of the node for an agent process.

use sealbus_manifest::isolation::Isolation;

/// A node that could take a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateNode<'a> {
    /// The node's name.
    pub name: &'a str,
    /// The agents placed on the node.
    pub agents: u64,
    /// The node's processors.
    pub processors: u32,
    /// The strongest isolation that its programs get, if it can isolate them.
    pub isolation: Option<Isolation>,
}

/// The constraints of a process on its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementWish<'a> {
    /// The only allowed node.
    pub pin: Option<&'a str>,
    /// The forbidden nodes.
    pub forbid: &'a [String],
    /// The weakest isolation that is good enough. Without it, every mode that isolates is good enough.
    pub isolation: Option<Isolation>,
}

/// The reason why no node can take a process now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// There is no living node at all.
    #[error("no node is alive; add one with `sealbus token` and `sealbus node --token TOKEN`")]
    NoNode,
    /// The node on which it must run is not alive.
    #[error("its node {0} is not alive")]
    PinnedAway(String),
    /// The process is pinned to a node that it forbids.
    #[error("it must run on {0} and must not")]
    Contradiction(String),
    /// All living nodes are forbidden.
    #[error("every living node is forbidden to it: {}", .0.join(", "))]
    AllForbidden(Vec<String>),
    /// No allowed node isolates it as it must be.
    #[error(
        "{} cannot isolate its program{}: start the node as root, allow user namespaces or Landlock there (see `sealbus \
         node --check`), or ask for less with `isolation` in the manifest",
        nodes.join(", "),
        floor.map(|floor| format!(" by {floor}")).unwrap_or_default()
    )]
    NotIsolated {
        /// The nodes that could take it if they isolated it.
        nodes: Vec<String>,
        /// The isolation that it needs.
        floor: Option<Isolation>,
    },
}

impl CandidateNode<'_> {
    fn isolates(&self, wish: PlacementWish<'_>) -> bool {
        match wish.isolation {
            Some(Isolation::None) => true,
            Some(floor) => self.isolation >= Some(floor),
            None => self.isolation.is_some(),
        }
    }
}

/// Chooses the candidate with the fewest agents a processor. Among equals it is the one with the fewest agents, then
/// the first by name.
///
/// # Errors
/// [`NoPlace`]. All candidates count as alive.
pub fn place<'a>(
    candidates: &[CandidateNode<'a>],
    wish: PlacementWish<'_>,
) -> Result<&'a str, NoPlace> {
    if let Some(pin) = wish.pin {
        if wish.forbid.iter().any(|forbidden| forbidden == pin) {
            return Err(NoPlace::Contradiction(pin.to_owned()));
        }
        let found = candidates.iter().find(|candidate| candidate.name == pin);
        let found = found.ok_or_else(|| NoPlace::PinnedAway(pin.to_owned()))?;
        return isolating(&[found], wish);
    }
    if candidates.is_empty() {
        return Err(NoPlace::NoNode);
    }
    let allowed = candidates.iter().filter(|candidate| {
        !wish
            .forbid
            .iter()
            .any(|forbidden| forbidden == candidate.name)
    });
    let allowed: Vec<_> = allowed.collect();
    if allowed.is_empty() {
        let all = candidates.iter().map(|c| c.name.to_owned()).collect();
        return Err(NoPlace::AllForbidden(all));
    }
    isolating(&allowed, wish)
}

/// The least loaded candidate that isolates the process as it must be.
fn isolating<'a>(
    allowed: &[&CandidateNode<'a>],
    wish: PlacementWish<'_>,
) -> Result<&'a str, NoPlace> {
    let able = allowed.iter().filter(|candidate| candidate.isolates(wish));
    able.min_by(|one, two| load_order(one, two))
        .map(|candidate| candidate.name)
        .ok_or_else(|| NoPlace::NotIsolated {
            nodes: allowed.iter().map(|c| c.name.to_owned()).collect(),
            floor: wish.isolation,
        })
}

fn load_order(one: &CandidateNode<'_>, two: &CandidateNode<'_>) -> std::cmp::Ordering {
    let share = |of: &CandidateNode<'_>, by: &CandidateNode<'_>| {
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

    fn candidates(nodes: &[(String, u64, u32)]) -> Vec<CandidateNode<'_>> {
        nodes
            .iter()
            .map(|(name, agents, processors)| CandidateNode {
                name,
                agents: *agents,
                processors: *processors,
                isolation: Some(Isolation::Landlock),
            })
            .collect()
    }

    #[test]
    fn a_pin_is_obeyed_or_refused() {
        let nodes = nodes(&[(9, 1), (0, 1)]);
        let wish = PlacementWish {
            pin: Some("node-1"),
            ..PlacementWish::default()
        };
        assert_eq!(place(&candidates(&nodes), wish), Ok("node-1"));
        let away = PlacementWish {
            pin: Some("node-7"),
            ..PlacementWish::default()
        };
        let refusal = Err(NoPlace::PinnedAway("node-7".to_owned()));
        assert_eq!(place(&candidates(&nodes), away), refusal);
    }

    #[test]
    fn without_a_node_the_advice_is_to_add_one() {
        assert_eq!(place(&[], PlacementWish::default()), Err(NoPlace::NoNode));
    }

    #[test]
    fn a_program_is_placed_only_where_it_is_isolated_as_it_must_be() {
        let nodes = nodes(&[(0, 1), (5, 1), (9, 1)]);
        let mut candidates = candidates(&nodes);
        candidates[0].isolation = None;
        candidates[1].isolation = Some(Isolation::Landlock);
        candidates[2].isolation = Some(Isolation::Uid);
        let wish = |isolation| PlacementWish {
            isolation,
            ..PlacementWish::default()
        };
        for (floor, chosen) in [
            (Some(Isolation::None), "node-1"),
            (None, "node-2"),
            (Some(Isolation::Landlock), "node-2"),
            (Some(Isolation::Namespace), "node-3"),
        ] {
            assert_eq!(place(&candidates, wish(floor)), Ok(chosen), "{floor:?}");
        }
        let pinned = PlacementWish {
            pin: Some("node-2"),
            ..wish(Some(Isolation::Uid))
        };
        let refusal = NoPlace::NotIsolated {
            nodes: vec!["node-2".to_owned()],
            floor: Some(Isolation::Uid),
        };
        assert!(
            refusal
                .to_string()
                .starts_with("node-2 cannot isolate its program by uid: ")
        );
        assert_eq!(place(&candidates, pinned), Err(refusal));
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
            let allowed: Vec<&CandidateNode<'_>> =
                candidates.iter().filter(|c| !forbid.contains(&c.name.to_owned())).collect();
            match place(&candidates, PlacementWish { forbid: &forbid, ..PlacementWish::default() }) {
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
                let name = place(&candidates(&nodes), PlacementWish::default()).unwrap().to_owned();
                nodes.iter_mut().find(|node| node.0 == name).unwrap().1 += 1;
            }
            let loads: Vec<u64> = nodes.iter().map(|node| node.1).collect();
            prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
        }
    }
}

//! The agents of a program that run in this process, and their names.
//!
//! On an embedded platform, all of them run. On a larger platform the same program, unchanged, runs the agents that
//! were placed in its process. The agents that a program declares are its roles, and each agent placed here takes one
//! role.

use std::collections::HashMap;
use std::fmt;

/// An agent that a program declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// The agent's name in the program.
    pub name: String,
    /// How many of these agents there are when the program runs by itself. `None` means a single agent with the role's
    /// name.
    pub count: Option<usize>,
}

/// An agent that runs here: its name, and the index of its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The agent's name.
    pub name: String,
    /// The index of its role.
    pub role: usize,
}

/// The reason why the agents placed here do not fit the program's agents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CastError {
    /// The program declares no agent.
    #[error("the program has no agents: give `run` at least one")]
    NoAgents,
    /// Two roles have the same name.
    #[error("the program has two agents named {name}: give each its own name")]
    Twice {
        /// The name.
        name: String,
    },
    /// The platform placed an agent here that the program does not know.
    #[error(
        "the platform placed agent {placed} here, and the program has no such agent: it has {known}"
    )]
    Unknown {
        /// The agent that was placed here.
        placed: String,
        /// The program's agents.
        known: String,
    },
    /// The platform placed several agents here for a role that only one agent can take.
    #[error(
        "the platform placed both {first} and {second} here, and the program makes only one {role}: declare it with `agents`, which makes as many as are placed"
    )]
    Single {
        /// The role.
        role: String,
        /// The agent that took it.
        first: String,
        /// The agent that came second.
        second: String,
    },
}

/// Gives a role to each agent that runs here. `placed` are the agents that the platform placed in this process. Without
/// a platform all roles are taken.
///
/// An agent takes the role with its own name. A replica (`seller-2`) takes the role it is a replica of (`seller`).
/// Otherwise the agent takes the program's only role.
pub fn cast(roles: &[Role], placed: Option<&[String]>) -> Result<Vec<Part>, CastError> {
    if roles.is_empty() {
        return Err(CastError::NoAgents);
    }
    let mut by_name = HashMap::with_capacity(roles.len());
    for (index, role) in roles.iter().enumerate() {
        if by_name.insert(&*role.name, index).is_some() {
            return Err(CastError::Twice {
                name: role.name.clone(),
            });
        }
    }
    let Some(placed) = placed else {
        return Ok(roles
            .iter()
            .enumerate()
            .flat_map(|(index, role)| role.parts(index))
            .collect());
    };
    let mut parts: Vec<Part> = Vec::with_capacity(placed.len());
    // The agent that took each role.
    let mut taken = vec![None; roles.len()];
    for name in placed {
        let role = find(&by_name, name).ok_or_else(|| CastError::Unknown {
            placed: name.clone(),
            known: Names(roles).to_string(),
        })?;
        if roles[role].count.is_none()
            && let Some(first) = taken[role].replace(name)
        {
            return Err(CastError::Single {
                role: roles[role].name.clone(),
                first: first.clone(),
                second: name.clone(),
            });
        }
        parts.push(Part {
            name: name.clone(),
            role,
        });
    }
    Ok(parts)
}

impl Role {
    fn parts(&self, role: usize) -> Vec<Part> {
        match self.count {
            None => vec![Part {
                name: self.name.clone(),
                role,
            }],
            Some(count) => (1..=count)
                .map(|number| Part {
                    name: format!("{}-{number}", self.name),
                    role,
                })
                .collect(),
        }
    }
}

fn find(by_name: &HashMap<&str, usize>, name: &str) -> Option<usize> {
    by_name.get(name).copied().or_else(|| {
        // `seller-2-1` is the first agent of the second replica.
        let mut stem = name;
        while let Some((shorter, number)) = stem.rsplit_once('-') {
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                break;
            }
            if let Some(role) = by_name.get(shorter) {
                return Some(*role);
            }
            stem = shorter;
        }
        (by_name.len() == 1).then_some(0)
    })
}

struct Names<'a>(&'a [Role]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, role) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            f.write_str(&role.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(declared: &[(&str, Option<usize>)]) -> Vec<Role> {
        declared
            .iter()
            .map(|(name, count)| Role {
                name: (*name).to_owned(),
                count: *count,
            })
            .collect()
    }

    fn names(placed: &[&str]) -> Vec<String> {
        placed.iter().map(|name| (*name).to_owned()).collect()
    }

    fn parts(result: Result<Vec<Part>, CastError>) -> Vec<(String, usize)> {
        result
            .unwrap()
            .into_iter()
            .map(|part| (part.name, part.role))
            .collect()
    }

    #[test]
    fn alone_a_program_runs_all_its_agents() {
        let roles = roles(&[("buyer", None), ("seller", Some(2))]);
        assert_eq!(
            parts(cast(&roles, None)),
            [
                ("buyer".to_owned(), 0),
                ("seller-1".to_owned(), 1),
                ("seller-2".to_owned(), 1)
            ]
        );
    }

    #[test]
    fn on_a_platform_it_runs_those_placed_there() {
        let roles = roles(&[("buyer", None), ("seller", Some(2))]);
        assert_eq!(
            parts(cast(&roles, Some(&names(&["buyer"])))),
            [("buyer".to_owned(), 0)]
        );
        assert_eq!(
            parts(cast(&roles, Some(&names(&["seller-7", "seller-2-1"])))),
            [("seller-7".to_owned(), 1), ("seller-2-1".to_owned(), 1)]
        );
    }

    #[test]
    fn the_only_role_is_taken_under_any_name() {
        let roles = roles(&[("agent", None)]);
        assert_eq!(
            parts(cast(&roles, Some(&names(&["anna"])))),
            [("anna".to_owned(), 0)]
        );
    }

    #[test]
    fn what_does_not_fit_is_said() {
        assert_eq!(cast(&[], None), Err(CastError::NoAgents));
        let both = roles(&[("buyer", None), ("seller", None)]);
        assert!(matches!(
            cast(&both, Some(&names(&["thief"]))),
            Err(CastError::Unknown { .. })
        ));
        assert!(matches!(
            cast(&both, Some(&names(&["seller-1", "seller-2"]))),
            Err(CastError::Single { first, second, .. }) if first == "seller-1" && second == "seller-2"
        ));
        assert!(matches!(
            cast(&roles(&[("a", None), ("a", Some(2))]), None),
            Err(CastError::Twice { .. })
        ));
    }
}

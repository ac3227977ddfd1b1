//! The CA's decision about which identity it certifies for which requester: the fifth of the six steps, free of I/O.

use std::net::IpAddr;

use thiserror::Error;

use crate::certificate::Serial;
use crate::holding::{Holding, Renewed};
use crate::identity::{Identity, Name, ProcessId};
use crate::timestamp::Timestamp;
use crate::verified::VerifiedIdentity;

/// Where the Master has placed agents, as the CA needs to know it.
pub trait Placements {
    /// Whether the node of this name belongs to the platform now.
    fn is_member(&self, node: &Name) -> bool;

    /// The node on which the Master has placed the agent with this local name; `None` if it has not placed the agent.
    fn node_of(&self, agent: &Name) -> Option<Name>;
}

/// The permission to certify one identity at one address. No certificate is issued without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    identity: Identity,
    address: IpAddr,
    on_behalf_of: Option<Identity>,
    holder: Option<(ProcessId, Name)>,
    renews: Option<Renewed>,
}

/// Why a CA does not grant a node's request for a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IssuanceRefusal {
    /// The requester is not a node. Only nodes may ask on behalf of others.
    #[error("{0} asks for a certificate, but only a node may ask on behalf of others")]
    NotANode(Identity),
    /// The node does not belong to the platform, or no longer.
    #[error("the node {0} does not belong to the platform: join it again with a new token")]
    NotAMember(Name),
    /// The node's certificate holds no IP address at which to certify its agents.
    #[error("the certificate of the node {0} holds no IP address")]
    NoAddress(Name),
    /// The identity is of another platform.
    #[error("{wanted} does not belong to the platform of the node {node}")]
    WrongPlatform {
        /// The asking node.
        node: Name,
        /// The identity it asks for.
        wanted: Identity,
    },
    /// The Master has not placed an agent of this name.
    #[error("the Master has placed no agent {agent}, neither on the node {node} nor elsewhere")]
    NotPlaced {
        /// The asking node.
        node: Name,
        /// The agent's local name.
        agent: Name,
    },
    /// The Master has placed the agent on another node.
    #[error("the Master has placed the agent {agent} on the node {placed_on}, not on {node}")]
    PlacedElsewhere {
        /// The asking node.
        node: Name,
        /// The agent's local name.
        agent: Name,
        /// The node on which the Master placed the agent.
        placed_on: Name,
    },
    /// The identity is another node, or a process of another node.
    #[error("the node {node} may not speak for {wanted}")]
    NotItsOwn {
        /// The asking node.
        node: Name,
        /// The identity it asks for.
        wanted: Identity,
    },
    /// The identity is an authority. No node gets its certificate.
    #[error("the node {node} asks for the certificate of an authority, {wanted}")]
    Authority {
        /// The asking node.
        node: Name,
        /// The identity it asks for.
        wanted: Identity,
    },
    /// The state is not known now, and the shown certificate does not name this process on this node.
    #[error(
        "the platform's state is not known now, and the node {node} shows no valid certificate that the same process holds for {wanted}"
    )]
    NotHeld {
        /// The asking node.
        node: Name,
        /// The identity it asks for.
        wanted: Identity,
    },
    /// The state has been unknown for too long.
    #[error(
        "the platform's state is not known now: what was certified for {wanted} as {serial} was renewed without it until {until}, and no longer"
    )]
    Over {
        /// The identity it asks for.
        wanted: Identity,
        /// The certificate that was last issued with knowledge of the state.
        serial: Serial,
        /// When renewals without the state end.
        until: Timestamp,
    },
}

/// Decides whether `requester` may get a certificate for `wanted`.
///
/// A member node may ask for certificates of the agents that the Master has placed on it, of its own processes, and of
/// itself (renewal). All are certified at the node's own address.
pub fn decide(
    requester: &VerifiedIdentity,
    wanted: &Identity,
    placements: &dyn Placements,
) -> Result<Grant, IssuanceRefusal> {
    let Identity::Node {
        platform,
        name: node,
    } = requester.identity()
    else {
        return Err(IssuanceRefusal::NotANode(requester.identity().clone()));
    };
    if !placements.is_member(node) {
        return Err(IssuanceRefusal::NotAMember(node.clone()));
    }
    if wanted.platform() != platform {
        return Err(IssuanceRefusal::WrongPlatform {
            node: node.clone(),
            wanted: wanted.clone(),
        });
    }
    match wanted {
        Identity::Agent { name: agent, .. } => match placements.node_of(agent) {
            Some(placed_on) if placed_on == *node => {}
            Some(placed_on) => {
                let (node, agent) = (node.clone(), agent.clone());
                return Err(IssuanceRefusal::PlacedElsewhere {
                    node,
                    agent,
                    placed_on,
                });
            }
            None => {
                return Err(IssuanceRefusal::NotPlaced {
                    node: node.clone(),
                    agent: agent.clone(),
                });
            }
        },
        Identity::Node { name: of, .. } | Identity::Process { node: of, .. } if of == node => {}
        Identity::Node { .. } | Identity::Process { .. } => {
            return Err(IssuanceRefusal::NotItsOwn {
                node: node.clone(),
                wanted: wanted.clone(),
            });
        }
        Identity::Authority { .. } => {
            return Err(IssuanceRefusal::Authority {
                node: node.clone(),
                wanted: wanted.clone(),
            });
        }
    }
    Ok(Grant {
        identity: wanted.clone(),
        address: requester
            .address()
            .ok_or_else(|| IssuanceRefusal::NoAddress(node.clone()))?,
        on_behalf_of: Some(requester.identity().clone()),
        holder: None,
        renews: None,
    })
}

/// Decides whether `requester` may have the certificate `held` renewed for the same identity in the same process, while
/// nobody knows the platform's state.
///
/// The certificate itself proves the right: a CA that knew the state issued it for this process on this node, or it
/// renews such a one. Both `requester` and `held` are valid now, and no denial known here names them. Nobody else is
/// ever certified this way.
pub fn decide_renewal(
    requester: &VerifiedIdentity,
    held: &VerifiedIdentity,
    wanted: &Identity,
    process: &ProcessId,
    now: Timestamp,
) -> Result<Grant, IssuanceRefusal> {
    let Identity::Node {
        platform,
        name: node,
    } = requester.identity()
    else {
        return Err(IssuanceRefusal::NotANode(requester.identity().clone()));
    };
    let not_held = || IssuanceRefusal::NotHeld {
        node: node.clone(),
        wanted: wanted.clone(),
    };
    let is_renewable = match wanted {
        Identity::Agent { .. } => true,
        Identity::Process {
            node: its,
            process: itself,
            ..
        } => its == node && itself == process,
        Identity::Node { .. } | Identity::Authority { .. } => false,
    };
    if !is_renewable || held.identity() != wanted || wanted.platform() != platform {
        return Err(not_held());
    }
    let certificate = held.certificate();
    let holding = certificate.holding().ok_or_else(not_held)?;
    if holding.node != *node || holding.process != *process {
        return Err(not_held());
    }
    let renewed = holding.renews.unwrap_or(Renewed {
        serial: certificate.serial(),
        not_before: certificate.not_before(),
    });
    if now >= renewed.until() {
        return Err(IssuanceRefusal::Over {
            wanted: wanted.clone(),
            serial: renewed.serial,
            until: renewed.until(),
        });
    }
    Ok(Grant {
        identity: wanted.clone(),
        address: requester
            .address()
            .ok_or_else(|| IssuanceRefusal::NoAddress(node.clone()))?,
        on_behalf_of: Some(requester.identity().clone()),
        holder: Some((*process, node.clone())),
        renews: Some(renewed),
    })
}

impl Grant {
    /// A grant by the holder of the authority's key, for the Master's own node and agents, and for nodes whose one-time
    /// token was [redeemed](crate::token::TokenBook::redeem).
    pub fn by_operator(identity: Identity, address: IpAddr) -> Self {
        Self {
            identity,
            address,
            on_behalf_of: None,
            holder: None,
            renews: None,
        }
    }

    /// The same grant, for a process on a node. The certificate names both.
    #[must_use]
    pub fn to_process(mut self, process: ProcessId, node: Name) -> Self {
        self.holder = Some((process, node));
        self
    }

    /// The same grant, for a certificate that renews `earlier` without knowledge of the platform's state.
    #[must_use]
    pub fn renewing(mut self, earlier: Renewed) -> Self {
        self.renews = Some(earlier);
        self
    }

    /// The process that holds the key, if it is known.
    pub fn holding(&self) -> Option<Holding> {
        let (process, node) = self.holder.clone()?;
        Some(Holding {
            process,
            node,
            renews: self.renews,
        })
    }

    /// The certificate that is renewed without knowledge of the platform's state.
    pub fn renews(&self) -> Option<&Renewed> {
        self.renews.as_ref()
    }

    /// The identity to certify.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The address at which the identity is certified.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The node that asked; `None` if the operator granted it.
    pub fn on_behalf_of(&self) -> Option<&Identity> {
        self.on_behalf_of.as_ref()
    }
}

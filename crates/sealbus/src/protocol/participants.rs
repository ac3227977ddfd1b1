//! The agents that an initiator talks to: named, or found by the DF.

use sealbus_fipa::Aid;

use super::error::ProtocolError;
use crate::context::Voice;
use crate::directory::Template;

/// The agents that an initiator talks to.
#[derive(Clone, Debug, PartialEq)]
pub enum Participants {
    /// These agents.
    Agents(Vec<Aid>),
    /// The agents that the DF finds for a service, without the initiator itself.
    Offering(Box<Template>),
}

impl Participants {
    pub(crate) async fn find(self, voice: &Voice) -> Result<Vec<Aid>, ProtocolError> {
        let template = match self {
            Participants::Agents(agents) => return Ok(agents),
            Participants::Offering(template) => *template,
        };
        let entries = voice.df().search(template).await?;
        let mut agents: Vec<Aid> = entries.into_iter().filter_map(|it| it.name).collect();
        agents.retain(|agent| agent.name != voice.aid().name);
        agents.sort_by(|one, other| one.name.cmp(&other.name));
        agents.dedup_by(|one, other| one.name == other.name);
        match agents.is_empty() {
            true => Err(ProtocolError::Nobody),
            false => Ok(agents),
        }
    }
}

impl From<Aid> for Participants {
    fn from(agent: Aid) -> Participants {
        Participants::Agents(vec![agent])
    }
}

impl From<Vec<Aid>> for Participants {
    fn from(agents: Vec<Aid>) -> Participants {
        Participants::Agents(agents)
    }
}

/// The agents that offer a service like this.
impl From<Template> for Participants {
    fn from(template: Template) -> Participants {
        Participants::Offering(Box::new(template))
    }
}

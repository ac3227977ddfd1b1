//! Resources: the platform's agents, and the channels that a caller listens to.

/// All agents.
pub(crate) const AGENTS: &str = "sealbus://agents";
const AGENT: &str = "sealbus://agent/";
const CHANNEL: &str = "sealbus://channel";
/// The templates of the other two resources.
pub(crate) const AGENT_TEMPLATE: &str = "sealbus://agent/{name}";
pub(crate) const CHANNEL_TEMPLATE: &str = "sealbus://channel/{+path}";

/// The subject of a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Agents,
    Agent(String),
    /// The path of a channel, such as `/prices/tea`.
    Channel(String),
}

impl Subject {
    pub(crate) fn read(uri: &str) -> Option<Self> {
        if uri == AGENTS {
            return Some(Self::Agents);
        }
        if let Some(name) = uri.strip_prefix(AGENT).filter(|name| !name.is_empty()) {
            return Some(Self::Agent(name.to_owned()));
        }
        let path = uri.strip_prefix(CHANNEL)?;
        (path.len() > 1 && path.starts_with('/')).then(|| Self::Channel(path.to_owned()))
    }
}

/// The URI of a channel.
pub(crate) fn channel_uri(path: &str) -> String {
    format!("{CHANNEL}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_agents_and_channels() {
        let channel = Subject::Channel("/prices/tea".to_owned());
        assert_eq!(Subject::read(&channel_uri("/prices/tea")), Some(channel));
        assert_eq!(Subject::read(AGENTS), Some(Subject::Agents));
        let agent = Subject::Agent("seller@factory".to_owned());
        assert_eq!(Subject::read("sealbus://agent/seller@factory"), Some(agent));
        for wrong in [
            "sealbus://agent/",
            "sealbus://channel/",
            "sealbus://channel",
            "sealbus://channels/a",
            "file:///etc/passwd",
            "",
        ] {
            assert_eq!(Subject::read(wrong), None, "{wrong}");
        }
    }
}

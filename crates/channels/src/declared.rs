//! The platform's rules for channels: the quality of service of a channel, unless a message asks for another.

use super::path::ChannelPath;
use super::pattern::ChannelPattern;
use super::qos::{Qos, QosOverride};

/// The declared channels of a platform, in the order of its manifest. The first pattern that matches a channel applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredChannels(Vec<(ChannelPattern, QosOverride)>);

impl DeclaredChannels {
    /// Declares these channels.
    pub fn new(channels: impl IntoIterator<Item = (ChannelPattern, QosOverride)>) -> Self {
        Self(channels.into_iter().collect())
    }

    /// The quality of service of a channel: the default, changed by the declaration that applies.
    pub fn qos(&self, channel: &ChannelPath) -> Qos {
        let declared = self.0.iter().find(|(pattern, _)| pattern.matches(channel));
        declared.map_or_else(Qos::default, |(_, qos)| Qos::default().with(qos))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_first_that_fits_holds() {
        let declared = |pattern: &str, qos: &str| {
            let pattern: ChannelPattern = pattern.parse().unwrap();
            (pattern, qos.parse::<QosOverride>().unwrap())
        };
        let channels = DeclaredChannels::new([
            declared("/dates/business", "priority=7"),
            declared("/dates/**", "best-effort"),
        ]);
        let qos = |channel: &str| channels.qos(&channel.parse().unwrap());
        assert_eq!(qos("/dates/business").priority.get(), 7);
        assert_eq!(
            qos("/dates/business").reliability,
            Qos::default().reliability
        );
        assert_eq!(qos("/dates/private/mine").to_string(), "best-effort");
        assert_eq!(qos("/other"), Qos::default());
    }
}

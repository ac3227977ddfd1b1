//! The rules for messages from other platforms: which platforms may write to which agents here. All other messages are
//! refused.

use std::net::IpAddr;

use sealbus_web::reach::{Network, NoNetwork};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most rules.
const MOST_RULES: usize = 1024;
/// The platform's own services. No message from outside reaches them, even if the rules allow it.
const CLOSED: [&str; 4] = ["master", "ca", "operator", sealbus_bus::GATEWAY];

/// The rules. A message passes if any of them allows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayPolicy {
    /// In the order they were made.
    pub rules: Vec<GatewayRule>,
}

/// The rights of one platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GatewayRule {
    /// The name of the platform: the text after the last `@` of its agents' names. `*` for every platform.
    pub platform: String,
    /// The local names of the agents here that the platform may write to. `*` at the end stands for any rest.
    pub to: Vec<String>,
    /// The network addresses that the platform must write from, and at which it may be written to: `10.0.0.7`, or
    /// `10.0.0.0/24`. Empty: the platform may write from anywhere. Messages to it then go to the addresses that it
    /// wrote from, and only on the open internet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<String>,
    /// The SHA-256 fingerprint, in hexadecimal, of the certificate that the platform must show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Whether the platform's agents may register themselves in the DF.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub register: bool,
}

/// A rule that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GatewayPolicyError {
    /// The rule names no platform, or its name cannot be one.
    #[error("'{}' is not a platform name: write what follows the @ in its agents' names, or * for all", .0.escape_debug())]
    Platform(String),
    /// No receivers.
    #[error("the rule for {0} names no receivers: write *, or the names of agents")]
    Receivers(String),
    /// A text is no network address.
    #[error(transparent)]
    Network(#[from] NoNetwork),
    /// A text is no fingerprint.
    #[error("'{}' is not a SHA-256 fingerprint: write 64 hexadecimal digits", .0.escape_debug())]
    Certificate(String),
    /// Too many rules.
    #[error("there are {MOST_RULES} rules already")]
    TooMany,
}

/// The origin of a message, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageOrigin {
    /// The network address of the connection.
    pub address: IpAddr,
    /// SHA-256 fingerprint of the certificate shown on it.
    pub certificate: Option<String>,
}

/// The rights that the policy gives to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Whether the platform's agents may register in the DF.
    pub may_register: bool,
    /// Whether the rule names the network or the certificate of the platform, so that others cannot pass for it.
    pub is_located: bool,
}

impl GatewayPolicy {
    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

impl GatewayRule {
    /// A rule that lets a platform write to these agents, from anywhere.
    pub fn new(
        platform: impl Into<String>,
        to: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            platform: platform.into(),
            to: to.into_iter().map(Into::into).collect(),
            from: Vec::new(),
            certificate: None,
            register: false,
        }
    }

    /// Checks the rule.
    ///
    /// # Errors
    /// [`GatewayPolicyError`]: the rule makes no sense.
    pub fn check(&self) -> Result<(), GatewayPolicyError> {
        let is_name = |c: char| !c.is_control() && !c.is_whitespace() && c != '@';
        if self.platform.is_empty()
            || self.platform.len() > 255
            || !self.platform.chars().all(is_name)
        {
            return Err(GatewayPolicyError::Platform(self.platform.clone()));
        }
        if self.to.is_empty() || self.to.iter().any(String::is_empty) {
            return Err(GatewayPolicyError::Receivers(self.platform.clone()));
        }
        for network in &self.from {
            network.parse::<Network>()?;
        }
        if let Some(certificate) = &self.certificate
            && !(certificate.len() == 64 && certificate.bytes().all(|it| it.is_ascii_hexdigit()))
        {
            return Err(GatewayPolicyError::Certificate(certificate.clone()));
        }
        Ok(())
    }

    fn admits(&self, platform: &str, origin: &MessageOrigin) -> bool {
        let is_from = self.from.is_empty() || self.names(origin.address);
        let is_certified = match (&self.certificate, &origin.certificate) {
            (None, _) => true,
            (Some(wanted), Some(shown)) => wanted.eq_ignore_ascii_case(shown),
            (Some(_), None) => false,
        };
        self.is_for(platform) && is_from && is_certified
    }

    fn is_for(&self, platform: &str) -> bool {
        self.platform == "*" || self.platform.eq_ignore_ascii_case(platform)
    }

    /// Whether one of its networks holds this address.
    fn names(&self, address: IpAddr) -> bool {
        self.from
            .iter()
            .filter_map(|network| network.parse::<Network>().ok())
            .any(|network| network.contains(address))
    }

    fn is_about(&self, receiver: &str) -> bool {
        self.to
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => receiver.starts_with(beginning),
                None => receiver == pattern,
            })
    }
}

impl GatewayPolicy {
    /// Checks all rules.
    ///
    /// # Errors
    /// [`GatewayPolicyError`]: a rule makes no sense.
    pub fn check(&self) -> Result<(), GatewayPolicyError> {
        if self.rules.len() > MOST_RULES {
            return Err(GatewayPolicyError::TooMany);
        }
        self.rules.iter().try_for_each(GatewayRule::check)
    }

    /// Whether `platform`, writing from `origin`, may write to the agent with the local name `receiver`.
    pub fn admit(
        &self,
        platform: &str,
        origin: &MessageOrigin,
        receiver: &str,
    ) -> Option<Admission> {
        if CLOSED.contains(&receiver) {
            return None;
        }
        let admitted = self
            .rules
            .iter()
            .filter(|rule| rule.admits(platform, origin) && rule.is_about(receiver))
            .map(|rule| Admission {
                may_register: rule.register,
                is_located: !rule.from.is_empty() || rule.certificate.is_some(),
            });
        admitted.reduce(|one, other| Admission {
            may_register: one.may_register || other.may_register,
            is_located: one.is_located || other.is_located,
        })
    }

    /// Whether a rule places `platform` at `address`.
    pub(crate) fn locates(&self, platform: &str, address: IpAddr) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.is_for(platform) && rule.names(address))
    }

    /// Whether a rule for this platform, and not for all, says where the platform is.
    pub(crate) fn is_located(&self, platform: &str) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.platform.eq_ignore_ascii_case(platform) && !rule.from.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(platform: &str, to: &str) -> GatewayRule {
        GatewayRule {
            platform: platform.to_owned(),
            to: vec![to.to_owned()],
            from: Vec::new(),
            certificate: None,
            register: false,
        }
    }

    fn origin(address: &str) -> MessageOrigin {
        MessageOrigin {
            address: address.parse().unwrap(),
            certificate: None,
        }
    }

    #[test]
    fn what_no_rule_allows_is_refused() {
        let here = origin("127.0.0.1");
        assert_eq!(GatewayPolicy::default().admit("plat1", &here, "df"), None);
        let policy = GatewayPolicy {
            rules: vec![rule("plat1", "seller-*"), rule("plat2", "*")],
        };
        assert!(policy.admit("PLAT1", &here, "seller-1").is_some());
        assert!(policy.admit("plat1", &here, "df").is_none());
        assert!(policy.admit("plat3", &here, "seller-1").is_none());
        assert!(policy.admit("plat2", &here, "df").is_some());
        for closed in CLOSED {
            assert!(policy.admit("plat2", &here, closed).is_none());
        }
    }

    #[test]
    fn addresses_and_certificates_narrow_a_rule() {
        let mut narrow = rule("*", "*");
        narrow.from = vec!["10.1.0.0/16".to_owned(), "fd00::1".to_owned()];
        narrow.register = true;
        let mut policy = GatewayPolicy {
            rules: vec![narrow],
        };
        let admits =
            |policy: &GatewayPolicy, address: &str| policy.admit("p", &origin(address), "a");
        assert_eq!(
            admits(&policy, "10.1.255.3"),
            Some(Admission {
                may_register: true,
                is_located: true,
            })
        );
        assert_eq!(admits(&policy, "10.2.0.1"), None);
        assert!(admits(&policy, "fd00::1").is_some());
        assert_eq!(admits(&policy, "fd00::2"), None);
        policy.rules[0].certificate = Some("AB".repeat(32));
        assert_eq!(admits(&policy, "fd00::1"), None);
        let certified = MessageOrigin {
            certificate: Some("ab".repeat(32)),
            ..origin("fd00::1")
        };
        assert!(policy.admit("p", &certified, "a").is_some());
    }

    #[test]
    fn rules_that_cannot_be_meant_are_named() {
        assert!(rule("plat1", "*").check().is_ok());
        assert!(rule("192.168.1.5:1099/JADE", "*").check().is_ok());
        assert!(matches!(
            rule("a@b", "*").check(),
            Err(GatewayPolicyError::Platform(_))
        ));
        assert!(matches!(
            rule("a", "").check(),
            Err(GatewayPolicyError::Receivers(_))
        ));
        let mut wrong = rule("a", "*");
        wrong.from = vec!["10.0.0.0/33".to_owned()];
        assert!(matches!(wrong.check(), Err(GatewayPolicyError::Network(_))));
        wrong.from.clear();
        wrong.certificate = Some("xyz".to_owned());
        assert!(matches!(
            wrong.check(),
            Err(GatewayPolicyError::Certificate(_))
        ));
    }
}

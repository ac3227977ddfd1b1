//! `[permission]` and `[[channel]]`: the rules for all processes of the platform.

use std::collections::{BTreeMap, BTreeSet};

use sealbus_channels::{ChannelPattern, ChannelPermissions, Persistence, Qos, QosOverride};
use sealbus_gateways::{GatewayConfig, IiopConfig};
use sealbus_seal::permission::Policy;
use sealbus_seal::{PlatformName, SecurityLevel};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::callers::CallersEntry;
use super::neighbours::NeighbourEntry;
use super::read::{Reader, absolute};
use super::{
    AgentEntry, ChannelEntry, GatewayEntry, NEIGHBOURS_AGENT, PlatformEntry, RetentionEntry,
};

const CHANNEL_KEYS: &[&str] = &["path", "qos", "persistent", "retention"];
const RETENTION_KEYS: &[&str] = &["age", "count", "bytes"];

/// The section `[gateway]` of a manifest. Other sections are ignored.
#[derive(Deserialize)]
struct WithGateway {
    gateway: GatewaySection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GatewaySection {
    #[serde(default)]
    node: Option<String>,
    #[serde(default)]
    iiop: Option<IiopConfig>,
    #[serde(default)]
    http: Option<GatewayConfig>,
    #[serde(default)]
    mcp: Option<CallersEntry>,
    #[serde(default)]
    a2a: Option<CallersEntry>,
    #[serde(default)]
    neighbours: BTreeMap<String, NeighbourEntry>,
}

const GATEWAY_HELP: &str = "a gateway is written as\n[gateway.http]\nlisten = \"192.0.2.10:7778\"\nor as\n[gateway.mcp]\nlisten = \"127.0.0.1:7780\"";

/// The part of a manifest that is read through its types alone.
#[derive(Deserialize)]
struct Section {
    permission: Policy,
}

impl<'t> Reader<'t> {
    pub(super) fn permission(
        &mut self,
        root: &DeTable<'t>,
        platform: Option<&PlatformName>,
    ) -> Policy {
        let Some(value) = root.get("permission") else {
            return Policy::default();
        };
        let policy = match toml::from_str::<Section>(self.text) {
            Ok(Section { permission }) => permission,
            Err(error) => {
                let help = "a rule is written as\n[[permission.rule]]\nallow = { from = [\"sellers\"], to = [\"broker\"] }".to_owned();
                let span = error.span().unwrap_or_else(|| value.span());
                self.problem(span, error.message(), Some(help));
                return Policy::default();
            }
        };
        if let Some(platform) = platform {
            if let Err(error) = policy.compile(platform) {
                self.problem(value.span(), error.to_string(), None);
            } else if let Err(error) = ChannelPermissions::compile(&policy, platform) {
                self.problem(value.span(), error.to_string(), None);
            }
        }
        policy
    }

    pub(super) fn gateway(
        &mut self,
        root: &DeTable<'t>,
        agents: &[AgentEntry],
    ) -> Option<GatewayEntry> {
        let value = root.get("gateway")?;
        let section = match toml::from_str::<WithGateway>(self.text) {
            Ok(WithGateway { gateway }) => gateway,
            Err(error) => {
                let help = GATEWAY_HELP.to_owned();
                let span = error.span().unwrap_or_else(|| value.span());
                self.problem(span, error.message(), Some(help));
                return None;
            }
        };
        let GatewaySection {
            node,
            mut http,
            iiop,
            mcp,
            a2a,
            neighbours,
        } = section;
        if let (Some(http), Some(iiop)) = (&mut http, &iiop) {
            http.iiop = Some(iiop.clone());
        }
        let gateway = GatewayEntry {
            node,
            directory: Some(absolute(self.directory)),
            isolation: None,
            http,
            mcp,
            a2a,
            neighbours,
        };
        let problem = if gateway.http.is_none() && iiop.is_some() {
            Some("[gateway.iiop] needs [gateway.http]".to_owned())
        } else if gateway.http.is_none()
            && gateway.doors().next().is_none()
            && gateway.neighbours.is_empty()
        {
            Some("[gateway] names no other platform and no callers".to_owned())
        } else {
            let http = gateway.http.iter();
            let http = http.map(|http| http.check().map_err(|it| it.to_string()));
            let doors = gateway.doors();
            let doors = doors.map(|(name, door)| door.check(&format!("gateway.{name}")));
            let neighbours = gateway.neighbours.iter();
            let neighbours = neighbours.map(|(name, entry)| entry.check(name));
            http.chain(doors).chain(neighbours).find_map(Result::err)
        };
        if let Some(problem) = problem {
            let help = gateway.http.is_none().then(|| GATEWAY_HELP.to_owned());
            self.problem(value.span(), problem, help);
            return None;
        }
        let mut taken: BTreeSet<String> = agents.iter().flat_map(AgentEntry::local_names).collect();
        let doors = gateway.doors().map(|(own, door)| {
            let agents = door.agents().cloned();
            std::iter::once(own.to_owned()).chain(agents).collect()
        });
        let neighbours = (!gateway.neighbours.is_empty()).then(|| {
            let agents = gateway.neighbours.keys().cloned();
            std::iter::once(NEIGHBOURS_AGENT.to_owned())
                .chain(agents)
                .collect()
        });
        for names in doors.chain(neighbours) {
            let names: Vec<String> = names;
            for name in names {
                self.legal("agent", name.clone(), value.span());
                if !taken.insert(name.clone()) {
                    let help = "give each caller, neighbour and agent a name of its own".to_owned();
                    let problem = format!("two agents are named {name}");
                    self.problem(value.span(), problem, Some(help));
                }
            }
        }
        Some(gateway)
    }

    /// Tokens for neighbours need an issuer.
    pub(super) fn neighbours_tokens(
        &mut self,
        root: &DeTable<'t>,
        gateway: Option<&GatewayEntry>,
        platform: Option<&PlatformEntry>,
    ) {
        let neighbours = gateway.into_iter().flat_map(|it| &it.neighbours);
        let mut with_tokens = neighbours.filter(|(_, entry)| entry.token_audience.is_some());
        if let (Some((name, _)), Some(value), Some(platform)) =
            (with_tokens.next(), root.get("gateway"), platform)
            && platform.workload_issuer.is_none()
        {
            let problem =
                format!("the neighbour {name} has a token-audience, and no token is made here");
            let help = "set `workload-issuer` in [platform]".to_owned();
            self.problem(value.span(), problem, Some(help));
        }
    }

    /// Reads the channels. `level` is that of the platform.
    pub(super) fn channels(
        &mut self,
        root: &DeTable<'t>,
        level: Option<SecurityLevel>,
    ) -> Vec<ChannelEntry> {
        let Some(value) = root.get("channel") else {
            return Vec::new();
        };
        let DeValue::Array(entries) = value.get_ref() else {
            let help = "write [[channel]], with two brackets, for each".to_owned();
            let message = "the channels are not a list of tables";
            self.problem(value.span(), message, Some(help));
            return Vec::new();
        };
        let mut taken = BTreeSet::new();
        let mut channels = Vec::new();
        for entry in entries.iter() {
            let Some(table) = self.table(entry, "channel") else {
                continue;
            };
            let Some(channel) = self.channel(table, entry, level) else {
                continue;
            };
            if !taken.insert(channel.path.clone()) {
                let at = table.get("path").map_or(entry.span(), Spanned::span);
                let help =
                    "only the first entry that fits a channel applies to it: remove one".to_owned();
                let message = format!("the channel {} is there twice", channel.path);
                self.problem(at, message, Some(help));
            }
            channels.push(channel);
        }
        channels
    }

    fn channel(
        &mut self,
        table: &DeTable<'t>,
        entry: &Spanned<DeValue<'t>>,
        level: Option<SecurityLevel>,
    ) -> Option<ChannelEntry> {
        self.unknown_keys(table, CHANNEL_KEYS, "in [[channel]]");
        let path = match self.text_of(table, "path") {
            Some((path, at)) => match ChannelPattern::new(&path) {
                Ok(pattern) => Some(pattern.as_str().to_owned()),
                Err(error) => {
                    self.problem(at, error.to_string(), None);
                    None
                }
            },
            None => {
                let message = "this channel has no path";
                let example = "path = \"/dates/business\"";
                self.missing(table, "path", entry.span(), message, example);
                None
            }
        };
        let mut qos = QosOverride::default();
        if let Some((text, at)) = self.text_of(table, "qos") {
            match text.parse() {
                Ok(read) => {
                    qos = read;
                    if let Err(error) = Qos::default().raised(&qos, level) {
                        let help = "the channel has the platform's level without it".to_owned();
                        self.problem(at, error.to_string(), Some(help));
                    }
                }
                Err(error) => {
                    self.problem(at, format!("`qos` cannot be \"{text}\": {error}"), None)
                }
            }
        }
        match self.truth(table, "persistent") {
            Some(true) if !is_persistent(&qos) => qos.persistence = Some(Persistence::Persistent),
            Some(false) if is_persistent(&qos) => {
                let at = table.get("persistent").map_or(entry.span(), Spanned::span);
                let help = "remove one of both".to_owned();
                let message = "`qos` makes the channel persistent, and `persistent` forbids it";
                self.problem(at, message, Some(help));
            }
            _ => {}
        }
        let retention = self.retention(table);
        if let Some(value) = table.get("retention")
            && !is_persistent(&qos)
        {
            let help = "add persistent = true".to_owned();
            let message = "a retention for a channel that keeps nothing";
            self.problem(value.span(), message, Some(help));
        }
        if is_persistent(&qos) && qos.level.max(level) == Some(SecurityLevel::Sealed) {
            let message = "the channel is persistent, and level=sealed holds for it";
            let help = "later readers of its log could not open sealed events: make the channel transient, or write level=signed";
            self.problem(entry.span(), message, Some(help.to_owned()));
        }
        Some(ChannelEntry {
            path: path?,
            qos: qos.to_string(),
            retention,
        })
    }

    pub(super) fn retention(&mut self, table: &DeTable<'t>) -> RetentionEntry {
        let Some(value) = table.get("retention") else {
            return RetentionEntry::default();
        };
        let Some(table) = self.table(value, "retention") else {
            return RetentionEntry::default();
        };
        self.unknown_keys(table, RETENTION_KEYS, "in a retention");
        RetentionEntry {
            age: self.duration(table, "age"),
            count: self
                .integer(table, "count", 1..=i64::MAX)
                .and_then(|count| u64::try_from(count).ok()),
            bytes: self.room(table, "bytes"),
        }
    }
}

fn is_persistent(qos: &QosOverride) -> bool {
    qos.persistence.is_some_and(|it| it.is_persistent())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Manifest, ManifestProblem};
    use super::*;

    fn parse(rest: &str) -> Result<Manifest, Vec<ManifestProblem>> {
        let text = format!("[platform]\nname = \"factory\"\n{rest}");
        Manifest::parse("platform.toml", &text, Path::new("/")).map_err(|error| error.problems)
    }

    #[test]
    fn channels_are_read() {
        let manifest = parse(
            r#"
            [[channel]]
            path = "/dates/business"
            qos = "at-least-once,priority=7"
            [[channel]]
            path = "/log/**"
            persistent = true
            retention = { age = "7d", count = 100000, bytes = "64 GiB" }
            [[channel]]
            path = "/contracts"
            qos = "level=signed"
            "#,
        )
        .unwrap();
        let qos: QosOverride = manifest.channels[0].qos.parse().unwrap();
        assert_eq!(qos, "at-least-once,priority=7".parse().unwrap());
        assert_eq!(manifest.channels[1].path, "/log/**");
        let qos: QosOverride = manifest.channels[1].qos.parse().unwrap();
        assert!(is_persistent(&qos));
        assert_eq!(
            manifest.channels[1].retention,
            RetentionEntry {
                age: Some(7 * 86_400),
                count: Some(100_000),
                bytes: Some(64 << 30)
            }
        );
    }

    #[test]
    fn every_mistake_in_a_channel_has_its_line_and_says_what_to_do() {
        let text = "[[channel]]\npath = \"dates\"\n[[channel]]\nqos = \"fast\"\n\
            [[channel]]\npath = \"/a\"\nretention = { age = \"1d\" }\n\
            [[channel]]\npath = \"/a\"\npersistent = \"yes\"\nretenton = 3\n\
            [[channel]]\npath = \"/b\"\nqos = \"level=tls\"\n";
        let problems = parse(text).unwrap_err();
        let found: Vec<_> = problems
            .iter()
            .map(|problem| (problem.line, problem.message.as_str()))
            .collect();
        let has = |line: usize, part: &str| {
            assert!(
                found
                    .iter()
                    .any(|(at, message)| *at == line && message.contains(part)),
                "{line}: {part} in {found:#?}"
            );
        };
        has(4, "expected '/'");
        has(5, "this channel has no path");
        has(6, "`qos` cannot be \"fast\"");
        has(9, "keeps nothing");
        has(11, "/a is there twice");
        has(12, "`persistent` is a text");
        has(13, "unknown key `retenton`");
        has(16, "level=tls would be weaker than level=auth");
    }

    #[test]
    fn sealed_channels_keep_nothing() {
        let persistent = |level: &str, qos: &str, is_persistent: bool| {
            let text = format!(
                "level = \"{level}\"\n[[channel]]\npath = \"/a\"\nqos = \"{qos}\"\npersistent = {is_persistent}\n"
            );
            parse(&text)
                .err()
                .map(|problems| problems[0].message.clone())
        };
        assert_eq!(persistent("auth", "level=sealed", false), None);
        assert_eq!(persistent("sealed", "priority=7", false), None);
        assert_eq!(persistent("auth", "priority=7", true), None);
        for (level, qos) in [("auth", "level=sealed"), ("sealed", "priority=7")] {
            let problem = persistent(level, qos, true).unwrap();
            assert!(problem.contains("level=sealed holds for it"), "{problem}");
        }
    }

    #[test]
    fn a_policy_is_read_and_checked() {
        let manifest = parse(
            "[permission.groups]\nsellers = [\"seller-1\"]\n\
             [[permission.rule]]\nallow = { from = [\"sellers\"], to = [\"broker\"] }\n\
             [[permission.rule]]\ndeny = { from = [\"sellers\"], to = [\"*\"] }\n",
        )
        .unwrap();
        assert_eq!(manifest.permission.rules.len(), 2);
        let problems = parse("[permission]\nrules = 3\n").unwrap_err();
        assert_eq!(problems[0].line, 4);
        let problems =
            parse("[[permission.rule]]\nallow = { from = [\"a b\"], to = [\"*\"] }\n").unwrap_err();
        assert!(problems[0].message.contains("a b"), "{problems:?}");
    }
}

//! Reads the text of `platform.toml` into a validated [`Manifest`]. All mistakes are reported at once, each with its
//! place and a suggestion.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::Path;

use sealbus_brokers::BROKER_KINDS;
use sealbus_seal::{Name, PlatformName, SecurityLevel};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::isolation;
use super::isolation::Isolation;
use super::problem::{ManifestError, ManifestProblem, ReadError, kind};
use super::program::{Program, ProgramProblem, locate};
use super::text;
use super::{AgentEntry, GatewayEntry, Manifest, PlatformEntry, ProcessAgents, RestartPolicy};

/// Most processes of one `[[agent]]`, most agents of one process, and most agents of all.
const MOST: i64 = 1_000_000;
/// Most mistakes in one report.
const MOST_PROBLEMS: usize = 256;

const PLATFORM_KEYS: &[&str] = &[
    "name",
    "level",
    "signatures",
    "lifetime",
    "address",
    "port",
    "enrolment-port",
    "nodes",
    "max-message",
    "workload-issuer",
    "transport",
    "isolation",
];
const AGENT_KEYS: &[&str] = &[
    "name",
    "command",
    "mcp",
    "replicas",
    "agents",
    "node",
    "forbid",
    "environment",
    "identity",
    "restart",
];

impl Manifest {
    /// Reads and checks a manifest file. The check includes that its programs exist.
    ///
    /// # Errors
    /// [`ReadError`]: the file cannot be read, or has mistakes.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let text = text::read(path).map_err(|error| ReadError::Unreadable {
            file: path.display().to_string(),
            error,
        })?;
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        Ok(Self::parse(&path.display().to_string(), &text, directory)?)
    }

    /// Reads and checks the text of a manifest that lies in `directory`. `file` names the manifest in errors.
    ///
    /// # Errors
    /// All the mistakes found.
    pub fn parse(file: &str, text: &str, directory: &Path) -> Result<Self, ManifestError> {
        let mut reader = Reader {
            text,
            directory,
            problems: Vec::new(),
        };
        let manifest = reader.manifest();
        let mut problems = reader.problems;
        match manifest {
            Some(manifest) if problems.is_empty() => Ok(manifest),
            _ => {
                problems.sort_by_key(|problem| problem.span.start);
                Err(ManifestError {
                    file: file.to_owned(),
                    text: text.to_owned(),
                    problems,
                })
            }
        }
    }
}

pub(super) struct Reader<'t> {
    pub(super) text: &'t str,
    pub(super) directory: &'t Path,
    problems: Vec<ManifestProblem>,
}

pub(super) type Value<'t> = Spanned<DeValue<'t>>;

impl<'t> Reader<'t> {
    pub(super) fn problem(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        if self.problems.len() >= MOST_PROBLEMS {
            return;
        }
        let line = 1 + self.text[..span.start.min(self.text.len())]
            .matches('\n')
            .count();
        self.problems.push(ManifestProblem {
            line,
            message: message.into(),
            help,
            span,
        });
    }

    fn manifest(&mut self) -> Option<Manifest> {
        let root = match DeTable::parse(self.text) {
            Ok(root) => root,
            Err(error) => {
                let end = self.text.len();
                self.problem(error.span().unwrap_or(end..end), error.message(), None);
                return None;
            }
        };
        let root = root.get_ref();
        let brokers = BROKER_KINDS.iter().map(|kind| kind.name());
        let known = ["platform", "agent", "permission", "channel", "gateway"];
        let known = known.into_iter().chain(brokers);
        let known = known.chain(["store", "witness", "evidence", "tap", "telemetry"]);
        let known: Vec<&str> = known.collect();
        self.unknown_keys(root, &known, "at the top of the file");
        let platform = match root.get("platform") {
            Some(value) => self
                .table(value, "platform")
                .and_then(|table| self.platform(root, table, value.span())),
            None => {
                let help = "begin with\n[platform]\nname = \"factory\"".to_owned();
                self.problem(0..0, "the manifest has no [platform]", Some(help));
                None
            }
        };
        let floor = platform.as_ref().and_then(|platform| platform.isolation);
        let mut agents = self.agents(root, floor);
        let name = platform
            .as_ref()
            .and_then(|platform| PlatformName::new(&platform.name).ok());
        let permission = self.permission(root, name.as_ref());
        let gateway = self.gateway(root, &agents).map(|gateway| GatewayEntry {
            isolation: floor,
            ..gateway
        });
        self.neighbours_tokens(root, gateway.as_ref(), platform.as_ref());
        let broker = self.broker(root);
        let witnesses = self.witnesses(root);
        let level = platform
            .as_ref()
            .map(|platform| platform.level.parse::<SecurityLevel>());
        let level = level.and_then(Result::ok);
        let channels = self.channels(root, level);
        if level == Some(SecurityLevel::Sealed) {
            self.only_what_is_sealed(root);
        }
        let signs = level.is_none_or(SecurityLevel::authenticates);
        let evidence = self.evidence(root, signs);
        let tap = self.tap(root);
        let store = self.store(root);
        let (name, nodes) = platform.as_ref().map_or(("", 0), |it| (&it.name, it.nodes));
        let telemetry = self.telemetry(root, name, nodes, &mut agents);
        Some(Manifest {
            platform: platform?,
            agents,
            permission,
            broker,
            channels,
            gateway,
            witnesses,
            evidence,
            tap,
            telemetry,
            store,
        })
    }

    fn platform(
        &mut self,
        root: &DeTable<'t>,
        table: &DeTable<'t>,
        span: Range<usize>,
    ) -> Option<PlatformEntry> {
        self.unknown_keys(table, PLATFORM_KEYS, "in [platform]");
        let name = match self.text_of(table, "name") {
            Some((name, at)) => match PlatformName::new(&name) {
                Ok(_) => Some(name),
                Err(error) => {
                    self.problem(at, error.to_string(), None);
                    None
                }
            },
            None => {
                self.missing(
                    table,
                    "name",
                    span,
                    "[platform] has no name",
                    "name = \"factory\"",
                );
                None
            }
        };
        let level: Option<SecurityLevel> =
            self.parsed(table, "level", "none, tls, auth, signed or sealed");
        let address = self.parsed::<IpAddr>(table, "address", "an IP address such as 10.0.0.7");
        let certificate_lifetime = self.duration(table, "lifetime").unwrap_or(3600);
        let enrolment_port = self
            .integer(table, "enrolment-port", 0..=65535)
            .unwrap_or(0) as u16;
        let port = self.integer(table, "port", 0..=65535).unwrap_or(0) as u16;
        let nodes = self.integer(table, "nodes", 0..=1000).unwrap_or(1) as u32;
        let max_message = self.size(table, "max-message").unwrap_or(16 * 1024 * 1024);
        Some(PlatformEntry {
            name: name?,
            signatures: self.signatures(root, table, level.unwrap_or_default()),
            level: level.unwrap_or_default().to_string(),
            certificate_lifetime,
            workload_issuer: self.workload_issuer(table),
            address: address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            enrolment_port,
            port,
            nodes,
            max_message,
            isolation: self.parsed(table, "isolation", isolation::MODES),
        })
    }

    /// Refuses the sections whose messages cannot be sealed.
    fn only_what_is_sealed(&mut self, root: &DeTable<'t>) {
        let gateway = |name| root.get("gateway")?.get_ref().as_table()?.get(name);
        for (what, found) in [
            ("[gateway.http]", gateway("http")),
            ("[gateway.iiop]", gateway("iiop")),
        ] {
            if let Some(found) = found {
                let problem = format!("{what} is there, and level = \"sealed\" holds");
                let help = "messages of other platforms cannot be sealed: remove it, or write level = \"signed\" and seal \
                            single messages";
                self.problem(found.span(), problem, Some(help.to_owned()));
            }
        }
    }

    fn agents(&mut self, root: &DeTable<'t>, floor: Option<Isolation>) -> Vec<AgentEntry> {
        let Some(value) = root.get("agent") else {
            return Vec::new();
        };
        let DeValue::Array(entries) = value.get_ref() else {
            let help = "write [[agent]], with two brackets, for each".to_owned();
            self.problem(
                value.span(),
                "the agents are not a list of tables",
                Some(help),
            );
            return Vec::new();
        };
        // The platform's own agents.
        let mut taken = BTreeSet::from([sealbus_bus::GATEWAY.to_owned()]);
        let (mut agents, mut count) = (Vec::new(), 0);
        for entry in entries.iter() {
            let Some(table) = self.table(entry, "agent") else {
                continue;
            };
            let Some(agent) = self.agent(table, entry.span(), floor) else {
                continue;
            };
            count += agent.count();
            if count > MOST.unsigned_abs() {
                let message = format!("the manifest has more than {MOST} agents");
                let help = "lower `replicas` or `agents`".to_owned();
                self.problem(entry.span(), message, Some(help));
                break;
            }
            let clash = agent
                .local_names()
                .into_iter()
                .find(|name| !taken.insert(name.clone()));
            if let Some(name) = clash {
                let at = table.get("name").map_or(entry.span(), Spanned::span);
                let help = "give each agent a name of its own".to_owned();
                self.problem(at, format!("two agents are named {name}"), Some(help));
            }
            agents.push(agent);
        }
        agents
    }

    fn agent(
        &mut self,
        table: &DeTable<'t>,
        span: Range<usize>,
        floor: Option<Isolation>,
    ) -> Option<AgentEntry> {
        let keys = [AGENT_KEYS, &isolation::KEYS].concat();
        self.unknown_keys(table, &keys, "in [[agent]]");
        let name = match self.text_of(table, "name") {
            Some((name, at)) => self.legal("agent", name, at),
            None => {
                let example = "name = \"seller\"";
                self.missing(
                    table,
                    "name",
                    span.clone(),
                    "this agent has no name",
                    example,
                );
                None
            }
        };
        let program = match table.get("mcp") {
            None => self.command(table, span).map(Program::from),
            Some(server) => {
                let called = name.as_deref().unwrap_or("this agent");
                self.mcp(table, server, called)
            }
        };
        let node = self
            .text_of(table, "node")
            .and_then(|(node, at)| self.legal("node", node, at));
        let forbid = self.texts(table, "forbid");
        if let (Some(node), Some(value)) = (&node, table.get("forbid"))
            && forbid.contains(node)
        {
            let message = format!("the agent must run on {node} and must not");
            self.problem(
                value.span(),
                message,
                Some(format!("remove {node} from `node` or from `forbid`")),
            );
        }
        let restart = self.choice(
            table,
            "restart",
            &[
                ("on-failure", RestartPolicy::OnFailure),
                ("always", RestartPolicy::Always),
                ("never", RestartPolicy::Never),
            ],
        );
        let agents = self.process_agents(table);
        let replicas = self.integer(table, "replicas", 0..=MOST).unwrap_or(1) as u32;
        let mut environment = self.environment(table);
        let mut confinement = self.confinement(table, floor);
        let who = (replicas, &agents);
        self.identity(table, who, &mut environment, &mut confinement);
        let program = program?;
        confinement.read.extend(program.read);
        Some(AgentEntry {
            name: name?,
            command: program.command,
            directory: Some(absolute(self.directory)),
            replicas,
            agents,
            node,
            forbid,
            environment,
            restart: restart.unwrap_or_default(),
            confinement,
        })
    }

    pub(super) fn legal(
        &mut self,
        what: &'static str,
        name: String,
        at: Range<usize>,
    ) -> Option<String> {
        match Name::new(what, &name) {
            Ok(_) => Some(name),
            Err(error) => {
                self.problem(at, error.to_string(), None);
                None
            }
        }
    }

    fn process_agents(&mut self, table: &DeTable<'t>) -> ProcessAgents {
        match table.get("agents").map(Spanned::get_ref) {
            Some(DeValue::Array(_)) => {
                let named = self.texts(table, "agents");
                if let Some(value) = table.get("agents") {
                    for name in &named {
                        self.legal("agent", name.clone(), value.span());
                    }
                    if named.is_empty() {
                        let help = "leave `agents` out for one agent of this name".to_owned();
                        self.problem(value.span(), "the process has no agent", Some(help));
                    }
                }
                ProcessAgents::Named(named)
            }
            _ => ProcessAgents::Count(self.integer(table, "agents", 1..=MOST).unwrap_or(1) as u32),
        }
    }

    pub(super) fn command(
        &mut self,
        table: &DeTable<'t>,
        span: Range<usize>,
    ) -> Option<Vec<String>> {
        let Some(value) = table.get("command") else {
            let example = "command = [\"python3\", \"seller.py\"]";
            self.missing(table, "command", span, "this agent has no command", example);
            return None;
        };
        let words = match value.get_ref() {
            DeValue::String(line) if line.contains(['\'', '"', '\\']) => {
                let help = "write the words as a list: [\"program\", \"an argument\"]".to_owned();
                self.problem(value.span(), "a command line with quotes in it", Some(help));
                return None;
            }
            DeValue::String(line) => line.split_whitespace().map(str::to_owned).collect(),
            _ => self.texts(table, "command"),
        };
        let Some(program) = words.first() else {
            self.problem(value.span(), "the command is empty", None);
            return None;
        };
        self.is_there(program, value.span()).then_some(words)
    }

    /// Whether a program exists; otherwise that is a mistake.
    pub(super) fn is_there(&mut self, program: &str, at: Range<usize>) -> bool {
        let Err(problem) = locate(program, self.directory) else {
            return true;
        };
        let help = match &problem {
            ProgramProblem::Missing {
                near: Some(near), ..
            } => Some(format!("did you mean {near}?")),
            ProgramProblem::Missing { .. } => None,
            ProgramProblem::NotExecutable { path } => Some(format!("chmod +x {path}")),
        };
        self.problem(at, problem.to_string(), help);
        false
    }

    fn environment(&mut self, table: &DeTable<'t>) -> BTreeMap<String, String> {
        let mut environment = BTreeMap::new();
        let Some(value) = table.get("environment") else {
            return environment;
        };
        let Some(variables) = self.table(value, "environment") else {
            return environment;
        };
        for (name, value) in variables {
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => number.to_string(),
                DeValue::Float(number) => number.to_string(),
                DeValue::Boolean(truth) => truth.to_string(),
                other => {
                    let message = format!("`{}` is {}", name.get_ref(), kind(other));
                    self.problem(value.span(), message, Some("write a text".to_owned()));
                    continue;
                }
            };
            if name.get_ref().is_empty()
                || name.get_ref().contains(['=', '\0'])
                || text.contains('\0')
            {
                self.problem(name.span(), "not a legal environment variable", None);
            }
            environment.insert(name.get_ref().to_string(), text);
        }
        environment
    }
}

pub(super) fn absolute(directory: &Path) -> String {
    std::path::absolute(directory)
        .unwrap_or_else(|_| directory.to_owned())
        .display()
        .to_string()
}

#[cfg(test)]
mod tests;

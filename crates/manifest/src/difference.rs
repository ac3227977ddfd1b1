//! The difference between the manifest of a running platform and another one for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::isolation::Confinement;
use super::{AgentEntry, ChannelEntry, Manifest, PlatformEntry, ProcessAgents};

/// The changes that bring a running platform to the state of another manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Processes to start, by name.
    pub start: Vec<String>,
    /// Processes to stop: the manifest does not name them any more.
    pub stop: Vec<String>,
    /// Processes to stop and to start again.
    pub restart: Vec<ChangedProcess>,
    /// The changes made while everything runs.
    pub change: Vec<String>,
    /// The keys that cannot change while the platform runs.
    pub new_platform: Vec<String>,
}

/// A process that must be started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedProcess {
    /// The process's name.
    pub process: String,
    /// The keys of its entry that changed.
    pub keys: Vec<String>,
}

impl Difference {
    /// The difference from `running` to `wanted`.
    pub fn between(running: &Manifest, wanted: &Manifest) -> Self {
        let mut difference = Self {
            new_platform: new_platform(running, wanted),
            ..Self::default()
        };
        let (before, after) = (processes(running), processes(wanted));
        for (name, old) in &before {
            let Some(new) = after.get(name) else {
                difference.stop.push(name.clone());
                continue;
            };
            let keys = changed_keys(old, new);
            if !keys.is_empty() {
                let process = name.clone();
                difference.restart.push(ChangedProcess { process, keys });
            } else if old.restart != new.restart {
                difference.change.push(format!("when {name} restarts"));
            }
        }
        let is_new = |name: &&String| !before.contains_key(*name);
        difference.start = after.keys().filter(is_new).cloned().collect();
        if running.permission != wanted.permission {
            difference.change.push("permission".to_owned());
        }
        if running.evidence != wanted.evidence {
            difference.change.push("evidence".to_owned());
        }
        if running.tap != wanted.tap {
            difference.change.push("tap".to_owned());
        }
        let channels = changed_channels(&running.channels, &wanted.channels);
        difference.change.extend(channels);
        difference
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The processes that must end.
    pub fn ending(&self) -> impl Iterator<Item = &String> {
        let restarted = self.restart.iter().map(|changed| &changed.process);
        self.stop.iter().chain(restarted)
    }
}

/// The processes that a manifest asks for, each as an entry of its own.
fn processes(manifest: &Manifest) -> BTreeMap<String, AgentEntry> {
    let gateways = manifest.gateway.iter();
    let gateways = gateways.flat_map(|gateway| gateway.agents("sealbus"));
    let mut processes = BTreeMap::new();
    for entry in manifest.agents.iter().cloned().chain(gateways) {
        for (name, agents) in entry.processes() {
            let process = AgentEntry {
                name: name.clone(),
                replicas: 1,
                agents: ProcessAgents::Named(agents),
                ..entry.clone()
            };
            processes.insert(name, process);
        }
    }
    processes
}

/// The keys for which a process must be started again.
fn changed_keys(old: &AgentEntry, new: &AgentEntry) -> Vec<String> {
    let AgentEntry {
        name: _,
        command,
        directory,
        replicas: _,
        agents,
        node,
        forbid,
        environment,
        restart: _,
        confinement,
    } = old;
    let Confinement {
        isolation,
        read,
        write,
        unix_sockets,
        memory,
        processes,
        cpu,
        files,
        disk,
    } = confinement;
    let allowed = &new.confinement;
    named([
        ("command", *command != new.command),
        ("the manifest's folder", *directory != new.directory),
        ("agents", *agents != new.agents),
        ("node", *node != new.node),
        ("forbid", *forbid != new.forbid),
        ("environment", *environment != new.environment),
        ("isolation", *isolation != allowed.isolation),
        ("read", *read != allowed.read),
        ("write", *write != allowed.write),
        ("unix-sockets", *unix_sockets != allowed.unix_sockets),
        ("memory", *memory != allowed.memory),
        ("processes", *processes != allowed.processes),
        ("cpu", *cpu != allowed.cpu),
        ("files", *files != allowed.files),
        ("disk", *disk != allowed.disk),
    ])
}

/// The keys that need a new platform.
fn new_platform(running: &Manifest, wanted: &Manifest) -> Vec<String> {
    let PlatformEntry {
        name,
        level,
        signatures,
        certificate_lifetime,
        workload_issuer,
        address,
        enrolment_port,
        port,
        nodes,
        max_message,
        // The entries of the agents contain the isolation.
        isolation: _,
    } = &running.platform;
    let new = &wanted.platform;
    let broker = running.broker.as_ref().or(wanted.broker.as_ref());
    let broker = broker.map_or("transport", |broker| broker.kind().name());
    named([
        ("name", *name != new.name),
        ("level", *level != new.level),
        ("signatures", *signatures != new.signatures),
        (
            "lifetime",
            *certificate_lifetime != new.certificate_lifetime,
        ),
        ("workload-issuer", *workload_issuer != new.workload_issuer),
        ("address", *address != new.address),
        ("port", *port != new.port),
        ("enrolment-port", *enrolment_port != new.enrolment_port),
        ("nodes", *nodes != new.nodes),
        ("max-message", *max_message != new.max_message),
        (broker, running.broker != wanted.broker),
        ("store", running.store != wanted.store),
        ("metrics", running.telemetry != wanted.telemetry),
        ("witness", running.witnesses != wanted.witnesses),
    ])
}

fn named<const COUNT: usize>(keys: [(&str, bool); COUNT]) -> Vec<String> {
    let changed = keys.into_iter().filter(|(_, changed)| *changed);
    changed.map(|(key, _)| key.to_owned()).collect()
}

fn changed_channels(running: &[ChannelEntry], wanted: &[ChannelEntry]) -> Vec<String> {
    let by_path = |entries: &[ChannelEntry]| -> BTreeMap<String, Vec<ChannelEntry>> {
        let mut paths: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in entries {
            let same = paths.entry(entry.path.clone()).or_default();
            same.push(entry.clone());
        }
        paths
    };
    let (before, after) = (by_path(running), by_path(wanted));
    let mut changed: Vec<String> = Vec::new();
    for (path, entries) in &before {
        match after.get(path) {
            None => changed.push(format!("channel {path}: removed")),
            Some(new) if new != entries => changed.push(format!("channel {path}")),
            Some(_) => {}
        }
    }
    let added = after.keys().filter(|path| !before.contains_key(*path));
    changed.extend(added.map(|path| format!("channel {path}: added")));
    if changed.is_empty() && running != wanted {
        changed.push("the order of the channels".to_owned());
    }
    changed
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::RestartPolicy;

    fn manifest(text: &str) -> Manifest {
        let text = format!("[platform]\nname = \"factory\"\n{text}");
        Manifest::parse("platform.toml", &text, Path::new("/")).unwrap()
    }

    fn between(running: &str, wanted: &str) -> Difference {
        Difference::between(&manifest(running), &manifest(wanted))
    }

    #[test]
    fn an_agent_comes_another_goes_and_a_third_changes() {
        let found = between(
            "[[agent]]\nname = \"a\"\ncommand = \"sh\"\n[[agent]]\nname = \"b\"\ncommand = \"sh\"\n",
            "[[agent]]\nname = \"b\"\ncommand = \"sh -c true\"\nenvironment = { X = 1 }\n\
             [[agent]]\nname = \"c\"\ncommand = \"sh\"\nreplicas = 2\n",
        );
        assert_eq!(found.stop, ["a"]);
        assert_eq!(found.start, ["c-1", "c-2"]);
        let changed = ChangedProcess {
            process: "b".to_owned(),
            keys: ["command", "environment"].map(str::to_owned).to_vec(),
        };
        assert_eq!(found.restart, [changed]);
        assert!(found.change.is_empty() && found.new_platform.is_empty());
    }

    #[test]
    fn rules_change_while_everything_runs() {
        let found = between(
            "[[agent]]\nname = \"a\"\ncommand = \"sh\"\n[[channel]]\npath = \"/x\"\n[[channel]]\npath = \"/y\"\n",
            "[[agent]]\nname = \"a\"\ncommand = \"sh\"\nrestart = \"never\"\n\
             [[channel]]\npath = \"/y\"\nqos = \"persistent\"\n[[channel]]\npath = \"/z\"\n\
             [[permission.rule]]\ndeny = { from = [\"*\"], to = [\"a\"] }\n",
        );
        let expected = [
            "when a restarts",
            "permission",
            "channel /x: removed",
            "channel /y",
            "channel /z: added",
        ];
        assert_eq!(found.change, expected);
        assert!(found.start.is_empty() && found.ending().next().is_none());
        let found = between(
            "[[channel]]\npath = \"/x/*\"\n[[channel]]\npath = \"/x/y\"\n",
            "[[channel]]\npath = \"/x/y\"\n[[channel]]\npath = \"/x/*\"\n",
        );
        assert_eq!(found.change, ["the order of the channels"]);
    }

    #[test]
    fn what_needs_a_new_platform_is_named() {
        let found = between(
            "",
            "level = \"tls\"\nnodes = 3\nisolation = \"landlock\"\nmax-message = \"1 MiB\"\n",
        );
        assert_eq!(found.new_platform, ["level", "nodes", "max-message"]);
        let managed = "transport = \"rabbitmq\"\n[rabbitmq]\nmanaged = true\n";
        for (running, wanted) in [("", managed), (managed, "")] {
            assert_eq!(between(running, wanted).new_platform, ["rabbitmq"]);
        }
        assert!(between(managed, managed).is_empty());
    }

    #[test]
    fn the_gateway_is_a_process_like_others() {
        let with =
            |port: u16| manifest(&format!("[gateway.http]\nlisten = \"127.0.0.1:{port}\"\n"));
        let found = Difference::between(&manifest(""), &with(7100));
        assert_eq!(found.start, ["gateway"]);
        let found = Difference::between(&with(7100), &with(7101));
        assert_eq!(found.restart[0].process, "gateway");
    }

    fn entries() -> impl Strategy<Value = Vec<AgentEntry>> {
        let policy = prop_oneof![Just(RestartPolicy::Always), Just(RestartPolicy::Never)];
        let entry = (0..3_u8, 1..4_u32, 1..3_u32, policy);
        proptest::collection::btree_map("[a-d]", entry, 0..4).prop_map(|entries| {
            let mut base = manifest("[[agent]]\nname = \"x\"\ncommand = \"sh\"\n").agents;
            let base = base.remove(0);
            let entry = |(name, (command, replicas, agents, restart))| AgentEntry {
                name,
                command: vec![format!("/bin/{command}")],
                replicas,
                agents: ProcessAgents::Count(agents),
                restart,
                ..base.clone()
            };
            entries.into_iter().map(entry).collect()
        })
    }

    fn whole(agents: Vec<AgentEntry>) -> Manifest {
        Manifest {
            agents,
            ..manifest("")
        }
    }

    proptest! {
        /// A platform on which the difference is carried out runs as the wanted manifest asks.
        #[test]
        fn the_difference_leads_from_one_manifest_to_the_other(running in entries(), wanted in entries()) {
            let (running, wanted) = (whole(running), whole(wanted));
            let found = Difference::between(&running, &wanted);
            let (mut runs, goal) = (processes(&running), processes(&wanted));
            for name in found.ending() {
                prop_assert!(runs.remove(name).is_some(), "{name} does not run");
            }
            let restarted = found.restart.iter().map(|changed| &changed.process);
            for name in found.start.iter().chain(restarted) {
                prop_assert!(runs.insert(name.clone(), goal[name].clone()).is_none(), "{name} runs");
            }
            let in_place: BTreeSet<_> = found.change.iter().cloned().collect();
            for (name, process) in &mut runs {
                if in_place.contains(&format!("when {name} restarts")) {
                    process.restart = goal[name].restart;
                }
            }
            prop_assert_eq!(runs, goal);
        }

        /// Equal entries are left alone.
        #[test]
        fn only_what_differs_is_touched(running in entries(), wanted in entries()) {
            let (running, wanted) = (whole(running), whole(wanted));
            prop_assert!(Difference::between(&running, &running).is_empty());
            let found = Difference::between(&running, &wanted);
            let (before, after) = (processes(&running), processes(&wanted));
            prop_assert_eq!(found.is_empty(), before == after);
            for name in found.ending() {
                prop_assert_ne!(before.get(name), after.get(name));
            }
        }
    }
}

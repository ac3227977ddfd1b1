//! Tells operators when a broker of the cluster leaves, comes back, or takes no messages.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sealbus_brokers::Member;

use sealbus_control::admin::BrokerMember;

/// The state of the brokers at the latest look.
#[derive(Default)]
pub(super) struct BrokerAlarms(Mutex<BTreeMap<String, Member>>);

impl BrokerAlarms {
    /// Logs the changes.
    pub(super) fn look(&self, members: &[Member]) {
        let mut known = self.0.lock();
        for member in members {
            let broker = &member.name;
            let before = known.get(broker);
            let is = |now: bool, before: Option<bool>| now && before != Some(true);
            let was = |now: bool, before: Option<bool>| !now && before == Some(true);
            let memory = before.map(|before| before.memory_alarm);
            let disk = before.map(|before| before.disk_alarm);
            let running = before.map(|before| before.running);
            if is(member.memory_alarm, memory) {
                tracing::warn!(
                    broker,
                    "short of memory: the brokers take no messages, and all who send wait. Give it memory, or see what waits: sealbus broker status"
                );
            }
            if is(member.disk_alarm, disk) {
                tracing::warn!(
                    broker,
                    "short of disk: the brokers take no messages, and all who send wait. Free disk, or see what waits: sealbus broker status"
                );
            }
            if was(member.memory_alarm, memory) || was(member.disk_alarm, disk) {
                tracing::info!(broker, "has memory and disk again");
            }
            if was(member.running, running) {
                tracing::warn!(
                    broker,
                    "does not run; the others of its cluster go on while they are the majority"
                );
            }
            if is(member.running, running) && before.is_some() {
                tracing::info!(broker, "runs again");
            }
        }
        *known = members
            .iter()
            .map(|member| (member.name.clone(), member.clone()))
            .collect();
    }
}

/// The operator's view of a broker.
pub(super) fn shown(member: Member) -> BrokerMember {
    let alarms = [(member.memory_alarm, "memory"), (member.disk_alarm, "disk")];
    BrokerMember {
        name: member.name,
        running: member.running,
        alarms: alarms
            .into_iter()
            .filter(|(is_on, _)| *is_on)
            .map(|(_, name)| name.to_owned())
            .collect(),
    }
}

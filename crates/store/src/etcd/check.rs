//! The examination of a cluster: whether it answers, how fast it writes, and whether its versions keep the changes that they
//! acknowledge.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::cluster::{CallError, Cluster};
use super::wire::{
    AlarmQuestion, Compare, MembersQuestion, Operation, StatusQuestion, Transaction,
};
use super::{EtcdSettings, Keys};
use crate::StoreError;

/// How many writes are measured.
const WRITES: usize = 100;

/// The facts about one member.
#[derive(Clone, Debug, Serialize)]
pub struct EtcdMember {
    /// The member's address, as the settings have it.
    pub address: String,
    /// Its name in the cluster, if that is known.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The size of its database, in bytes.
    pub size: u64,
    /// Whether it leads the cluster.
    pub leads: bool,
    /// A fault that must be mended before a platform relies on it.
    pub fault: Option<String>,
    /// A fault that should be mended, but does no harm at once.
    pub warning: Option<String>,
}

/// The facts about a cluster.
#[derive(Clone, Debug, Serialize)]
pub struct EtcdCheck {
    /// The members that the settings name.
    pub members: Vec<EtcdMember>,
    /// The addresses of members that the settings do not name.
    pub unnamed: Vec<String>,
    /// The median of the measured times of a write, in microseconds.
    pub write_median: u64,
    /// The 99th percentile of the measured times of a write, in microseconds.
    pub write_p99: u64,
    /// Faults of the cluster as a whole.
    pub faults: Vec<String>,
    /// Faults of the cluster that should be mended, but do no harm at once.
    pub warnings: Vec<String>,
}

/// The judgement on a version.
enum Verdict {
    Good,
    /// The version has known faults. The text names a better one.
    Old(&'static str),
    Refused(&'static str),
}

fn verdict(version: &str) -> Verdict {
    let mut numbers = version
        .split(['.', '-', '+'])
        .map(|number| number.parse::<u32>());
    let mut next = || numbers.next().and_then(Result::ok);
    let (Some(major), Some(minor), Some(patch)) = (next(), next(), next()) else {
        return Verdict::Refused("this version is not known");
    };
    match (major, minor, patch) {
        (3, 5, 0..=2) => Verdict::Refused(
            "versions 3.5.0 to 3.5.2 can lose acknowledged changes when a member is killed: upgrade etcd",
        ),
        (3, 0..=3, _) | (0..=2, _, _) => {
            Verdict::Refused("Sealbus needs etcd 3.4 or later: upgrade etcd")
        }
        (3, 4, 0..=41) => Verdict::Old("3.4.42"),
        (3, 5, 0..=27) => Verdict::Old("3.5.28"),
        (3, 6, 0..=8) => Verdict::Old("3.6.9"),
        _ => Verdict::Good,
    }
}

fn reason(error: CallError) -> String {
    match error {
        CallError::Away(why) => why,
        CallError::Refused(status) => status.message().to_owned(),
    }
}

/// Fails if a member that answers is of a version that can lose acknowledged commits, or none answers.
pub(super) async fn refuse_versions(cluster: &Cluster) -> Result<(), StoreError> {
    let mut failures = Vec::new();
    let asked = cluster.ask_each(&StatusQuestion {}).await;
    let several = asked.len();
    for (member, status) in asked {
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                failures.push(format!("{member}: {}", reason(error)));
                continue;
            }
        };
        match verdict(&status.version) {
            Verdict::Refused(reason) => {
                return Err(StoreError::EtcdVersion {
                    member: member.to_string(),
                    version: status.version,
                    reason,
                });
            }
            Verdict::Old(better) => tracing::warn!(
                warning = "etcd-old",
                %member, version = status.version, better,
                "this version of etcd has known faults: nested transactions bypass the rights of users. Upgrade etcd"
            ),
            Verdict::Good => {}
        }
    }
    for failure in &failures {
        tracing::warn!(warning = "etcd-member-away", "{failure}");
    }
    match failures.len() < several {
        true => Ok(()),
        false => Err(StoreError::Away {
            members: cluster.addresses(),
            detail: failures.join("; "),
        }),
    }
}

impl EtcdCheck {
    /// Examines the cluster. It writes one row below the platform's prefix several times, and then removes it.
    ///
    /// # Errors
    /// [`StoreError::EtcdSettings`]. The answer contains all other faults.
    pub async fn run(settings: &EtcdSettings, platform: &str) -> Result<Self, StoreError> {
        let (members, tls) = settings.read()?;
        let cluster = Cluster::new(members, tls);
        let mut check = Self {
            members: Vec::new(),
            unnamed: Vec::new(),
            write_median: 0,
            write_p99: 0,
            faults: Vec::new(),
            warnings: Vec::new(),
        };
        let known = cluster.ask(&MembersQuestion {}).await;
        let known = known.map(|known| known.members).unwrap_or_default();
        let mut there = Vec::new();
        for (member, asked) in cluster.ask_each(&StatusQuestion {}).await {
            let mut found = EtcdMember {
                address: member.to_string(),
                name: None,
                version: None,
                size: 0,
                leads: false,
                fault: None,
                warning: None,
            };
            match asked {
                Err(error) => found.fault = Some(format!("it does not answer: {}", reason(error))),
                Ok(status) => {
                    match verdict(&status.version) {
                        Verdict::Good => {}
                        Verdict::Old(better) => {
                            found.warning = Some(format!("upgrade it to {better} or later"));
                        }
                        Verdict::Refused(reason) => found.fault = Some(reason.to_owned()),
                    }
                    let id = status.header.unwrap_or_default().member;
                    if status.leader == 0 {
                        found.fault = Some("it knows no leader".to_owned());
                    }
                    found.leads = status.leader == id;
                    found.size = status.size.unsigned_abs();
                    found.version = Some(status.version);
                    let named = known.iter().find(|known| known.id == id);
                    found.name = named.map(|named| named.name.clone());
                    there.push(id);
                }
            }
            check.members.push(found);
        }
        let unnamed = known.iter().filter(|known| !there.contains(&known.id));
        check.unnamed = unnamed.flat_map(|known| known.addresses.clone()).collect();
        if known.len() == 1 {
            let warning = "it has one member: if the machine or the disk of this member fails, the platform's state is lost";
            check.warnings.push(warning.to_owned());
        } else if !known.is_empty() && known.len().is_multiple_of(2) {
            let warning = "it has an even number of members: with one less it bears as many losses, and with one more it bears one more";
            check.warnings.push(warning.to_owned());
        }
        check.ask_for_alarms(&cluster).await;
        check.measure(&cluster, platform).await;
        Ok(check)
    }

    /// Whether a platform may rely on the cluster.
    pub fn is_good(&self) -> bool {
        self.faults.is_empty() && self.members.iter().all(|member| member.fault.is_none())
    }

    async fn ask_for_alarms(&mut self, cluster: &Cluster) {
        match cluster.ask(&AlarmQuestion {}).await {
            Ok(alarms) => {
                for alarm in alarms.alarms {
                    self.faults.push(match alarm.kind {
                        1 => "no space is left: compact and defragment it, then `etcdctl alarm disarm`".to_owned(),
                        2 => format!("the data of the member {:x} is corrupt: replace it", alarm.member),
                        kind => format!("the member {:x} raised the alarm {kind}", alarm.member),
                    });
                }
            }
            // A certificate without the right to read alarms is a good one: it may do no more than it needs.
            Err(CallError::Refused(_)) => {}
            Err(CallError::Away(why)) => self.faults.push(format!("it does not answer: {why}")),
        }
    }

    async fn measure(&mut self, cluster: &Cluster, platform: &str) {
        let keys = Keys {
            prefix: format!("/sealbus/{platform}/"),
            instance: "check".to_owned(),
        };
        let key = keys.commit();
        let mut took: Vec<Duration> = Vec::new();
        for number in 0..=WRITES {
            let change = match number == WRITES {
                true => Operation::delete(key.clone()),
                false => Operation::put(key.clone(), vec![b'x'; 300]),
            };
            let begun = Instant::now();
            let written = cluster
                .ask(&Transaction {
                    compare: Vec::<Compare>::new(),
                    success: vec![change],
                    failure: Vec::new(),
                })
                .await;
            if let Err(error) = written {
                let what = format!("it cannot be written: {}", reason(error));
                return self.faults.push(what);
            }
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        let at = |share: usize| took[(took.len() - 1) * share / 100].as_micros() as u64;
        (self.write_median, self.write_p99) = (at(50), at(99));
        if self.write_p99 > 50_000 {
            let slow = "one write of a hundred takes longer than 50 ms: give etcd a faster disk of its own";
            self.warnings.push(slow.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_lose_changes_are_refused_and_old_ones_are_told() {
        let judged = |version| match verdict(version) {
            Verdict::Good => "good",
            Verdict::Old(_) => "old",
            Verdict::Refused(_) => "refused",
        };
        for refused in [
            "3.5.0",
            "3.5.2",
            "3.3.27",
            "2.3.8",
            "",
            "latest",
            "3.5",
            "3.5.1-rc.0",
        ] {
            assert_eq!(judged(refused), "refused", "{refused}");
        }
        for old in ["3.4.23", "3.4.41", "3.5.3", "3.5.27", "3.6.0"] {
            assert_eq!(judged(old), "old", "{old}");
        }
        for good in [
            "3.4.42",
            "3.5.28",
            "3.6.9",
            "3.7.3",
            "3.7.0-alpha.1",
            "4.0.0",
        ] {
            assert_eq!(judged(good), "good", "{good}");
        }
    }
}

//! The findings of the demo: the file it writes and the tables it prints.

use std::path::Path;

use hdrhistogram::Histogram;
use owo_colors::OwoColorize;
use sealbus_seal::SecurityLevel;
use serde::Serialize;

use super::conversation::{Received, Sent};
use crate::error::CliError;
use crate::output::table;

/// Latencies are distinguished up to a minute. Longer ones count as a minute.
const LONGEST_US: u64 = 60_000_000;

/// The content of `report.json`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// Remote Nodes.
    pub(crate) nodes: u32,
    /// Agents placed on them.
    pub(crate) agents: u32,
    /// Certificates that the CA services issued in all.
    pub(crate) certificates: u64,
    /// The traffic, with one entry for each level.
    pub(crate) levels: Vec<LevelReport>,
    /// The attacks.
    pub(crate) refusals: Vec<RefusedAttack>,
}

/// The traffic at one level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LevelReport {
    /// The level.
    pub(crate) level: SecurityLevel,
    /// Pairs of agents that talked at the same time.
    pub(crate) pairs: u32,
    /// Messages accepted by `send`.
    pub(crate) sent: u32,
    /// Messages that arrived once and in order.
    pub(crate) received: u32,
    /// Half of the messages were faster than this.
    pub(crate) latency_p50_us: u64,
    /// 99 of 100 messages were faster than this.
    pub(crate) latency_p99_us: u64,
    /// Messages received, over the time from the first sent to the last received.
    pub(crate) throughput_per_s: u64,
}

/// One attack and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RefusedAttack {
    /// The attempt.
    pub(crate) attack: String,
    /// Whether the platform refused the attack and none of its messages arrived.
    pub(crate) refused: bool,
    /// The platform's reason.
    pub(crate) reason: String,
}

impl LevelReport {
    /// Adds up the results of the pairs.
    pub(crate) fn new(level: SecurityLevel, pairs: &[(Sent, Received)]) -> Self {
        let mut latencies = histogram();
        let (mut sent, mut received) = (0, 0);
        let (mut began, mut ended) = (u64::MAX, 0);
        for (left, arrived) in pairs {
            sent += left.sent;
            received += arrived.received.saturating_sub(arrived.disordered);
            began = began.min(left.began);
            ended = ended.max(arrived.last);
            for latency in &arrived.latencies_us {
                latencies.saturating_record(*latency);
            }
        }
        let took = ended.saturating_sub(began).max(1);
        let throughput = u128::from(received) * 1_000_000_000 / u128::from(took);
        Self {
            level,
            pairs: u32::try_from(pairs.len()).unwrap_or(u32::MAX),
            sent,
            received,
            latency_p50_us: latencies.value_at_quantile(0.50),
            latency_p99_us: latencies.value_at_quantile(0.99),
            throughput_per_s: u64::try_from(throughput).unwrap_or(u64::MAX),
        }
    }

    /// Whether every message arrived once and in order.
    pub(crate) fn is_complete(&self) -> bool {
        self.sent > 0 && self.received == self.sent
    }
}

#[expect(
    clippy::expect_used,
    reason = "the bounds are constants the histogram accepts"
)]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_US, 3)
        .expect("1 ≤ LONGEST_US / 2, and 3 digits are allowed")
}

impl Report {
    /// Writes the report. A missing directory is made.
    pub(crate) fn write(&self, path: &Path) -> Result<(), CliError> {
        let failed = CliError::file("write", path);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(&failed)?;
        }
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        std::fs::write(path, text + "\n").map_err(&failed)
    }

    /// A sentence for every message lost and every attack that was not refused.
    pub(crate) fn faults(&self) -> Vec<String> {
        let lost = self
            .levels
            .iter()
            .filter(|level| !level.is_complete())
            .map(|level| {
                format!(
                    "level {}: {} of {} messages arrived once and in order",
                    level.level, level.received, level.sent
                )
            });
        let broken = self
            .refusals
            .iter()
            .filter(|refusal| !refusal.refused)
            .map(|refusal| {
                format!(
                    "the attack was not refused: {}: {}",
                    refusal.attack, refusal.reason
                )
            });
        lost.chain(broken).collect()
    }

    /// The table of levels.
    pub(crate) fn levels_table(&self) -> String {
        let mut table = table(&[
            "LEVEL",
            "PAIRS",
            "SENT",
            "RECEIVED",
            "P50 µs",
            "P99 µs",
            "MESSAGES/s",
        ]);
        table.align_numbers();
        for level in &self.levels {
            table.add_row([
                level.level.to_string(),
                level.pairs.to_string(),
                level.sent.to_string(),
                level.received.to_string(),
                level.latency_p50_us.to_string(),
                level.latency_p99_us.to_string(),
                level.throughput_per_s.to_string(),
            ]);
        }
        table.trim_fmt()
    }

    /// The attacks, each with the platform's reason below it.
    pub(crate) fn refusals_text(&self) -> String {
        let mut text = String::from(" ATTACKS");
        for refusal in &self.refusals {
            text += &match refusal.refused {
                true => format!("\n {}  {}", "refused".green(), refusal.attack),
                false => format!("\n {}  {}", "NOT REFUSED".red().bold(), refusal.attack),
            };
            for line in wrapped(&refusal.reason) {
                text += &format!("\n          {}", line.dimmed());
            }
        }
        text
    }
}

/// The longest line of a reason, in characters.
const WIDTH: usize = 90;

/// The text in lines, broken between words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + word.chars().count() < WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(latencies_us: Vec<u64>, disordered: u32) -> (Sent, Received) {
        let received = u32::try_from(latencies_us.len()).unwrap();
        let sent = Sent {
            sent: received,
            began: 1_000_000_000,
        };
        (
            sent,
            Received {
                received,
                disordered,
                last: 2_000_000_000,
                latencies_us,
            },
        )
    }

    #[test]
    fn figures_are_over_all_pairs() {
        let report = LevelReport::new(
            SecurityLevel::Auth,
            &[pair((1..=99).collect(), 0), pair(vec![900; 1], 0)],
        );
        assert!(report.is_complete());
        assert_eq!((report.pairs, report.sent, report.received), (2, 100, 100));
        assert_eq!((report.latency_p50_us, report.latency_p99_us), (50, 99));
        assert_eq!(report.throughput_per_s, 100);
    }

    #[test]
    fn a_doubled_message_a_lost_one_and_an_attack_are_faults() {
        let doubled = LevelReport::new(SecurityLevel::None, &[pair(vec![1, 2], 1)]);
        let mut one_lost = pair(vec![1], 0);
        one_lost.0.sent = 2;
        let lost = LevelReport::new(SecurityLevel::Tls, &[one_lost]);
        let nothing = LevelReport::new(SecurityLevel::Auth, &[]);
        let attack = RefusedAttack {
            attack: "forgery".into(),
            refused: false,
            reason: "it arrived".into(),
        };
        let report = Report {
            levels: vec![doubled, lost, nothing],
            refusals: vec![attack],
            ..Report::default()
        };
        assert_eq!(report.faults().len(), 4);
    }

    #[test]
    fn the_file_has_the_promised_members() {
        let level = LevelReport::new(SecurityLevel::Auth, &[pair(vec![5], 0)]);
        let refusal = RefusedAttack {
            attack: "a".into(),
            refused: true,
            reason: "r".into(),
        };
        let report = Report {
            nodes: 2,
            agents: 20,
            certificates: 23,
            levels: vec![level],
            refusals: vec![refusal],
        };
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "nodes": 2, "agents": 20, "certificates": 23,
                "levels": [{
                    "level": "auth", "pairs": 1, "sent": 1, "received": 1,
                    "latency_p50_us": 5, "latency_p99_us": 5, "throughput_per_s": 1
                }],
                "refusals": [{"attack": "a", "refused": true, "reason": "r"}]
            })
        );
    }
}

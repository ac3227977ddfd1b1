//! `ca monitor`: the certificates that were issued in an agent's name.

use std::time::Duration;

use sealbus_seal::{Identity, Timestamp};
use sealbus_transparency::{Audit, Entry, IssuanceRecord};

use super::{Log, believed, witness_keys, wrong};
use crate::arguments::{CaMonitor, General};
use crate::commands::instant;
use crate::error::CliError;
use crate::output::{self, Output};

/// How often `ca monitor --follow` looks for a new checkpoint.
const FOLLOW: Duration = Duration::from_secs(2);

/// `sealbus ca monitor AGENT`
pub(crate) async fn monitor(
    general: &General,
    monitor: &CaMonitor,
    output: Output,
) -> Result<(), CliError> {
    let logs = Log::open_all(general, &monitor.source).await?;
    let keys = witness_keys(&monitor.witness)?;
    let local = monitor.agent.split('@').next().unwrap_or_default();
    let mut audits = Vec::new();
    for mut log in logs {
        let agent = Identity::agent(log.trust.platform(), local).map_err(wrong)?;
        let (note, checkpoint) = log.checkpoint().await?;
        log.cosignatures(&note, &keys, monitor.quorum).await?;
        audits.push((log, agent, Audit::new(checkpoint)));
    }
    loop {
        for (log, agent, audit) in &mut audits {
            log.drive(audit, |entry, record| {
                if record.identity == *agent {
                    output.line(&record, || issued(&entry, &record));
                }
                Ok(())
            })
            .await?;
        }
        if let Some((log, ..)) = audits.first() {
            believed(&log.alarms)?;
        }
        if !monitor.follow {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(FOLLOW) => {}
            () = output::unread() => return Ok(()),
        }
        for (log, _, audit) in &mut audits {
            let (note, checkpoint) = log.checkpoint().await?;
            log.cosignatures(&note, &keys, monitor.quorum).await?;
            audit.go_on(checkpoint).map_err(wrong)?;
        }
    }
}

fn issued(entry: &Entry, record: &IssuanceRecord) -> String {
    let instant = |at: Timestamp| instant(at.as_unix_seconds() * 1000);
    let node = match &record.on_behalf_of {
        Some(node) => node.to_string(),
        None => "the operator".to_owned(),
    };
    let text = format!(
        "{}  entry {}  serial {}  until {}  for {node}  SHA-256 {}",
        instant(record.issued_at),
        entry.index,
        record.serial,
        instant(record.not_after),
        record.certificate
    );
    match &record.long_lived_identity {
        Some(identity) => format!("{text}  long-lived identity {identity}"),
        None => text,
    }
}

//! `channel last`: the last event of each key.

use sealbus::channel::{LastError, QosOverride};
use sealbus_control::text::printable;

use super::super::member::Member;
use super::{Seen, channel};
use crate::arguments::ChannelLast;
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::Output;

/// `sealbus channel last CHANNEL`
pub(crate) async fn last(
    connection: &mut Connection,
    last: &ChannelLast,
    output: Output,
) -> Result<(), CliError> {
    let member = Member::join(connection, "last").await?;
    member
        .during(async |member| {
            let channel = channel(member, &last.channel, &QosOverride::default())?;
            let found = channel.last(&last.per, &last.filter, last.timeout.0).await;
            let found = found.map_err(|error| match error {
                LastError::NotPermitted { .. } => CliError::Refused {
                    message: error.to_string(),
                    advice: Some("the manifest's [permission] says who may".to_owned()),
                },
                LastError::Unavailable(_) | LastError::Filter(_) => CliError::Usage {
                    message: error.to_string(),
                    help: "see `sealbus channel list` and `sealbus channel last --help`".to_owned(),
                },
                error => CliError::Failed {
                    message: error.to_string(),
                    help: None,
                },
            })?;
            for (node, problem) in &found.missing {
                let problem = printable(problem);
                anstream::eprintln!("warning: events that {node} keeps may be missing: {problem}");
            }
            for event in &found.events {
                let seen = Seen::new(event);
                output.line(&seen, || seen.line());
            }
            if found.events.is_empty() && !output.is_json() {
                anstream::println!("{} keeps nothing with the key {}", channel.path(), last.per);
            }
            Ok(())
        })
        .await
}

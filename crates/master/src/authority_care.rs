//! Renews the CA's own certificate in time, and warns operators if it cannot.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sealbus_ca::{Ending, Outlook};
use sealbus_control::UnixMillis;
use sealbus_control::clock::timestamp;

use super::{Authorities, Desk, DeskHandle};

/// How often the end of the certificate is looked at.
const LOOK: Duration = Duration::from_secs(60);
/// How often the log warns operators of the end.
const WARNING_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Looks after the certificate until the task is ended. The authorities are in `directory`.
pub(super) async fn run(desk: DeskHandle, directory: PathBuf) {
    let mut warned: Option<(Outlook, Instant)> = None;
    loop {
        let directory = directory.clone();
        let looked = desk.run(move |desk, now| Ok(look(desk, &directory, now)));
        // Without a desk the Master is ending.
        if let Ok(ending) = looked.await
            && warned
                .is_none_or(|(outlook, at)| outlook != ending.0 || at.elapsed() > WARNING_EVERY)
        {
            warned = Some((ending.0, Instant::now()));
            let warning = Outlook::WARNING;
            match ending.0 {
                Outlook::Good => {}
                Outlook::EndsSoon => tracing::warn!(warning, "{ending}"),
                Outlook::EndsVerySoon | Outlook::Ended => tracing::error!(warning, "{ending}"),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Renews the certificate if it ends soon and the root's key is there. Returns its end.
fn look(desk: &mut Desk, directory: &Path, now: UnixMillis) -> Ending {
    let now = timestamp(now);
    // The files are small, and read only when the certificate ends soon.
    match Authorities::renew(directory, desk.ca.authority(), now) {
        Ok(None) => {}
        Ok(Some(renewed)) => match desk.ca.sign_as(renewed, now) {
            Ok(()) => {
                let ending = desk.ca.outlook(now);
                tracing::info!(target: "sealbus::certification", ends = %ending.1, "the CA's own certificate was renewed");
            }
            Err(error) => tracing::error!(%error, "the renewed CA cannot sign its deny list"),
        },
        Err(error) => tracing::error!(%error, "the CA's own certificate could not be renewed"),
    }
    desk.ca.outlook(now)
}

#[cfg(test)]
mod tests;

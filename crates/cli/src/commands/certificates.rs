//! `ca log`, `ca list`, `ca revoke`: the work of the CA service.

use std::time::Duration;

use sealbus_control::admin::{
    AuthorityStatus, CertificateStatus, CertificationEvent, CertificationEvents, Page, ask,
};

use super::{cell, instant, is_agent, now};
use crate::arguments::{CaList, CaLog, CaRevoke};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{self, Output, table};

/// Events requested at a time.
const PAGE: u32 = 500;
/// How often `ca log --follow` asks for more.
const FOLLOW: Duration = Duration::from_millis(200);

/// `sealbus ca log`: every event from the first on, page by page.
pub(crate) async fn log(
    connection: &mut Connection,
    log: &CaLog,
    output: Output,
) -> Result<(), CliError> {
    let mut from = 0;
    let mut wanted = Vec::new();
    loop {
        let page = ask::CertificationEvents { from, limit: PAGE };
        let CertificationEvents { events, next } = connection.ask(page).await?;
        let caught_up = next == from;
        from = next;
        wanted.extend(
            events
                .into_iter()
                .filter(|event| concerns(event, log.agent.as_deref())),
        );
        if log.follow {
            wanted
                .drain(..)
                .for_each(|event| output.line(&event, || line(&event)));
        }
        if caught_up {
            if !log.follow {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(FOLLOW) => {}
                () = output::unread() => return Ok(()),
            }
        }
    }
    let first = log
        .lines
        .map_or(0, |lines| wanted.len().saturating_sub(lines as usize));
    let wanted = &wanted[first..];
    output.show(&wanted, || {
        wanted.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

fn concerns(event: &CertificationEvent, agent: Option<&str>) -> bool {
    agent.is_none_or(|agent| is_agent(&event.subject, agent))
}

fn line(event: &CertificationEvent) -> String {
    let step = if event.step == 0 {
        "     -".to_owned()
    } else {
        format!("step {}", event.step)
    };
    format!(
        "{}  {step}  {:<24}  {}",
        instant(event.at),
        event.subject,
        event.what
    )
}

/// `sealbus ca list`
pub(crate) async fn list(
    connection: &mut Connection,
    list: &CaList,
    output: Output,
) -> Result<(), CliError> {
    let all = ask::Certificates {
        all: !list.valid,
        of: None,
        page: Page::default(),
    };
    let certificates = connection.list(all).await?;
    output.show(&certificates, || shown(&certificates));
    Ok(())
}

pub(super) fn shown(certificates: &[CertificateStatus]) -> String {
    let mut table = table(&[
        "LOG",
        "INDEX",
        "IDENTITY",
        "ADDRESS",
        "NODE",
        "VALID UNTIL",
        "STATE",
        "SERIAL",
    ]);
    let now = now();
    for certificate in certificates {
        let state = match &certificate.revoked {
            Some(reason) => format!("revoked: {reason}"),
            None if certificate.not_after < now => "expired".to_owned(),
            None => "valid".to_owned(),
        };
        table.add_row([
            certificate.log.clone(),
            certificate.index.to_string(),
            certificate.identity.clone(),
            certificate.address.clone(),
            cell(certificate.node.as_ref()),
            instant(certificate.not_after),
            state,
            certificate.serial.clone(),
        ]);
    }
    table.trim_fmt()
}

/// `sealbus ca revoke NAME`, `sealbus ca revoke --authority CA`
pub(crate) async fn revoke(
    connection: &mut Connection,
    revoke: &CaRevoke,
    output: Output,
) -> Result<(), CliError> {
    let reason = revoke.reason.clone();
    if let Some(name) = revoke.authority.clone() {
        let request = ask::RevokeAuthority { name, reason };
        let revoked = connection.ask(request).await?;
        output.show(&revoked, || {
            let said = |authority: &AuthorityStatus| {
                let (name, living) = (&authority.name, authority.living);
                format!("revoked {name}; the holders of its {living} valid certificates get others at once")
            };
            revoked.iter().map(said).collect::<Vec<_>>().join("\n")
        });
        return Ok(());
    }
    let what = revoke.name.clone().unwrap_or_default();
    let request = ask::Revoke {
        what: what.clone(),
        reason,
    };
    let revoked = connection.ask(request).await?;
    match revoked.is_stored {
        true => output.show(&revoked.certificates, || match revoked.certificates.len() {
            0 => format!("revoked {what}, with all that CAs certified of it until now"),
            count => format!("revoked {count} of {what}"),
        }),
        false => output.show(&revoked, || {
            format!(
                "revoked {what}: it is in force, and not yet stored, at all nodes that do not hear the Master that leads; this Master's machine keeps it until it is stored"
            )
        }),
    }
    Ok(())
}

/// `sealbus ca authorities`
pub(crate) async fn authorities(
    connection: &mut Connection,
    output: Output,
) -> Result<(), CliError> {
    let authorities = connection.ask(ask::Authorities).await?;
    output.show(&authorities, || {
        let mut table = table(&["NAME", "VALID UNTIL", "CERTIFICATES", "STATE", "SERIAL"]);
        for authority in &authorities {
            let state = match &authority.revoked {
                Some(reason) => format!("revoked: {reason}"),
                None if authority.certifies => "certifies".to_owned(),
                None if authority.not_after < now() => "expired".to_owned(),
                None => "stands by".to_owned(),
            };
            table.add_row([
                authority.name.clone(),
                instant(authority.not_after),
                authority.living.to_string(),
                state,
                authority.serial.clone(),
            ]);
        }
        table.trim_fmt()
    });
    Ok(())
}

/// `sealbus ca root`
pub(crate) async fn root(connection: &mut Connection, output: Output) -> Result<(), CliError> {
    let certificate = connection.ask(ask::Root).await?;
    output.show(&certificate, || certificate.trim_end().to_owned());
    Ok(())
}

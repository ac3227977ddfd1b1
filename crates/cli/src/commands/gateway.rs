//! `gateway`: the rights of other platforms here, and their traffic.

use std::collections::BTreeMap;
use std::path::Path;

use sealbus::Platform;
use sealbus_control::Blob;
use sealbus_control::admin::{CertifiedCaller, GatewayState, ask};
use sealbus_control::mcp::McpStatus;
use sealbus_control::neighbours::NeighboursStatus;
use sealbus_control::node::GatewayStatus;
use sealbus_gateways::{GatewayConfig, GatewayPolicy, GatewayRule};
use sealbus_manifest::GATEWAY_VARIABLE;
use sealbus_manifest::callers::CallersEntry;
use sealbus_manifest::neighbours::NeighbourEntry;
use sealbus_platform::gateway::Gateway;
use sealbus_seal::{Name, SigningRequest, certificate_pem};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::arguments::{
    DfFederate, GatewayAllow, GatewayCertificate, GatewayDeny, GatewayKey, General, Mcp,
};
use crate::commands::agents::ticket_of;
use crate::connection::Connection;
use crate::error::CliError;
use crate::input;
use crate::output::{Output, table};

/// Most bytes of a signing request.
const LONGEST_REQUEST: u64 = 64 << 10;

/// `sealbus gateway list`
pub(crate) async fn list(connection: &mut Connection, output: Output) -> Result<(), CliError> {
    let answer = connection.ask(ask::Gateway).await?;
    show(answer, output)
}

/// `sealbus gateway allow`
pub(crate) async fn allow(
    connection: &mut Connection,
    allow: &GatewayAllow,
    output: Output,
) -> Result<(), CliError> {
    let everybody = || vec!["*".to_owned()];
    let rule = GatewayRule {
        platform: allow.platform.clone(),
        to: if allow.to.is_empty() {
            everybody()
        } else {
            allow.to.clone()
        },
        from: allow.from.clone(),
        certificate: allow.certificate.clone(),
        register: allow.register,
    };
    let answer = connection.ask(ask::GatewayAllow { rule }).await?;
    show(answer, output)
}

/// `sealbus gateway deny`
pub(crate) async fn deny(
    connection: &mut Connection,
    deny: &GatewayDeny,
    output: Output,
) -> Result<(), CliError> {
    let platform = deny.platform.clone();
    let answer = connection.ask(ask::GatewayDeny { platform }).await?;
    show(answer, output)
}

/// `sealbus gateway counters`
pub(crate) async fn counters(connection: &mut Connection, output: Output) -> Result<(), CliError> {
    let GatewayState {
        status,
        mcp,
        a2a,
        neighbours,
        ..
    } = connection.ask(ask::Gateway).await?;
    let callers = [("mcp", &mcp), ("a2a", &a2a)];
    let callers: Vec<_> = callers
        .into_iter()
        .filter_map(|(name, status)| Some((name, status.as_ref()?)))
        .collect();
    if status.is_none() && callers.is_empty() && neighbours.is_none() {
        return Err(not_running());
    }
    let mut told = match &status {
        Some(status) => json!(status.counters),
        None => json!({}),
    };
    for (name, status) in &callers {
        told[*name] = json!({ "callers": status.callers, "refused": status.refused });
    }
    if let Some(status) = &neighbours {
        told["neighbours"] = json!(status.neighbours);
    }
    output.show(&told, || {
        let fipa = status.as_ref().map(counts);
        let callers = callers.iter().map(|(_, status)| calls(status));
        let neighbours = neighbours.as_ref().map(table_of_neighbours);
        let all: Vec<String> = fipa.into_iter().chain(callers).chain(neighbours).collect();
        all.join("\n")
    });
    Ok(())
}

/// `sealbus df federate`
pub(crate) async fn federate(
    connection: &mut Connection,
    federate: &DfFederate,
    output: Output,
) -> Result<(), CliError> {
    let request = ask::Federate {
        df: federate.df.clone(),
        addresses: federate.addresses.clone(),
    };
    connection.ask(request).await?;
    output.show(&json!({ "asked": federate.df }), || {
        format!(
            "{} is asked to search here too; the Master's log tells its answer",
            federate.df
        )
    });
    Ok(())
}

fn show(gateway: GatewayState, output: Output) -> Result<(), CliError> {
    let GatewayState {
        status,
        rules,
        mcp,
        a2a,
        neighbours,
    } = gateway;
    let told = json!({
        "gateway": status, "rules": rules, "mcp": mcp, "a2a": a2a, "neighbours": neighbours,
    });
    output.show(&told, || {
        let mut text = match &status {
            Some(status) => format!(
                "other platforms reach this one at {}\n{}\n",
                status.addresses.join(" "),
                counts(status)
            ),
            None => "the gateway does not run, or does not answer; it starts where the manifest has [gateway.http]\n".to_owned(),
        };
        let manifest = status.map(|status| status.own).unwrap_or_default();
        text.push_str(&table_of(&manifest, &rules));
        if let Some(mcp) = &mcp {
            let (address, tools) = (&mcp.address, mcp.tools);
            text.push_str(&format!(
                "\n\nhosts of language models reach {tools} tools of agents at {address}\n{}",
                calls(mcp)
            ));
        }
        if let Some(a2a) = &a2a {
            let (address, agents) = (&a2a.address, a2a.tools);
            text.push_str(&format!(
                "\n\nA2A clients reach {agents} agents at {address}\n{}",
                calls(a2a)
            ));
        }
        if let Some(status) = &neighbours {
            text.push_str("\n\nagents of others:\n");
            text.push_str(&table_of_neighbours(status));
        }
        text
    });
    Ok(())
}

/// The refusals by reason, in words.
fn refusals(refused: &BTreeMap<String, u64>) -> String {
    if refused.is_empty() {
        return "none".to_owned();
    }
    let each = refused.iter().map(|(why, count)| format!("{count} {why}"));
    each.collect::<Vec<_>>().join(", ")
}

fn calls(mcp: &McpStatus) -> String {
    let each = mcp.callers.iter().map(|caller| {
        let key = if caller.anonymous { ", no key" } else { "" };
        format!(
            "{}: {} requests, {} open, {} sessions{key}\n",
            caller.agent, caller.requests, caller.open, caller.sessions
        )
    });
    format!(
        "{}refused {}",
        each.collect::<String>(),
        refusals(&mcp.refused)
    )
}

fn counts(status: &GatewayStatus) -> String {
    let counters = &status.counters;
    format!(
        "received {}, again {}, sent {}, tried again {}, failed {}, refused {}",
        counters.received,
        counters.repeated,
        counters.sent,
        counters.retried,
        counters.failed,
        refusals(&counters.refused)
    )
}

fn table_of(manifest: &GatewayPolicy, operators: &GatewayPolicy) -> String {
    if manifest.rules.is_empty() && operators.rules.is_empty() {
        return "no platform may write to agents here: sealbus gateway allow PLATFORM".to_owned();
    }
    let mut table = table(&[
        "PLATFORM",
        "MAY WRITE TO",
        "FROM",
        "CERTIFICATE",
        "DF",
        "MADE BY",
    ]);
    let all = |rules, by| std::iter::zip(rules, std::iter::repeat(by));
    for (rule, by) in all(&manifest.rules, "manifest").chain(all(&operators.rules, "operator")) {
        table.add_row([
            rule.platform.clone(),
            rule.to.join(" "),
            if rule.from.is_empty() {
                "anywhere".to_owned()
            } else {
                rule.from.join(" ")
            },
            rule.certificate.clone().unwrap_or_else(|| "-".to_owned()),
            if rule.register { "register" } else { "-" }.to_owned(),
            by.to_owned(),
        ]);
    }
    table.trim_fmt()
}

fn table_of_neighbours(status: &NeighboursStatus) -> String {
    let mut table = table(&["AGENT", "URL", "CARD", "PROOF", "ASKED", "OPEN", "FAILED"]);
    for neighbour in &status.neighbours {
        let unknown = || format!("not asked: {}", neighbour.trouble.as_deref().unwrap_or("-"));
        let known = neighbour.trouble.is_none();
        table.add_row([
            neighbour.agent.clone(),
            neighbour.url.clone(),
            if known {
                neighbour.card.clone()
            } else {
                unknown()
            },
            if known {
                neighbour.proof.clone()
            } else {
                "-".to_owned()
            },
            neighbour.asked.to_string(),
            neighbour.open.to_string(),
            neighbour.failed.to_string(),
        ]);
    }
    table.trim_fmt()
}

fn not_running() -> CliError {
    CliError::Failed {
        message: "the gateway does not run, or does not answer".to_owned(),
        help: Some(
            "it starts where the manifest has [gateway.http], [gateway.mcp], [gateway.a2a] or [gateway.neighbours]; see `sealbus logs gateway`"
                .to_owned(),
        ),
    }
}

/// `sealbus gateway key`
pub(crate) fn key(asked: &GatewayKey, output: Output) -> Result<(), CliError> {
    let name = Name::new("agent", &asked.caller).map_err(|error| CliError::Failed {
        message: error.to_string(),
        help: None,
    })?;
    let (key, hash) = sealbus_callers::new_key().map_err(|error| CliError::Failed {
        message: error.to_string(),
        help: None,
    })?;
    let name = name.as_str();
    let section = if asked.a2a { "a2a" } else { "mcp" };
    output.show(
        &json!({ "caller": name, "key": key, "hash": hash.to_string() }),
        || {
            format!(
                "the key, which is shown this once: {key}\n\nfor the manifest:\n\n\
                 [[gateway.{section}.caller]]\nname = \"{name}\"\nkey = \"{hash}\""
            )
        },
    );
    Ok(())
}

/// `sealbus gateway certificate`
pub(crate) async fn certificate(
    connection: &mut Connection,
    asked: &GatewayCertificate,
    output: Output,
) -> Result<(), CliError> {
    let text = input::read(&asked.request, LONGEST_REQUEST)?;
    let request = SigningRequest::from_pem(&text).map_err(|error| CliError::Failed {
        message: format!("{}: {error}", asked.request.display()),
        help: Some(
            "make a key and a request: openssl req -new -newkey ed25519 -nodes -keyout NAME.key -subj / -out NAME.csr"
                .to_owned(),
        ),
    })?;
    let request = ask::CertifyCaller {
        name: asked.caller.clone(),
        request: Blob(request),
        lifetime: asked.lifetime.0.as_secs().max(1),
    };
    let CertifiedCaller { chain, expires } = connection.ask(request).await?;
    let chain: String = chain.iter().map(|der| certificate_pem(&der.0)).collect();
    output.show(
        &json!({ "caller": asked.caller, "certificate": chain, "expires": expires }),
        || chain.trim_end().to_owned(),
    );
    Ok(())
}

/// The configuration that the node has given this process, and the process's place on the platform.
async fn given<C: DeserializeOwned>(section: &str) -> Result<(C, Platform), CliError> {
    sealbus::log_to_stderr();
    let by_hand = || Some(format!("a node starts it: add [{section}] to the manifest"));
    let failed = |message: String| CliError::Failed {
        message,
        help: by_hand(),
    };
    let text = std::env::var(GATEWAY_VARIABLE)
        .map_err(|_| failed(format!("{GATEWAY_VARIABLE} is not set")))?;
    let config = serde_json::from_str(&text)
        .map_err(|error| failed(format!("{GATEWAY_VARIABLE} cannot be read: {error}")))?;
    let platform = Platform::join().await;
    Ok((config, platform.map_err(|error| failed(error.to_string()))?))
}

/// `sealbus gateway run`: the process started by a node.
pub(crate) async fn run() -> Result<(), CliError> {
    let (config, platform) = given::<GatewayConfig>("gateway.http").await?;
    let gateway = Gateway::open(platform.process(), config)
        .await
        .map_err(|error| CliError::Failed {
            message: error.to_string(),
            help: Some("change [gateway.http] in the manifest".to_owned()),
        })?;
    tracing::info!(addresses = ?gateway.addresses(), "other platforms reach this one here");
    platform.process().stopping().await;
    gateway.close().await;
    platform.close().await;
    Ok(())
}

/// `sealbus gateway mcp`: the process started by a node.
pub(crate) async fn mcp() -> Result<(), CliError> {
    let (entry, platform) = given::<CallersEntry>("gateway.mcp").await?;
    let served = sealbus_mcp::serve(&platform, entry).await;
    platform.close().await;
    served.map_err(|error| CliError::Failed {
        message: error.to_string(),
        help: Some("change [gateway.mcp] in the manifest".to_owned()),
    })
}

/// `sealbus gateway a2a`: the process started by a node.
pub(crate) async fn a2a() -> Result<(), CliError> {
    let (entry, platform) = given::<CallersEntry>("gateway.a2a").await?;
    // The folder that the node keeps for this program.
    let folder = std::env::var_os("SEALBUS_FOLDER").map(|it| Path::new(&it).join("tasks"));
    let served = sealbus_a2a::serve(&platform, entry, folder).await;
    platform.close().await;
    served.map_err(|error| CliError::Failed {
        message: error.to_string(),
        help: Some("change [gateway.a2a] in the manifest".to_owned()),
    })
}

/// `sealbus gateway neighbours`: the process started by a node.
pub(crate) async fn neighbours() -> Result<(), CliError> {
    let section = "gateway.neighbours";
    let (entries, platform) = given::<BTreeMap<String, NeighbourEntry>>(section).await?;
    let served = sealbus_a2a::neighbour::serve(&platform, entries).await;
    platform.close().await;
    served.map_err(|error| CliError::Failed {
        message: error.to_string(),
        help: Some("change [gateway.neighbours] in the manifest".to_owned()),
    })
}

/// How long the ticket of a host that starts now is valid, in seconds.
const TICKET_LIFE: u64 = 60;

/// `sealbus mcp`
pub(crate) async fn stdio(general: &General, mcp: &Mcp) -> Result<(), CliError> {
    sealbus::log_to_stderr();
    let ticket = match (&mcp.ticket, &mcp.agent) {
        (Some(ticket), _) => ticket.clone(),
        (None, agent) => {
            // A host that starts the command again does not wait until the former one has left.
            let request = ask::Ticket {
                agent: agent.clone().unwrap_or_default(),
                others: Vec::new(),
                node: None,
                lifetime: TICKET_LIFE,
            };
            let mut connection = Connection::open(general).await?;
            ticket_of(&mut connection, request, mcp.timeout.0)
                .await?
                .token
        }
    };
    let failed = |message: String| CliError::Failed {
        message,
        help: None,
    };
    let platform = Platform::with_ticket(&ticket).await;
    let platform = platform.map_err(|error| failed(error.to_string()))?;
    let served = sealbus_mcp::serve_stdio(&platform).await;
    platform.close().await;
    served.map_err(|error| failed(error.to_string()))
}

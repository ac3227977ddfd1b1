//! `gateway`: the rights of other platforms here, and their traffic.

use sealbus::Platform;
use sealbus_control::admin::{GatewayState, ask};
use sealbus_control::node::GatewayStatus;
use sealbus_gateways::http::{GatewayPolicy, GatewayRule, HttpGatewayConfig};
use sealbus_manifest::GATEWAY_VARIABLE;
use sealbus_platform::gateway::Gateway;
use serde_json::json;

use crate::arguments::{DfFederate, GatewayAllow, GatewayDeny};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{Output, table};

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
    let gateway = connection.ask(ask::Gateway).await?;
    let status = gateway.status.ok_or_else(not_running)?;
    output.show(&status.counters, || counts(&status));
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
    let GatewayState { status, rules } = gateway;
    output.show(&json!({ "gateway": status, "rules": rules }), || {
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
        text
    });
    Ok(())
}

fn counts(status: &GatewayStatus) -> String {
    let counters = &status.counters;
    let refused = counters.refused.iter();
    let refused: Vec<String> = refused
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    format!(
        "received {}, again {}, sent {}, tried again {}, failed {}, refused {}",
        counters.received,
        counters.repeated,
        counters.sent,
        counters.retried,
        counters.failed,
        if refused.is_empty() {
            "none".to_owned()
        } else {
            refused.join(", ")
        }
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

fn not_running() -> CliError {
    CliError::Failed {
        message: "the gateway does not run, or does not answer".to_owned(),
        help: Some(
            "it starts where the manifest has [gateway.http]; see `sealbus logs gateway`"
                .to_owned(),
        ),
    }
}

/// `sealbus gateway run`: the process started by a node.
pub(crate) async fn run() -> Result<(), CliError> {
    sealbus::log_to_stderr();
    let failed = |message: String, help: &str| CliError::Failed {
        message,
        help: Some(help.to_owned()),
    };
    let by_hand = "the gateway is started by a node: add [gateway.http] to the manifest";
    let text = std::env::var(GATEWAY_VARIABLE)
        .map_err(|_| failed(format!("{GATEWAY_VARIABLE} is not set"), by_hand))?;
    let config: HttpGatewayConfig = serde_json::from_str(&text).map_err(|error| {
        failed(
            format!("{GATEWAY_VARIABLE} cannot be read: {error}"),
            by_hand,
        )
    })?;
    let platform = Platform::join()
        .await
        .map_err(|error| failed(error.to_string(), by_hand))?;
    let gateway = Gateway::open(platform.process(), config)
        .await
        .map_err(|error| failed(error.to_string(), "change [gateway.http] in the manifest"))?;
    tracing::info!(addresses = ?gateway.addresses(), "other platforms reach this one here");
    platform.process().stopping().await;
    gateway.close().await;
    platform.close().await;
    Ok(())
}

//! `node`: a Remote Node in this process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealbus_enrolment::EnrolmentError;
use sealbus_launcher::Probed;
use sealbus_manifest::isolation::Isolation;
use sealbus_node::{
    ControlGroups, IsolationConfig, Node, NodeConfig, NodeError, masters_of, try_isolation,
};
use sealbus_seal::token::{Purpose, Token, TokenError};
use serde_json::json;

use super::content;
use super::run::{EndSignals, GRACE, log};
use crate::arguments::{General, IsolationArguments, Node as NodeArguments};
use crate::connection;
use crate::error::CliError;
use crate::output::Output;

/// How often a node that joined before looks for a way to the Master.
const LOOK: Duration = Duration::from_millis(500);

/// `sealbus node`
pub(crate) async fn node(
    general: &General,
    node: &NodeArguments,
    output: Output,
) -> Result<(), CliError> {
    if node.check {
        return check(node, output).await;
    }
    log(output);
    let mut signals = EndSignals::catch()?;
    let token = token(node)?;
    let directory = match (&general.state, &token, &general.platform) {
        (Some(_), ..) => connection::directory_of(general, "")?,
        (None, Some(token), _) => {
            connection::directory_of(general, &node_directory(token.platform().as_str(), node))?
        }
        (None, None, Some(platform)) => {
            connection::directory_of(general, &node_directory(platform, node))?
        }
        (None, None, None) => {
            return Err(CliError::Usage {
                message: "there is nothing to say which platform to join".to_owned(),
                help: "give the one-time token that `sealbus token` prints, with --token"
                    .to_owned(),
            });
        }
    };
    let address = tokio::select! {
        address = own_address(node, token.as_ref(), &directory) => address?,
        () = signals.told() => return Ok(()),
    };
    let config = NodeConfig {
        directory,
        token,
        join: node.join.clone(),
        name: node.name.clone(),
        address,
        isolation: isolation(&node.isolation, &node.hide)?,
        metrics: node.metrics,
    };
    let running = tokio::select! {
        running = Node::start(config) => running?,
        () = signals.told() => return Ok(()),
    };
    output.line(
        &json!({ "node": running.name(), "address": address }),
        || {
            format!(
                "{} is there, at {address}; Ctrl-C ends it and its agents",
                running.name()
            )
        },
    );
    tokio::select! {
        () = running.left() => {
            return Err(CliError::Refused {
                message: format!("the platform ended the node {}", running.name()),
                advice: Some("see why with `sealbus nodes` and `sealbus ca log` at the Master".to_owned()),
            });
        }
        () = signals.told() => {}
    }
    running.leave(GRACE);
    running.left().await;
    Ok(())
}

pub(super) fn isolation(
    isolation: &IsolationArguments,
    hidden: &[PathBuf],
) -> Result<IsolationConfig, CliError> {
    let launcher = std::env::current_exe().map_err(CliError::file("find", "this program"))?;
    let uids = isolation.uids;
    Ok(IsolationConfig {
        mode: isolation.isolation,
        launcher,
        hidden: hidden.to_vec(),
        slots: uids.first..=uids.last,
    })
}

/// Tries which isolation works on this machine, in a temporary folder.
pub(super) async fn probe(config: &IsolationConfig) -> Result<Vec<Probed>, CliError> {
    // Another user could make a folder whose name is known beforehand, and replace its contents.
    let made = tempfile::Builder::new().prefix("sealbus-check-").tempdir();
    let directory = made.map_err(CliError::file("use", std::env::temp_dir()))?;
    let probed = try_isolation(config, directory.path()).await;
    probed.map_err(CliError::file("use", directory.path()))
}

/// The strongest isolation of a node's programs. With `only`, the node may give no other one. `None` if it can give
/// none.
pub(super) fn strongest(probed: &[Probed], only: Option<Isolation>) -> Option<Isolation> {
    let mut works = probed.iter().filter(|(_, outcome)| outcome.is_ok());
    match only {
        Some(Isolation::None) => Some(Isolation::None),
        Some(only) => works.find(|(mode, _)| *mode == only).map(|_| only),
        None => works.next().map(|(mode, _)| *mode),
    }
}

/// The way to controllers that a node lacks.
pub(super) const CONTROLLERS: &str = "under systemd, `Delegate=cpu memory pids` and `DelegateSubgroup=node` in its unit give a node all controllers, unless the \
     machine mounts control groups of version 1; without them, `cpu` in the manifest is refused, `processes` \
     too but in the mode uid, and other limits are weaker";

/// Tries which control groups the programs of a node have here.
pub(super) fn control_groups() -> io::Result<ControlGroups> {
    ControlGroups::open(&std::env::temp_dir())
}

/// The control groups, in words, and whether they have all controllers.
pub(super) fn told(groups: &io::Result<ControlGroups>) -> (String, bool) {
    match groups {
        Ok(groups) => {
            let (folder, controllers) = (groups.folder().display(), groups.controllers());
            let named = match controllers {
                [] => "no controllers".to_owned(),
                some => some.join(", "),
            };
            let text = format!("{named}, in {folder}");
            (text, controllers.len() == 3)
        }
        Err(error) => (format!("none ({error})"), false),
    }
}

/// `sealbus node --check`
async fn check(node: &NodeArguments, output: Output) -> Result<(), CliError> {
    let probed = probe(&isolation(&node.isolation, &node.hide)?).await?;
    let groups = control_groups();
    let controllers = groups.as_ref().ok().map(ControlGroups::controllers);
    let modes: Vec<_> = probed
        .iter()
        .map(|(mode, outcome)| {
            let problem = outcome.as_ref().err().map(ToString::to_string);
            json!({
                "isolation": mode, "works": problem.is_none(), "problem": problem, "controllers": controllers,
            })
        })
        .collect();
    output.show(&modes, || {
        let line = |(mode, outcome): &Probed| match outcome {
            Ok(()) => format!("{mode}: works"),
            Err(error) => format!("{mode}: does not work; a program is not started, because {error}"),
        };
        let only = node.isolation.isolation;
        let summary = match (strongest(&probed, only), only) {
            (Some(Isolation::None), _) => "programs of this node are not isolated".to_owned(),
            (Some(mode), _) => format!("the strongest isolation of this node's programs is {mode}"),
            (None, Some(mode)) => format!("a node with --isolation {mode} does not start here"),
            (None, None) => "from level auth on this node starts no programs: run it as root, allow user namespaces or \
                             Landlock, or use --isolation none"
                .to_owned(),
        };
        let (found, has_all) = told(&groups);
        let mut lines: Vec<String> = probed.iter().map(line).chain([summary]).collect();
        lines.push(format!("control groups of programs: {found}"));
        if !has_all {
            lines.push(CONTROLLERS.to_owned());
        }
        lines.join("\n")
    });
    Ok(())
}

/// The token, with the address named on the command line in place of its own.
fn token(node: &NodeArguments) -> Result<Option<Token>, CliError> {
    let refused = |error: TokenError| CliError::Usage {
        message: error.to_string(),
        help: "`sealbus token` prints one, at the Master".to_owned(),
    };
    // A variable that a file sets to nothing is no token.
    let Some(text) = node.token.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let token = Token::parse(Purpose::Join, content(text)?.trim()).map_err(refused)?;
    match &node.join {
        Some(address) => token.at(address.clone()).map(Some).map_err(refused),
        None => Ok(Some(token)),
    }
}

fn node_directory(platform: &str, node: &NodeArguments) -> String {
    format!("{platform}-{}", node.name.as_deref().unwrap_or("node"))
}

/// The address of this node: the one named on the command line, or the one on the way to the Master. A node that joined
/// before waits for a way there, because with another address nobody would reach its agents.
async fn own_address(
    node: &NodeArguments,
    token: Option<&Token>,
    directory: &Path,
) -> Result<IpAddr, CliError> {
    if let Some(address) = node.address {
        return Ok(address);
    }
    let known = masters_of(directory)?;
    let masters: &[String] = match (token, &node.join) {
        (Some(token), _) => token.addresses(),
        (None, Some(address)) => std::slice::from_ref(address),
        (None, None) => &known,
    };
    let mut is_told = false;
    loop {
        if let Some(address) = local_address(masters).await {
            return Ok(address);
        }
        if known.is_empty() {
            // The node cannot join without a way to the Master.
            return Ok(Ipv4Addr::LOCALHOST.into());
        }
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!(
                ?masters,
                "there is no way to the Master yet: waiting for one"
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The address of this machine on the way to the Master. Other machines see this address.
async fn local_address(masters: &[String]) -> Option<IpAddr> {
    for master in masters {
        let Ok(mut places) = tokio::net::lookup_host(master).await else {
            continue;
        };
        let address = places.find_map(|place| {
            let any: IpAddr = match place.is_ipv4() {
                true => Ipv4Addr::UNSPECIFIED.into(),
                false => Ipv6Addr::UNSPECIFIED.into(),
            };
            // Connecting a UDP socket sends nothing. It only chooses the route.
            let socket = UdpSocket::bind((any, 0)).ok()?;
            socket.connect(place).ok()?;
            Some(socket.local_addr().ok()?.ip())
        });
        if address.is_some() {
            return address;
        }
    }
    None
}

impl From<NodeError> for CliError {
    fn from(error: NodeError) -> Self {
        let message = error.to_string();
        match error {
            NodeError::Enrolment(EnrolmentError::Refused(fault)) => fault.into(),
            NodeError::Enrolment(EnrolmentError::Unreachable { .. }) => Self::Failed {
                message,
                help: Some(
                    "the Master listens at the address of `sealbus up --address ADDRESS`, which is its machine's alone if \
                     none is given"
                        .to_owned(),
                ),
            },
            NodeError::NoToken(_) | NodeError::AnotherPlatform { .. } => Self::Usage {
                message,
                help: "`sealbus node --help` shows an example".to_owned(),
            },
            _ => Self::Failed {
                message,
                help: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_master_is_found_by_its_name_too() {
        let way = async |master: &str| local_address(&[master.to_owned()]).await;
        assert_eq!(
            way("127.0.0.1:7400").await,
            Some(Ipv4Addr::LOCALHOST.into())
        );
        assert!(
            way("localhost:7400")
                .await
                .is_some_and(|it| it.is_loopback())
        );
        assert_eq!(way("nowhere").await, None);
    }
}

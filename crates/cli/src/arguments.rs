//! The commands and their options, each command with its help and one example.

mod agents;
mod broker;
mod certificates;
mod channels;
mod demo;
mod directory;
mod evidence;
mod gateway;
mod general;
mod language;
mod listing;
mod masters;
mod messages;
mod platform;
mod store;
mod watching;

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand};
use sealbus_bus::Lifetime;
use sealbus_manifest::isolation::Isolation;

pub(crate) use self::agents::{Identity, Kill, Logs, Move, Ps, Restart, Start, Stop, Ticket};
pub(crate) use self::broker::{Broker, BrokerRabbitMq};
pub(crate) use self::certificates::{
    Ca, CaCertify, CaKeys, CaList, CaLog, CaLogCommand, CaLogVerify, CaMonitor, CaRequest,
    CaRevoke, LogSource,
};
pub(crate) use self::channels::{
    Channel, ChannelLast, ChannelPublish, ChannelRequest, ChannelTail, Since,
};
pub(crate) use self::demo::{AttackKind, Demo, DemoAgent, DemoAttack, DemoRole, DemoTransport};
pub(crate) use self::directory::{Df, DfDeregister, DfFederate, DfRegister, DfSearch};
pub(crate) use self::evidence::{
    Evidence, EvidenceDisclose, EvidenceExport, EvidenceLog, EvidenceVerify,
};
pub(crate) use self::gateway::{
    Gateway, GatewayAllow, GatewayCertificate, GatewayDeny, GatewayKey, Mcp,
};
pub(crate) use self::general::{Color, General};
pub(crate) use self::language::{Acl, AclConvert, AclExplain, AclValidate};
pub(crate) use self::listing::Listing;
pub(crate) use self::masters::{Masters, MastersCommand};
pub(crate) use self::messages::{Mailbox, Send};
pub(crate) use self::platform::{
    Apply, Backup, Describe, DescribeAgent, DescribeChannel, DescribeNode, Doctor, Down, New,
    Restore, Status, Template, Up,
};
pub(crate) use self::store::{Store, StoreCertify, StoreCheck};
pub(crate) use self::watching::{Sniff, Top, TopList, TopSort, Window};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 it failed, 2 the command line is wrong, 3 no platform is running, \
4 what was named does not exist, 5 refused by the platform.";

/// Agents that talk fast and know who is talking.
#[derive(Debug, Parser)]
#[command(
    name = "sealbus",
    version,
    styles = STYLES,
    after_help = EXIT_CODES,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) general: General,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a project: agents, a manifest and a test
    #[command(after_help = "Example: sealbus new bookshop && cd bookshop && sealbus up")]
    New(New),
    /// Look for problems that would prevent a platform from running on this machine, and say how to solve them
    #[command(after_help = "Example: sealbus doctor platform.toml")]
    Doctor(Doctor),
    /// Start a platform: a Master with its CA service, AMS and DF, a Remote Node, and the agents
    /// of a manifest
    #[command(after_help = "Example: sealbus up platform.toml")]
    Up(Up),
    /// Change a running platform to match its changed manifest
    #[command(after_help = "Example: sealbus apply platform.toml --dry-run")]
    Apply(Apply),
    /// End a platform: its agents, its nodes and its Master
    #[command(after_help = "Example: sealbus down --timeout 30s")]
    Down(Down),
    /// Write a backup of the running platform's state to a file
    #[command(after_help = "Example: sealbus backup factory.backup")]
    Backup(Backup),
    /// Restore the state of a platform whose Master is lost from a backup
    #[command(after_help = "Example: sealbus restore factory.backup && sealbus up platform.toml")]
    Restore(Restore),
    /// Show the platform as a whole; for probes, the exit code says whether it works
    #[command(after_help = "Example: sealbus status --nodes 3 --agent seller-1")]
    Status(Status),
    /// Start a Remote Node on this machine that joins a running platform
    #[command(after_help = "Example: sealbus node --token - < token")]
    Node(Node),
    /// Make a one-time token with which a Remote Node, or a further Master, joins
    #[command(after_help = "Example: sealbus token --name node-2 --lifetime 10m")]
    Token(Token),
    /// Make a one-time ticket with which a program started by hand joins as an agent
    #[command(after_help = "Example: SEALBUS_TICKET=$(sealbus ticket buyer-1) python buyer.py")]
    Ticket(Ticket),
    /// Make the key of an agent's long-lived identity, unless the file is there, and print the identity's fingerprint
    #[command(after_help = "Example: sealbus identity ~/seller.key")]
    Identity(Identity),
    /// Show the agents: where they run, their states, and since when
    #[command(after_help = "Example: sealbus ps --refused")]
    Ps(Ps),
    /// Show the Remote Nodes
    #[command(after_help = "Example: sealbus nodes --json")]
    Nodes(Listing),
    /// Show the Masters: the one that leads, and those that stand by
    #[command(after_help = "Example: sealbus masters")]
    Masters(Masters),
    /// Show everything that is known about one agent, node or channel
    #[command(subcommand)]
    Describe(Describe),
    /// Send a message to an agent and, if asked, wait for the reply
    #[command(
        after_help = "Example: sealbus send seller-1 'ready?' --performative query-if --timeout 5s"
    )]
    Send(Send),
    /// Search the directory facilitator, and register and deregister services
    #[command(subcommand)]
    Df(Df),
    /// Show and change the rules for other platforms, and make keys for hosts of language models
    #[command(subcommand)]
    Gateway(Gateway),
    /// Serve a host of language models over standard input and output, as an agent of the platform
    #[command(after_help = "Example: sealbus mcp assistant")]
    Mcp(Mcp),
    /// Set up a message broker, and show its state
    #[command(subcommand)]
    Broker(Broker),
    /// Set up the etcd that holds a platform's state, and examine it
    #[command(subcommand)]
    Store(Store),
    /// Publish, read and ask on channels
    #[command(subcommand)]
    Channel(Channel),
    /// Start an agent of the manifest again after it has ended or was killed
    #[command(after_help = "Example: sealbus start seller-1")]
    Start(Start),
    /// Let an agent leave, and revoke its certificate; after the timeout it is ended
    #[command(after_help = "Example: sealbus stop seller-1 --timeout 1m")]
    Stop(Stop),
    /// Stop an agent of the manifest and start it again
    #[command(after_help = "Example: sealbus restart seller-1")]
    Restart(Restart),
    /// End an agent at once and revoke its certificate
    #[command(after_help = "Example: sealbus kill seller-1")]
    Kill(Kill),
    /// Move an agent, its state and its waiting messages to another node
    #[command(after_help = "Example: sealbus move seller-1 node-2")]
    Move(Move),
    /// Show what agents print
    #[command(after_help = "Example: sealbus logs seller-1 --follow")]
    Logs(Logs),
    /// Show agents, channels and processes by messages a second, waiting messages and errors
    #[command(after_help = "Example: sealbus top --sort waiting")]
    Top(Top),
    /// Show messages as they arrive, and refused attempts: who wrote to whom, how it is known, and
    /// in which conversation
    #[command(after_help = "Example: sealbus sniff seller-1 'buyer-*' --performative cfp,propose")]
    Sniff(Sniff),
    /// Show the platform in a browser: agents, who talks to whom, conversations, and what is
    /// refused
    #[command(after_help = "Example: sealbus window --port 7500")]
    Window(Window),
    /// Show the messages that wait for an agent that is away
    #[command(after_help = "Example: sealbus mailbox buyer-1 --json")]
    Mailbox(Mailbox),
    /// Show and revoke the certificates of the CA service
    #[command(subcommand)]
    Ca(Ca),
    /// Export proofs of messages for others, and check them
    #[command(subcommand)]
    Evidence(Evidence),
    /// Show Sealbus once: certified agents on two nodes talk, and impostors are refused
    #[command(after_help = "Example: sealbus demo --level auth --json")]
    Demo(Demo),
    /// Seals itself and becomes an agent's program; for nodes
    #[command(hide = true)]
    Launch,
    #[command(hide = true)]
    DemoAgent(DemoAgent),
    #[command(hide = true)]
    DemoAttack(DemoAttack),
    /// Convert, explain and validate ACL messages
    #[command(subcommand)]
    Acl(Acl),
    /// Print the completion script of a shell; it completes the names of agents and nodes too
    #[command(
        after_help = "Example: sealbus completion bash > ~/.local/share/bash-completion/completions/sealbus"
    )]
    Completion(Completion),
    /// Write the manual pages
    #[command(after_help = "Example: sealbus man ~/.local/share/man/man1")]
    Man(Man),
    /// Show the version and the build
    #[command(after_help = "Example: sealbus version --json")]
    Version,
}

/// How nodes isolate programs.
#[derive(Debug, Clone, Args)]
pub(crate) struct IsolationArguments {
    /// Isolation of the programs of this machine's nodes: uid, namespace, landlock or none
    /// [default: the strongest that works]
    #[arg(long, value_name = "MODE")]
    pub(crate) isolation: Option<Isolation>,
    /// Users that a node started by root gives to programs
    #[arg(long, value_name = "FIRST-LAST", default_value = "70000-79999")]
    pub(crate) uids: Uids,
}

/// A range of users, both ends included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Uids {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl std::str::FromStr for Uids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ends = text.split_once('-');
        let ends = ends.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        match ends {
            Some((first, last)) if 1000 <= first && first < last => Ok(Self { first, last }),
            _ => Err("write two numbers from 1000 on, such as 70000-79999".to_owned()),
        }
    }
}

impl std::fmt::Display for Uids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Node {
    /// Address of the Master, as `sealbus token` shows it
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) join: Option<String>,
    /// The one-time token, or `-` for standard input; without it the node uses the certificate
    /// kept from its last run
    #[arg(
        long,
        env = "SEALBUS_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        allow_hyphen_values = true
    )]
    pub(crate) token: Option<String>,
    /// Name of the node [default: the token's]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Address at which other machines reach this node [default: the one used to reach the Master]
    #[arg(long, value_name = "IP")]
    pub(crate) address: Option<std::net::IpAddr>,
    /// Address for Prometheus, such as 127.0.0.1:9464, which serves the node's numbers at /metrics
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub(crate) isolation: IsolationArguments,
    /// Folder that programs must not see, besides the node's state directory; may be given several
    /// times
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) hide: Vec<PathBuf>,
    /// Try which isolation of programs and which control groups work on this machine, and start nothing
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// Name of the new node [default: the next free one]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The token is for a further Master, which gets a CA of its own: `sealbus up --join`
    #[arg(long, conflicts_with = "name")]
    pub(crate) master: bool,
    /// Lifetime of the token, such as 90s, 10m or 1h
    #[arg(long, default_value = "10m", value_name = "TIME")]
    pub(crate) lifetime: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder for the pages, one for each command
    #[arg(value_name = "DIRECTORY")]
    pub(crate) directory: PathBuf,
}

impl Command {
    /// How often the command shows its listing again, if it does.
    pub(crate) fn watch(&self) -> Option<Lifetime> {
        let watch = match self {
            Self::Ps(ps) => ps.watch,
            Self::Nodes(listing)
            | Self::Gateway(Gateway::List(listing) | Gateway::Counters(listing))
            | Self::Broker(Broker::Status(listing) | Broker::DeadLetters(listing)) => listing.watch,
            Self::Status(status) => status.watch,
            Self::Df(Df::Search(search)) => search.watch,
            Self::Mailbox(mailbox) => mailbox.watch,
            Self::Ca(Ca::List(list)) => list.watch,
            _ => return None,
        };
        watch.watch
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// With the same id, a value for one of them would count for the other too.
    #[test]
    fn no_argument_of_a_command_has_the_id_of_a_global_option() {
        fn check(command: &clap::Command, global: &[clap::Id]) {
            for argument in command.get_arguments() {
                let id = argument.get_id();
                assert!(!global.contains(id), "{}: {id}", command.get_name());
            }
            for command in command.get_subcommands() {
                check(command, global);
            }
        }
        let arguments = Arguments::command();
        let global: Vec<_> = arguments
            .get_arguments()
            .map(|argument| argument.get_id().clone())
            .collect();
        assert!(global.iter().any(|id| id == "platform"));
        for command in arguments.get_subcommands() {
            check(command, &global);
        }
    }

    #[test]
    fn a_listing_is_watched_as_often_as_asked() {
        let watch = |typed: &[&str]| {
            let typed = [&["sealbus"], typed].concat();
            Arguments::try_parse_from(typed).unwrap().command.watch()
        };
        let seconds = |number| Some(Lifetime(std::time::Duration::from_secs(number)));
        assert_eq!(watch(&["ps"]), None);
        assert_eq!(watch(&["ps", "--watch"]), seconds(2));
        assert_eq!(watch(&["gateway", "list", "--watch=1m"]), seconds(60));
        // The next argument is the agent, not the time.
        assert_eq!(watch(&["mailbox", "--watch", "buyer-1"]), seconds(2));
        assert!(Arguments::try_parse_from(["sealbus", "ps", "--watch=soon"]).is_err());
    }

    #[test]
    fn a_rule_for_another_platform_is_made_on_the_one_that_runs_here() {
        let typed = ["sealbus", "gateway", "allow", "plat1", "--to", "greeter"];
        let arguments = Arguments::try_parse_from(typed).unwrap();
        assert_eq!(arguments.general.platform, None);
        let Command::Gateway(Gateway::Allow(allow)) = arguments.command else {
            panic!("{arguments:?}");
        };
        assert_eq!(
            (allow.platform.as_str(), allow.to),
            ("plat1", vec!["greeter".to_owned()])
        );
        let typed = [
            "sealbus",
            "gateway",
            "deny",
            "plat1",
            "--platform",
            "factory",
        ];
        let arguments = Arguments::try_parse_from(typed).unwrap();
        assert_eq!(arguments.general.platform.as_deref(), Some("factory"));
        let Command::Gateway(Gateway::Deny(deny)) = arguments.command else {
            panic!("{arguments:?}");
        };
        assert_eq!(deny.platform, "plat1");
    }
}

//! What can be typed: the commands, their options, and the help with one example each.

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};
use sealbus_seal::SecurityLevel;

use sealbus_bus::Lifetime;
use sealbus_bus::channel::QosOverride;

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

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct General {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Directory with the platform's state and its admin socket [default:
    /// $XDG_STATE_HOME/sealbus/<PLATFORM>]
    #[arg(long, global = true, env = "SEALBUS_STATE", value_name = "DIRECTORY")]
    pub(crate) state: Option<PathBuf>,
    /// Name of the platform to talk to; needed only if several run here
    #[arg(long, global = true, env = "SEALBUS_PLATFORM", value_name = "NAME")]
    pub(crate) platform: Option<String>,
    /// Colours: auto means on a terminal only, and never if NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a platform: a Master with its CA service, AMS and DF, a Remote Node, and the agents
    /// a manifest names
    #[command(after_help = "Example: sealbus up platform.toml")]
    Up(Up),
    /// Start a Remote Node on this machine that joins a running platform
    #[command(after_help = "Example: sealbus node --join 192.0.2.10:7400 --token \"$(cat token)\"")]
    Node(Node),
    /// Make a one-time token with which a Remote Node joins
    #[command(after_help = "Example: sealbus token --name node-2 --lifetime 10m")]
    Token(Token),
    /// Make a one-time ticket with which a program started by hand joins as an agent
    #[command(after_help = "Example: SEALBUS_TICKET=$(sealbus ticket buyer-1) python buyer.py")]
    Ticket(Ticket),
    /// Show the agents: where they run, in what state, since when
    #[command(after_help = "Example: sealbus ps --refused")]
    Ps(Ps),
    /// Show the Remote Nodes
    #[command(after_help = "Example: sealbus nodes --json")]
    Nodes,
    /// Send a message to an agent and, if asked, wait for the reply
    #[command(
        after_help = "Example: sealbus send seller-1 'ready?' --performative query-if --wait 5s"
    )]
    Send(Send),
    /// Search the directory facilitator, or register a service with it
    #[command(subcommand)]
    Df(Df),
    /// Show what other platforms may do here and have done, and change it
    #[command(subcommand)]
    Gateway(Gateway),
    /// Set up a message broker, and see what it holds
    #[command(subcommand)]
    Broker(Broker),
    /// Publish, read and ask on channels
    #[command(subcommand)]
    Channel(Channel),
    /// Start an agent of the manifest again that has ended or was killed
    #[command(after_help = "Example: sealbus start seller-1")]
    Start(Start),
    /// End an agent and revoke its certificate
    #[command(after_help = "Example: sealbus kill seller-1")]
    Kill(Kill),
    /// Move an agent, its state and its waiting messages to another node
    #[command(after_help = "Example: sealbus move seller-1 node-2")]
    Move(Move),
    /// Show what an agent printed
    #[command(after_help = "Example: sealbus logs seller-1 --follow")]
    Logs(Logs),
    /// Show the messages that wait for an agent that is away
    #[command(after_help = "Example: sealbus mailbox buyer-1 --json")]
    Mailbox(Mailbox),
    /// Show and revoke the certificates of the CA service
    #[command(subcommand)]
    Ca(Ca),
    /// Run the whole idea once: certified agents on two nodes talk, and impostors are refused
    #[command(after_help = "Example: sealbus demo --level auth --json")]
    Demo(Demo),
    #[command(hide = true)]
    DemoAgent(DemoAgent),
    #[command(hide = true)]
    DemoAttack(DemoAttack),
    /// Convert, explain and validate ACL messages
    #[command(subcommand)]
    Acl(Acl),
    /// Print the completion script of a shell
    #[command(
        after_help = "Example: sealbus completion bash > ~/.local/share/bash-completion/completions/sealbus"
    )]
    Completion(Completion),
    /// Show the version and what it was built with
    #[command(after_help = "Example: sealbus version --json")]
    Version,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The manifest [default: platform.toml if it exists, else a platform without agents]
    #[arg(value_name = "MANIFEST")]
    pub(crate) manifest: Option<PathBuf>,
    /// Security level, in place of the manifest's
    #[arg(long)]
    pub(crate) level: Option<SecurityLevel>,
    /// Check the manifest and start nothing
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Node {
    /// Address of the Master, as `sealbus token` shows it
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) join: Option<String>,
    /// The one-time token; without it the node uses the certificate kept from its last run
    #[arg(
        long,
        env = "SEALBUS_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) token: Option<String>,
    /// Name of the node [default: the one the token was made for]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Address other machines reach this node at [default: the one used to reach the Master]
    #[arg(long, value_name = "IP")]
    pub(crate) address: Option<std::net::IpAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// Name the node will have [default: the next free one]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How long it may be used, such as 90s, 10m or 1h
    #[arg(long, default_value = "10m", value_name = "TIME")]
    pub(crate) lifetime: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct Ticket {
    /// Name of the agent
    #[arg(value_name = "NAME")]
    pub(crate) agent: String,
    /// Node it attaches to [default: the least loaded]
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// How long it may be used, such as 90s, 10m or 1h
    #[arg(long, default_value = "10m", value_name = "TIME")]
    pub(crate) lifetime: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Show what was refused, who tried and why
    #[arg(long)]
    pub(crate) refused: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The receiver: seller-1, or seller-1@factory
    #[arg(value_name = "RECEIVER")]
    pub(crate) receiver: String,
    /// The content; `-` reads it from standard input
    #[arg(value_name = "CONTENT", allow_hyphen_values = true)]
    pub(crate) content: String,
    /// The performative
    #[arg(long, default_value = "inform", value_name = "PERFORMATIVE")]
    pub(crate) performative: String,
    /// Language of the content
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) language: Option<String>,
    /// Ontology of the content
    #[arg(long, value_name = "ONTOLOGY")]
    pub(crate) ontology: Option<String>,
    /// Interaction protocol
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) protocol: Option<String>,
    /// Wait this long for a reply and print it
    #[arg(long, value_name = "TIME")]
    pub(crate) wait: Option<Lifetime>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Channel {
    /// Show who has subscribed to what
    #[command(after_help = "Example: sealbus channel list --json")]
    List,
    /// Publish an event on a channel
    #[command(
        after_help = "Example: sealbus channel publish /offers/tea 'fresh leaves' --property price=7"
    )]
    Publish(ChannelPublish),
    /// Print what is published: time, channel, verified sender, QoS, performative and content
    #[command(
        after_help = "Example: sealbus channel tail '/offers/**' --filter 'properties.price < 10'"
    )]
    Tail(ChannelTail),
    /// Ask everyone on a channel, print the answers as they come, and say who gave none
    #[command(after_help = "Example: sealbus channel request /wanted/tea '10 kg?' --deadline 2s")]
    Request(ChannelRequest),
}

#[derive(Debug, Args)]
pub(crate) struct ChannelPublish {
    /// The channel: /offers/tea, or an address; one that names an agent sends to that agent alone
    #[arg(value_name = "CHANNEL")]
    pub(crate) channel: String,
    /// The content
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: String,
    /// The performative
    #[arg(long, default_value = "inform", value_name = "PERFORMATIVE")]
    pub(crate) performative: String,
    /// A property for filters, such as price=7; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    pub(crate) property: Vec<(String, String)>,
    /// QoS, such as at-least-once,priority=7,expiry=5s,ack=agent
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "QOS"
    )]
    pub(crate) qos: QosOverride,
}

#[derive(Debug, Args)]
pub(crate) struct ChannelTail {
    /// The channel, or channels: `*` stands for one level, `**` for the rest
    #[arg(value_name = "CHANNEL")]
    pub(crate) channel: String,
    /// Only what fulfils this expression (CEL), such as "sender == 'seller-1@factory'"
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Option<String>,
    /// On persistent channels, begin so long ago (10m), with the last so many events (100), or with an event's number (#17);
    /// each node counts what its own agents published on each channel
    #[arg(long, value_name = "TIME|COUNT|#NUMBER")]
    pub(crate) since: Option<Since>,
    /// End after so many events
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct ChannelRequest {
    /// The channel
    #[arg(value_name = "CHANNEL")]
    pub(crate) channel: String,
    /// The question
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: String,
    /// How long to wait for answers
    #[arg(long, default_value = "2s", value_name = "TIME")]
    pub(crate) deadline: Lifetime,
    /// End after so many answers
    #[arg(long, value_name = "N")]
    pub(crate) first: Option<usize>,
    /// The performative
    #[arg(long, default_value = "query-ref", value_name = "PERFORMATIVE")]
    pub(crate) performative: String,
    /// A property for filters, such as price=7; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    pub(crate) property: Vec<(String, String)>,
    /// QoS, such as priority=9
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "QOS"
    )]
    pub(crate) qos: QosOverride,
}

/// From where on a channel is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    Time(Lifetime),
    Count(u64),
    Number(u64),
}

impl std::str::FromStr for Since {
    type Err = sealbus_bus::LifetimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(number) = text
            .strip_prefix('#')
            .and_then(|number| number.parse().ok())
        {
            return Ok(Self::Number(number));
        }
        match text.parse() {
            Ok(count) => Ok(Self::Count(count)),
            Err(_) => text.parse().map(Self::Time),
        }
    }
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("write NAME=VALUE, such as price=7")?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err("a name is made of letters, digits, '-' and '_'".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Df {
    /// Find agents by what they offer; without options, all
    #[command(after_help = "Example: sealbus df search --type book-selling")]
    Search(DfSearch),
    /// Register a service in the name of an agent
    #[command(
        after_help = "Example: sealbus df register seller-1 --type book-selling --name books"
    )]
    Register(DfRegister),
    /// Register this platform's DF with another platform's, which then searches here too
    #[command(
        after_help = "Example: sealbus df federate df@plat1 --address http://192.0.2.7:7778/acc"
    )]
    Federate(DfFederate),
}

/// Have this platform's DF searched by another platform's DF too.
#[derive(Debug, Args)]
pub(crate) struct DfFederate {
    /// Name of the other DF
    #[arg(value_name = "DF")]
    pub(crate) df: String,
    /// Its address; may be given several times
    #[arg(long = "address", value_name = "URL", required = true)]
    pub(crate) addresses: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Gateway {
    /// Show its addresses, its rules and what it has done
    #[command(after_help = "Example: sealbus gateway list --json")]
    List,
    /// Let another platform write to agents of this one
    #[command(
        after_help = "Example: sealbus gateway allow plat1 --to 'seller-*' --to df --register"
    )]
    Allow(GatewayAllow),
    /// Take back what was allowed to another platform
    #[command(after_help = "Example: sealbus gateway deny plat1")]
    Deny(GatewayDeny),
    /// Show what it has done
    #[command(after_help = "Example: sealbus gateway counters --json")]
    Counters,
    #[command(hide = true)]
    Run,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayAllow {
    /// Name of the platform: what stands behind the last @ of its agents' names; * for all
    #[arg(value_name = "PLATFORM")]
    pub(crate) platform: String,
    /// Agents it may write to; a * at the end stands for any rest [default: *]
    #[arg(long, value_name = "AGENT")]
    pub(crate) to: Vec<String>,
    /// Network addresses it must come from, such as 10.0.0.7 or 10.0.0.0/24
    #[arg(long, value_name = "NETWORK")]
    pub(crate) from: Vec<String>,
    /// SHA-256 fingerprint of the certificate it must show
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) certificate: Option<String>,
    /// Let its agents register with the DF, too
    #[arg(long)]
    pub(crate) register: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayDeny {
    /// Name of the platform
    #[arg(value_name = "PLATFORM")]
    pub(crate) platform: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Broker {
    /// Write what a RabbitMQ of your own needs to carry a platform: configuration, plugins, definitions, and a
    /// certificate signed by the platform's CA
    #[command(
        name = "rabbitmq",
        after_help = "Example: sealbus broker rabbitmq platform.toml --write-config ./broker-1 --listen 10.0.0.5 --installed-at /etc/rabbitmq/factory"
    )]
    RabbitMq(BrokerRabbitMq),
    /// Show whether the brokers run and take messages, and what waits there
    #[command(after_help = "Example: sealbus broker status --json")]
    Status,
    /// Show what was not delivered: when, from whom, to whom, and why
    #[command(after_help = "Example: sealbus broker dead-letters")]
    DeadLetters,
}

#[derive(Debug, Args)]
pub(crate) struct BrokerRabbitMq {
    /// The manifest, whose [rabbitmq] names the broker in `addresses`
    #[arg(default_value = "platform.toml", value_name = "MANIFEST")]
    pub(crate) manifest: PathBuf,
    /// The folder the files are written to
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) write_config: PathBuf,
    /// Where it listens [default: the one in `addresses`, if there is one only]
    #[arg(long, value_name = "IP")]
    pub(crate) listen: Option<std::net::IpAddr>,
    /// Port for agents [default: as in `addresses`, or 5671]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Port of the management interface [default: as in `management`, or 15671]
    #[arg(long, value_name = "PORT")]
    pub(crate) management_port: Option<u16>,
    /// Where the folder will lie on the broker's machine [default: where it is written]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) installed_at: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DfSearch {
    /// Type of the service
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) service_type: Option<String>,
    /// Name of the service
    #[arg(long = "name", value_name = "NAME")]
    pub(crate) service_name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DfRegister {
    /// The agent that offers the service
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
    /// Type of the service
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) service_type: String,
    /// Name of the service
    #[arg(long = "name", value_name = "NAME")]
    pub(crate) service_name: String,
    /// How long the entry lives unless renewed [default: as long as the agent]
    #[arg(long, value_name = "TIME")]
    pub(crate) lease: Option<Lifetime>,
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    /// The agent; those of the same process start with it
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
}

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// The agent
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
}

#[derive(Debug, Args)]
pub(crate) struct Move {
    /// The agent
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
    /// The node it goes to
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct Mailbox {
    /// The agent
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The agent
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
    /// Go on showing what it prints
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin with this many last lines
    #[arg(long, short = 'n', default_value_t = 100, value_name = "COUNT")]
    pub(crate) lines: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Ca {
    /// The steps of each certification, and each revocation, in order
    #[command(after_help = "Example: sealbus ca log --agent seller-1")]
    Log(CaLog),
    /// The certificates issued
    #[command(after_help = "Example: sealbus ca list --valid")]
    List(CaList),
    /// Revoke the certificates of an agent: it is cut off at once
    #[command(after_help = "Example: sealbus ca revoke seller-1")]
    Revoke(CaRevoke),
    /// Print the root certificate (PEM), for others who are to check certificates of this platform
    #[command(after_help = "Example: sealbus ca root > factory.pem")]
    Root,
}

#[derive(Debug, Args)]
pub(crate) struct CaLog {
    /// Only what concerns this agent or node
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only this many last entries
    #[arg(long, short = 'n', value_name = "COUNT", conflicts_with = "follow")]
    pub(crate) lines: Option<u32>,
    /// Go on showing what happens
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CaList {
    /// Only those that are neither expired nor revoked
    #[arg(long)]
    pub(crate) valid: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CaRevoke {
    /// The agent, or a certificate's serial number
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Why; shown wherever the revocation is
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Security level to measure; may be repeated [default: none, tls and auth]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Vec<SecurityLevel>,
    /// Transport the messages travel on
    #[arg(long, default_value = "mesh", value_name = "TRANSPORT")]
    pub(crate) transport: DemoTransport,
    /// Python interpreter with the package sealbus, for half of the agents
    #[arg(
        long,
        env = "SEALBUS_PYTHON",
        default_value = "python3",
        value_name = "PROGRAM"
    )]
    pub(crate) python: PathBuf,
    /// Where the report goes
    #[arg(long, default_value = "target/demo/report.json", value_name = "FILE")]
    pub(crate) report: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoTransport {
    Mesh,
    /// A RabbitMQ of the demo's own; the program must be installed
    #[value(name = "rabbitmq")]
    RabbitMq,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Acl {
    /// Read a message in one encoding and write it in another
    #[command(
        after_help = "Example: sealbus acl convert --from string --to bitefficient < message.acl > message.be"
    )]
    Convert(AclConvert),
    /// Show a message byte by byte, with the meaning and the FIPA section of each
    #[command(after_help = "Example: sealbus acl explain --from bitefficient < message.be")]
    Explain(AclExplain),
    /// Say whether a message is valid, and if not, at which byte and what was expected there
    #[command(after_help = "Example: sealbus acl validate --from string message.acl")]
    Validate(AclValidate),
}

#[derive(Debug, Args)]
pub(crate) struct AclConvert {
    /// Encoding of the input: string, bitefficient, xml or json
    #[arg(long, value_name = "ENCODING")]
    pub(crate) from: String,
    /// Encoding of the output
    #[arg(long, value_name = "ENCODING")]
    pub(crate) to: String,
    /// The message [default: standard input]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AclExplain {
    /// Encoding of the message [default: recognised from its first bytes]
    #[arg(long, value_name = "ENCODING")]
    pub(crate) from: Option<String>,
    /// The message [default: standard input]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AclValidate {
    /// Encoding of the message [default: recognised from its first bytes]
    #[arg(long, value_name = "ENCODING")]
    pub(crate) from: Option<String>,
    /// The message [default: standard input]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// The Rust agents of the demo, which the demo's manifest starts.
#[derive(Debug, Args)]
pub(crate) struct DemoAgent {
    /// What it does
    pub(crate) role: DemoRole,
}

/// What an agent of the demo does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoRole {
    Sender,
    Receiver,
}

/// The program that makes one of the demo's attacks.
#[derive(Debug, Args)]
pub(crate) struct DemoAttack {
    /// Which
    pub(crate) kind: AttackKind,
    /// The agent written to, with its platform
    #[arg(long)]
    pub(crate) receiver: String,
    /// Where that agent's process listens, or the broker
    #[arg(long)]
    pub(crate) address: std::net::SocketAddr,
    /// The virtual host, if the address is a broker's
    #[arg(long)]
    pub(crate) broker: Option<String>,
    /// The agent whose name is borrowed, with its platform
    #[arg(long)]
    pub(crate) innocent: String,
    /// Conversation-id of the messages
    #[arg(long)]
    pub(crate) conversation: String,
}

/// The attacks of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttackKind {
    Forgery,
    NoCertificate,
    OtherAuthority,
    Revoked,
}

//! The names that users of this crate write. A name that is missing here breaks their programs, so this list changes
//! only on purpose.

#![allow(clippy::unwrap_used)]

use std::path::Path;

/// Each public module of the crate, with its file and its names in alphabetical order.
const MODULES: [(&str, &str, &[&str]); 12] = [
    (
        "sealbus",
        "lib.rs",
        &[
            "Acknowledgement",
            "AclMessage",
            "Agent",
            "AgentEnd",
            "AgentFailure",
            "AgentResult",
            "Aid",
            "CastError",
            "Clock",
            "Content",
            "ContentError",
            "Context",
            "Conversation",
            "ConversationOpen",
            "ConverseError",
            "Delegation",
            "DelegationError",
            "Delivery",
            "Elapsed",
            "Failure",
            "Filter",
            "HandlerError",
            "LEAVING_PARAMETER",
            "Late",
            "Message",
            "NamedAgents",
            "NotUnderstood",
            "Performative",
            "Platform",
            "PlatformError",
            "Provenance",
            "ReceiveError",
            "Refuse",
            "RequestError",
            "RunError",
            "Running",
            "SendError",
            "Supervision",
            "TrySendError",
            "Undelivered",
            "Voice",
            "WindowError",
            "WorkloadIssuer",
            "WorkloadToken",
            "WorkloadTokenError",
            "acl",
            "agent",
            "agents",
            "behaviour",
            "body",
            "channel",
            "directory",
            "gateway",
            "log_to_stderr",
            "new_conversation_id",
            "process",
            "protocol",
            "run",
            "run_agents",
            "testing",
            "tool",
            "trace",
        ],
    ),
    (
        "sealbus::acl",
        "acl.rs",
        &[
            "AclMessage",
            "AclMessageRef",
            "Aid",
            "AidError",
            "Content",
            "DateTime",
            "Expression",
            "Performative",
            "sl",
        ],
    ),
    (
        "sealbus::behaviour",
        "behaviour/mod.rs",
        &[
            "Behaviour",
            "Schedule",
            "Step",
            "at",
            "cyclic",
            "daily",
            "every",
            "first_of",
            "machine",
            "once",
            "parallel",
            "sequence",
        ],
    ),
    (
        "sealbus::body",
        "body/mod.rs",
        &[
            "Action",
            "BYTES",
            "Body",
            "BodyError",
            "Done",
            "Element",
            "JSON",
            "Json",
            "LIMITS",
            "Outcome",
            "PROTOBUF",
            "Predicate",
            "Protobuf",
            "SL",
            "WithBody",
            "WrittenBody",
            "json_content",
        ],
    ),
    (
        "sealbus::channel",
        "channel/mod.rs",
        &[
            "AddressError",
            "Channel",
            "ChannelAddress",
            "ChannelAnswers",
            "ChannelError",
            "ChannelEvent",
            "ChannelFilter",
            "ChannelHeader",
            "ChannelPath",
            "ChannelPattern",
            "ChannelReplies",
            "ChannelSubscription",
            "DamagedLog",
            "Downgrade",
            "Ended",
            "EventKey",
            "FilterError",
            "FlowPolicy",
            "LastError",
            "LastEvents",
            "LogPlace",
            "LogRetention",
            "Mechanism",
            "Moment",
            "PathError",
            "Persistence",
            "Priority",
            "PublishError",
            "Qos",
            "QosError",
            "QosOverride",
            "QueueCounters",
            "QueueLimits",
            "Reach",
            "Reliability",
            "Replay",
            "RequestOptions",
            "SubscribeError",
            "Subscribing",
            "Time",
            "UnavailableQos",
        ],
    ),
    (
        "sealbus::directory",
        "directory.rs",
        &[
            "ANSWER_TIME",
            "AgentState",
            "Ams",
            "AmsAgentDescription",
            "ApDescription",
            "Df",
            "DfAgentDescription",
            "DirectoryError",
            "Property",
            "SearchConstraints",
            "ServiceDescription",
            "Subscription",
            "Template",
            "agents_told",
            "ams_request",
            "ams_subscription",
            "df_request",
            "df_subscription",
            "done",
            "found",
            "told",
        ],
    ),
    (
        "sealbus::gateway",
        "gateway.rs",
        &[
            "GatewayConfig",
            "GatewayCounters",
            "GatewayError",
            "GatewayPolicy",
            "GatewayRule",
            "IiopConfig",
            "KnownPlatform",
        ],
    ),
    (
        "sealbus::process",
        "process.rs",
        &[
            "ATTACH_VARIABLE",
            "AgentHandle",
            "AgentSender",
            "CertificationError",
            "Conversations",
            "EMBEDDED_NAME",
            "HOOK_GRACE",
            "IDENTITY_VARIABLE",
            "Identity",
            "LOG_VARIABLE",
            "Lifetime",
            "LongLivedKey",
            "LongLivedKeyError",
            "Mailbox",
            "OpenAgentError",
            "OpenError",
            "OpenRequest",
            "Outbox",
            "Part",
            "Parting",
            "Process",
            "ProcessEnd",
            "ReceivedMessage",
            "Role",
            "STATE_VARIABLE",
            "SecurityLevel",
            "Stopping",
            "TEARDOWN_LIMIT",
            "TICKET_VARIABLE",
            "Thawed",
            "UndeliverableReason",
            "VerifiedIdentity",
            "Wish",
            "Wishes",
            "cast",
        ],
    ),
    (
        "sealbus::protocol",
        "protocol/mod.rs",
        &[
            "Answers",
            "Auction",
            "BROKERING",
            "Branch",
            "CONTRACT_NET",
            "ContractNet",
            "DUTCH_AUCTION",
            "ENGLISH_AUCTION",
            "Exchange",
            "ITERATED_CONTRACT_NET",
            "Initiator",
            "IteratedContractNet",
            "Outcome",
            "PROPOSE",
            "Participant",
            "Participants",
            "Participation",
            "Protocol",
            "ProtocolError",
            "QUERY",
            "RECRUITING",
            "REQUEST",
            "REQUEST_WHEN",
            "Refused",
            "SUBSCRIBE",
            "Stage",
            "To",
            "forward",
        ],
    ),
    (
        "sealbus::testing",
        "testing/mod.rs",
        &[
            "Expectation",
            "Fault",
            "Faults",
            "Probe",
            "TestBed",
            "VirtualClock",
        ],
    ),
    (
        "sealbus::tool",
        "tool/mod.rs",
        &[
            "Answer",
            "Asking",
            "MOST_AHEAD",
            "Parts",
            "Progress",
            "Step",
            "Tool",
            "ToolBody",
        ],
    ),
    ("sealbus::trace", "trace/mod.rs", &["TraceContext"]),
];

/// The names that the top level of a file makes public.
fn public_names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find("\npub ") {
        rest = &rest[at + "\npub ".len()..];
        let (kind, after) = rest.split_once(' ').unwrap();
        if kind == "use" {
            let (path, _) = after.split_once(';').unwrap();
            assert!(!path.contains('*'), "a glob hides what it exports: {path}");
            let listed = path.split_once('{').map(|(_, listed)| listed);
            let listed = listed.unwrap_or_else(|| path.rsplit("::").next().unwrap());
            let listed = listed.trim_end_matches('}').split(',').map(str::trim);
            names.extend(listed.filter(|name| !name.is_empty()).map(str::to_owned));
        } else {
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_');
            names.push(after[..end.unwrap()].to_owned());
        }
    }
    names.sort();
    names
}

#[test]
fn the_public_names_are_those_promised() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (module, file, promised) in MODULES {
        let source = std::fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!(public_names(&source), promised, "{module}");
    }
}

#[test]
fn no_other_module_is_public() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let source = std::fs::read_to_string(folder.join("lib.rs")).unwrap();
    let modules = source.lines().filter_map(|line| {
        let name = line.strip_prefix("pub mod ")?.strip_suffix(';')?;
        Some(format!("sealbus::{name}"))
    });
    let listed = MODULES
        .iter()
        .skip(1)
        .map(|(module, ..)| (*module).to_owned());
    assert_eq!(modules.collect::<Vec<_>>(), listed.collect::<Vec<_>>());
}

//! The messages of `a2a.proto` (package `lf.a2a.v1`), as the members of their ProtoJSON and the numbers of their fields.

use Kind::{Any, Bool, Bytes, Choice, Int, Message, Struct, Text, Time};

/// A message: its fields, each once.
pub(crate) type Fields = [Field];

/// A field.
#[derive(Debug)]
pub(crate) struct Field {
    /// The member in ProtoJSON.
    pub(super) name: &'static str,
    pub(super) number: u32,
    pub(super) label: Label,
    pub(super) kind: Kind,
}

/// How often a field occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    One,
    Many,
    /// A map, whose keys are texts.
    Map,
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    Bytes,
    Bool,
    /// `int32`.
    Int,
    /// An enumeration: the names of its values from 0.
    Choice(&'static [&'static str]),
    Message(&'static Fields),
    /// `google.protobuf.Struct`.
    Struct,
    /// `google.protobuf.Value`.
    Any,
    /// `google.protobuf.Timestamp`.
    Time,
}

const fn one(name: &'static str, number: u32, kind: Kind) -> Field {
    let label = Label::One;
    Field {
        name,
        number,
        label,
        kind,
    }
}

const fn many(name: &'static str, number: u32, kind: Kind) -> Field {
    let label = Label::Many;
    Field {
        name,
        number,
        label,
        kind,
    }
}

const fn map(name: &'static str, number: u32, kind: Kind) -> Field {
    let label = Label::Map;
    Field {
        name,
        number,
        label,
        kind,
    }
}

const STATES: &[&str] = &[
    "TASK_STATE_UNSPECIFIED",
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
];
const ROLES: &[&str] = &["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"];

const PART: &Fields = &[
    one("text", 1, Text),
    one("raw", 2, Bytes),
    one("url", 3, Text),
    one("data", 4, Any),
    one("metadata", 5, Struct),
    one("filename", 6, Text),
    one("mediaType", 7, Text),
];
const MESSAGE: &Fields = &[
    one("messageId", 1, Text),
    one("contextId", 2, Text),
    one("taskId", 3, Text),
    one("role", 4, Choice(ROLES)),
    many("parts", 5, Message(PART)),
    one("metadata", 6, Struct),
    many("extensions", 7, Text),
    many("referenceTaskIds", 8, Text),
];
const STATUS: &Fields = &[
    one("state", 1, Choice(STATES)),
    one("message", 2, Message(MESSAGE)),
    one("timestamp", 3, Time),
];
const ARTIFACT: &Fields = &[
    one("artifactId", 1, Text),
    one("name", 2, Text),
    one("description", 3, Text),
    many("parts", 4, Message(PART)),
    one("metadata", 5, Struct),
    many("extensions", 6, Text),
];
pub(super) const TASK: &Fields = &[
    one("id", 1, Text),
    one("contextId", 2, Text),
    one("status", 3, Message(STATUS)),
    many("artifacts", 4, Message(ARTIFACT)),
    many("history", 5, Message(MESSAGE)),
    one("metadata", 6, Struct),
];
const STATUS_UPDATE: &Fields = &[
    one("taskId", 1, Text),
    one("contextId", 2, Text),
    one("status", 3, Message(STATUS)),
    one("metadata", 4, Struct),
];
const ARTIFACT_UPDATE: &Fields = &[
    one("taskId", 1, Text),
    one("contextId", 2, Text),
    one("artifact", 3, Message(ARTIFACT)),
    one("append", 4, Bool),
    one("lastChunk", 5, Bool),
    one("metadata", 6, Struct),
];
/// `StreamResponse`. `SendMessageResponse` has the first two of its fields.
pub(super) const STREAM_RESPONSE: &Fields = &[
    one("task", 1, Message(TASK)),
    one("message", 2, Message(MESSAGE)),
    one("statusUpdate", 3, Message(STATUS_UPDATE)),
    one("artifactUpdate", 4, Message(ARTIFACT_UPDATE)),
];

const AUTHENTICATION: &Fields = &[one("scheme", 1, Text), one("credentials", 2, Text)];
pub(super) const WEBHOOK: &Fields = &[
    one("tenant", 1, Text),
    one("id", 2, Text),
    one("taskId", 3, Text),
    one("url", 4, Text),
    one("token", 5, Text),
    one("authentication", 6, Message(AUTHENTICATION)),
];
const CONFIGURATION: &Fields = &[
    many("acceptedOutputModes", 1, Text),
    one("taskPushNotificationConfig", 2, Message(WEBHOOK)),
    one("historyLength", 3, Int),
    one("returnImmediately", 4, Bool),
];
pub(super) const SEND: &Fields = &[
    one("tenant", 1, Text),
    one("message", 2, Message(MESSAGE)),
    one("configuration", 3, Message(CONFIGURATION)),
    one("metadata", 4, Struct),
];
pub(super) const GET_TASK: &Fields = &[
    one("tenant", 1, Text),
    one("id", 2, Text),
    one("historyLength", 3, Int),
];
pub(super) const LIST_TASKS: &Fields = &[
    one("tenant", 1, Text),
    one("contextId", 2, Text),
    one("status", 3, Choice(STATES)),
    one("pageSize", 4, Int),
    one("pageToken", 5, Text),
    one("historyLength", 6, Int),
    one("statusTimestampAfter", 7, Time),
    one("includeArtifacts", 8, Bool),
];
pub(super) const TASKS: &Fields = &[
    many("tasks", 1, Message(TASK)),
    one("nextPageToken", 2, Text),
    one("pageSize", 3, Int),
    one("totalSize", 4, Int),
];
/// `CancelTaskRequest`, and `SubscribeToTaskRequest`, which has no metadata.
pub(super) const ONE_TASK: &Fields = &[
    one("tenant", 1, Text),
    one("id", 2, Text),
    one("metadata", 3, Struct),
];
/// `GetTaskPushNotificationConfigRequest`, and the one to delete.
pub(super) const ONE_WEBHOOK: &Fields = &[
    one("tenant", 1, Text),
    one("taskId", 2, Text),
    one("id", 3, Text),
];
pub(super) const LIST_WEBHOOKS: &Fields = &[
    one("taskId", 1, Text),
    one("pageSize", 2, Int),
    one("pageToken", 3, Text),
    one("tenant", 4, Text),
];
pub(super) const WEBHOOKS: &Fields = &[
    many("configs", 1, Message(WEBHOOK)),
    one("nextPageToken", 2, Text),
];
pub(super) const EXTENDED_CARD: &Fields = &[one("tenant", 1, Text)];
pub(super) const EMPTY: &Fields = &[];

const INTERFACE: &Fields = &[
    one("url", 1, Text),
    one("protocolBinding", 2, Text),
    one("tenant", 3, Text),
    one("protocolVersion", 4, Text),
];
const CAPABILITIES: &Fields = &[
    one("streaming", 1, Bool),
    one("pushNotifications", 2, Bool),
    many("extensions", 3, Message(EXTENSION)),
    one("extendedAgentCard", 4, Bool),
];
const EXTENSION: &Fields = &[
    one("uri", 1, Text),
    one("description", 2, Text),
    one("required", 3, Bool),
    one("params", 4, Struct),
];
const LIST: &Fields = &[many("list", 1, Text)];
const REQUIREMENT: &Fields = &[map("schemes", 1, Message(LIST))];
const HTTP_SCHEME: &Fields = &[
    one("description", 1, Text),
    one("scheme", 2, Text),
    one("bearerFormat", 3, Text),
];
const MTLS_SCHEME: &Fields = &[one("description", 1, Text)];
/// The schemes that cards of this gateway name.
const SCHEME: &Fields = &[
    one("httpAuthSecurityScheme", 2, Message(HTTP_SCHEME)),
    one("mtlsSecurityScheme", 5, Message(MTLS_SCHEME)),
];
const SKILL: &Fields = &[
    one("id", 1, Text),
    one("name", 2, Text),
    one("description", 3, Text),
    many("tags", 4, Text),
    many("examples", 5, Text),
    many("inputModes", 6, Text),
    many("outputModes", 7, Text),
];
const SIGNATURE: &Fields = &[
    one("protected", 1, Text),
    one("signature", 2, Text),
    one("header", 3, Struct),
];
pub(super) const CARD: &Fields = &[
    one("name", 1, Text),
    one("description", 2, Text),
    many("supportedInterfaces", 3, Message(INTERFACE)),
    one("version", 5, Text),
    one("capabilities", 7, Message(CAPABILITIES)),
    map("securitySchemes", 8, Message(SCHEME)),
    many("securityRequirements", 9, Message(REQUIREMENT)),
    many("defaultInputModes", 10, Text),
    many("defaultOutputModes", 11, Text),
    many("skills", 12, Message(SKILL)),
    many("signatures", 13, Message(SIGNATURE)),
];

/// `google.rpc.Status`, and what stands in it.
pub(crate) const RPC_STATUS: &Fields = &[
    one("code", 1, Int),
    one("message", 2, Text),
    many("details", 3, Message(DETAIL)),
];
/// `google.protobuf.Any`.
const DETAIL: &Fields = &[one("@type", 1, Text), one("value", 2, Bytes)];
pub(crate) const ERROR_INFO: &Fields = &[
    one("reason", 1, Text),
    one("domain", 2, Text),
    map("metadata", 3, Text),
];
pub(crate) const BAD_REQUEST: &Fields = &[many("fieldViolations", 1, Message(VIOLATION))];
const VIOLATION: &Fields = &[one("field", 1, Text), one("description", 2, Text)];

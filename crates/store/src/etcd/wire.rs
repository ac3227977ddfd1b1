//! The part of etcd's API (version 3, `rpc.proto` and `kv.proto`) that Sealbus uses. Numbers are those of its fields.

use prost::{Enumeration, Message, Oneof};

/// The facts at the head of each answer.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "2")]
    pub(super) member: u64,
    /// The revision of the whole store when the request was carried out.
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// The revision of the transaction that made the key.
    #[prost(int64, tag = "2")]
    pub(super) created: i64,
    /// The revision of the transaction that wrote the value.
    #[prost(int64, tag = "3")]
    pub(super) written: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    /// The lease with which the key goes; 0 if it stays.
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

/// Reads the keys from `key` up to, but without, `end`; without `end`, `key` alone.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// The revision to read at; 0 for the present one.
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    /// Leaves the values out.
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Found {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) rows: Vec<KeyValue>,
    /// Whether there are more keys than the limit.
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    /// The lease with which the key goes; 0 if it stays.
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

/// Deletes the keys from `key` up to, but without, `end`; without `end`, `key` alone.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Operation {
    #[prost(oneof = "Operations", tags = "1, 2, 3")]
    pub(super) is: Option<Operations>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Operations {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
}

/// Demands that the revision that wrote a key is this one; 0 if there is no such key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// Equal.
    #[prost(enumeration = "Relation", tag = "1")]
    relation: i32,
    #[prost(enumeration = "Target", tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    // It belongs to a `oneof`, so 0 must be written, too.
    #[prost(int64, optional, tag = "6")]
    written: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
enum Relation {
    Equal = 0,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
enum Target {
    Version = 0,
    /// The revision that wrote the key.
    Written = 2,
}

/// Does `success` if all comparisons hold, else `failure`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Transaction {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<Operation>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Outcome {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) answers: Vec<Answer>,
}

/// The answer to one operation of a transaction: only rows that were read are of use.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Answer {
    #[prost(message, optional, tag = "1")]
    pub(super) found: Option<Found>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    pub(super) version: String,
    /// The size of the member's database, in bytes.
    #[prost(int64, tag = "3")]
    pub(super) size: i64,
    /// The member that leads; 0 if none does.
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Members {
    #[prost(message, repeated, tag = "2")]
    pub(super) members: Vec<Member>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Member {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) addresses: Vec<String>,
}

/// Asks for the alarms that are raised.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AlarmQuestion {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Alarms {
    #[prost(message, repeated, tag = "2")]
    pub(super) alarms: Vec<Alarm>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Alarm {
    #[prost(uint64, tag = "1")]
    pub(super) member: u64,
    /// 1: no space; 2: corrupt.
    #[prost(int32, tag = "2")]
    pub(super) kind: i32,
}

/// Asks for a lease of so many seconds.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Granting {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
}

/// A lease, and the seconds that it lives from now on; 0 if there is no such lease.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Granted {
    #[prost(int64, tag = "2")]
    pub(super) lease: i64,
    #[prost(int64, tag = "3")]
    pub(super) seconds: i64,
}

/// Lets a lease live for its whole time again. etcd takes a stream of these; one alone is such a stream.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Renewing {
    #[prost(int64, tag = "1")]
    pub(super) lease: i64,
}

/// Ends a lease, and deletes its keys.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Revoking {
    #[prost(int64, tag = "1")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Revoked {}

/// Asks for the changes of keys. The answers go on until the stream of questions ends.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchQuestion {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<Watching>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Watching {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

/// Changes of watched keys. Without a change, it is about the watch itself.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Watched {
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

/// A change. The changed row is read in another way.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {}

impl Range {
    pub(super) fn one(key: Vec<u8>) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }
}

impl Compare {
    /// Demands that the revision `written` wrote `key`; 0 if there is to be no such key.
    pub(super) fn last_write(key: Vec<u8>, written: i64) -> Self {
        Self {
            relation: Relation::Equal as i32,
            target: Target::Written as i32,
            key,
            written: Some(written),
        }
    }
}

impl Operation {
    pub(super) fn read(key: Vec<u8>) -> Self {
        Self {
            is: Some(Operations::Range(Range::one(key))),
        }
    }

    /// Looks for the first key from `key` up to, but without, `end`; without `end`, for `key` alone. It reads no value.
    pub(super) fn look(key: Vec<u8>, end: Vec<u8>) -> Self {
        let range = Range {
            key,
            end,
            limit: 1,
            keys_only: true,
            ..Range::default()
        };
        Self {
            is: Some(Operations::Range(range)),
        }
    }

    pub(super) fn put(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self::put_for(0, key, value)
    }

    pub(super) fn put_for(lease: i64, key: Vec<u8>, value: Vec<u8>) -> Self {
        Self {
            is: Some(Operations::Put(Put { key, value, lease })),
        }
    }

    pub(super) fn delete(key: Vec<u8>) -> Self {
        Self::delete_range(key, Vec::new())
    }

    /// Deletes the keys from `key` up to, but without, `end`.
    pub(super) fn delete_range(key: Vec<u8>, end: Vec<u8>) -> Self {
        Self {
            is: Some(Operations::Delete(Delete { key, end })),
        }
    }
}

/// A request, its path and its answer.
pub(super) trait Request: Message + Clone + 'static {
    type Answer: Message + Default + 'static;
    const PATH: &'static str;
}

macro_rules! requests {
    ($($request:ty => $path:literal, $answer:ty;)*) => {$(
        impl Request for $request {
            type Answer = $answer;
            const PATH: &'static str = $path;
        }
    )*};
}

requests! {
    Range => "/etcdserverpb.KV/Range", Found;
    Transaction => "/etcdserverpb.KV/Txn", Outcome;
    Granting => "/etcdserverpb.Lease/LeaseGrant", Granted;
    Renewing => "/etcdserverpb.Lease/LeaseKeepAlive", Granted;
    Revoking => "/etcdserverpb.Lease/LeaseRevoke", Revoked;
    WatchQuestion => "/etcdserverpb.Watch/Watch", Watched;
    StatusQuestion => "/etcdserverpb.Maintenance/Status", Status;
    AlarmQuestion => "/etcdserverpb.Maintenance/Alarm", Alarms;
    MembersQuestion => "/etcdserverpb.Cluster/MemberList", Members;
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusQuestion {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MembersQuestion {}

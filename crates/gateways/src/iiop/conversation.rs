//! Calls of `message` on one connection, and their replies.
//!
//! FIPA00075 declares `message` oneway. It is called with a reply all the same: every known ORB sends one, empty, and
//! only the reply says that the platform has the message, that its object is elsewhere, or that it refuses.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use sealbus_giop::cdr::ByteOrder;
use sealbus_giop::mts::MESSAGE;
use sealbus_giop::{
    Assembler, AssemblyLimits, Body, CodeSet, CodeSets, IiopProfile, Ior, Message, Reply,
    ReplyStatus, Request, Response, SystemException,
};

use super::own::keeps_order;
use crate::address::Address;
use crate::conversation::{Heard, PeerConversation};
use crate::queue::Verdict;

/// The longest reply, in bytes. Some ORBs send a whole stack trace with an exception.
const LONGEST_REPLY: usize = 256 << 10;
/// The most replies that nobody asked for.
const MOST_STRAYS: usize = 64;
/// How long a reply in parts may take. Some ORBs never send its end.
const UNFINISHED: Duration = Duration::from_secs(30);

pub(crate) struct IiopConversation {
    profile: IiopProfile,
    code_set: CodeSet,
    assembler: Assembler,
    next: u32,
    /// The numbers of the unanswered requests, in order.
    unanswered: VecDeque<u32>,
    /// The replies to requests behind the first unanswered one: replies overtake each other.
    early: HashMap<u32, Verdict>,
    strays: usize,
}

/// The character set in which a server reads strings. A server that has UTF-8 only as a conversion gets ISO 8859-1:
/// JADE loses messages with other characters in the envelope.
pub(crate) fn code_set(profile: &IiopProfile) -> CodeSet {
    match profile.code_sets() {
        Some(sets) if sets.native == CodeSet::Utf8 => CodeSet::Utf8,
        _ => CodeSet::Latin1,
    }
}

impl IiopConversation {
    pub(crate) fn new(profile: IiopProfile) -> Self {
        Self {
            code_set: code_set(&profile),
            profile,
            assembler: Assembler::new(AssemblyLimits::of_messages(LONGEST_REPLY)),
            next: 0,
            unanswered: VecDeque::new(),
            early: HashMap::new(),
            strays: 0,
        }
    }

    fn reply(&mut self, reply: &Reply, body: Body<'_>) -> Result<Option<Heard>, String> {
        if !self.unanswered.contains(&reply.id) {
            self.strays += 1;
            if self.strays > MOST_STRAYS {
                return Err("it sends replies that nobody asked for".to_owned());
            }
            return Ok(None);
        }
        let unread = |error| format!("its reply cannot be read: {error}");
        let verdict = match reply.status {
            ReplyStatus::NoException => Verdict::Taken,
            ReplyStatus::SystemException => {
                let exception = SystemException::decode(&mut body.decoder()).map_err(unread)?;
                let name = format!("{} ({:#x})", exception.name(), exception.minor);
                if exception.is_transient() {
                    Verdict::Later(name)
                } else {
                    Verdict::Refused(name)
                }
            }
            ReplyStatus::LocationForward | ReplyStatus::LocationForwardPermanently => {
                let ior = Ior::decode(&mut body.decoder()).map_err(unread)?;
                let first = ior.iiop_profiles().find(|it| it.port != 0);
                let profile = first.ok_or("it names another place without a way over TCP")?;
                return Ok(Some(Heard::Elsewhere(Address::Iiop(profile))));
            }
            ReplyStatus::UserException => Verdict::Refused("an exception of its own".to_owned()),
            ReplyStatus::NeedsAddressingMode => {
                Verdict::Refused("NEEDS_ADDRESSING_MODE".to_owned())
            }
        };
        self.early.insert(reply.id, verdict);
        Ok(None)
    }
}

impl PeerConversation for IiopConversation {
    fn write(&mut self, request: &[u8], out: &mut Vec<u8>) {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.unanswered.push_back(id);
        let mut call = Request::new(id, Response::Wanted, &self.profile.key, MESSAGE);
        if id == 0 {
            let char_set = self.code_set;
            call.contexts.push(CodeSets { char_set }.to_context());
        }
        let version = self.profile.version;
        out.extend(call.encode(version, ByteOrder::Big, |out| out.raw(request)));
    }

    fn window(&self) -> Option<usize> {
        (!keeps_order(&self.profile)).then_some(1)
    }

    fn push(&mut self, bytes: &[u8]) {
        self.assembler.push(bytes);
    }

    fn hear(&mut self) -> Result<Option<Heard>, String> {
        loop {
            let first = self.unanswered.front();
            if let Some(verdict) = first.and_then(|id| self.early.remove(id)) {
                self.unanswered.pop_front();
                return Ok(Some(Heard::Answer {
                    verdict,
                    keeps_open: true,
                }));
            }
            let now = Instant::now();
            if let Some(limit) = now.checked_sub(UNFINISHED) {
                self.assembler.forget_older_than(limit);
            }
            let next = self.assembler.next_message(now);
            let Some(whole) = next.map_err(|error| error.to_string())? else {
                return Ok(None);
            };
            let message = Message::decode(&whole.header, &whole.bytes);
            match message.map_err(|error| format!("its reply cannot be read: {error}"))? {
                Message::Reply(reply, body) => {
                    if let Some(heard) = self.reply(&reply, body)? {
                        return Ok(Some(heard));
                    }
                }
                Message::CloseConnection => return Ok(Some(Heard::Closed)),
                Message::MessageError => {
                    return Err("it did not understand a message of GIOP".to_owned());
                }
                // A server asks nothing on a connection that we made.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sealbus_giop::{Completed, Header, Version, close_connection};

    use super::*;

    fn conversation() -> IiopConversation {
        IiopConversation::new(IiopProfile {
            version: Version::V1_2,
            host: "h".to_owned(),
            port: 9000,
            key: b"key".to_vec(),
            components: Vec::new(),
        })
    }

    fn reply(id: u32) -> Vec<u8> {
        Reply::new(id, ReplyStatus::NoException).encode(Version::V1_2, ByteOrder::Little, |_| {})
    }

    fn exception(id: u32, name: &str) -> Vec<u8> {
        let exception = SystemException {
            id: format!("IDL:omg.org/CORBA/{name}:1.0").into_bytes(),
            minor: 1,
            completed: Completed::No,
        };
        let reply = Reply::new(id, ReplyStatus::SystemException);
        reply.encode(Version::V1_2, ByteOrder::Big, |out| exception.encode(out))
    }

    fn verdict(heard: Result<Option<Heard>, String>) -> Option<Verdict> {
        match heard.unwrap() {
            Some(Heard::Answer { verdict, .. }) => Some(verdict),
            other => {
                assert!(other.is_none(), "{other:?}");
                None
            }
        }
    }

    #[test]
    fn replies_that_overtake_each_other_are_told_in_order() {
        let mut it = conversation();
        let mut out = Vec::new();
        for _ in 0..3 {
            it.write(b"1234", &mut out);
        }
        it.push(&reply(2));
        it.push(&exception(1, "NO_PERMISSION"));
        assert_eq!(verdict(it.hear()), None);
        it.push(&reply(0));
        assert_eq!(verdict(it.hear()), Some(Verdict::Taken));
        assert!(matches!(verdict(it.hear()), Some(Verdict::Refused(_))));
        assert_eq!(verdict(it.hear()), Some(Verdict::Taken));
        assert_eq!(verdict(it.hear()), None);
        // Only the first request says which character set follows.
        let first = Header::read(out.first_chunk().unwrap()).unwrap();
        let second = &out[12 + first.size as usize..];
        let second = Header::read(second.first_chunk().unwrap()).unwrap();
        assert!(first.size > second.size);
    }

    #[test]
    fn what_a_server_says_is_understood() {
        let mut it = conversation();
        it.write(b"", &mut Vec::new());
        it.push(&exception(0, "TRANSIENT"));
        assert!(matches!(verdict(it.hear()), Some(Verdict::Later(_))));
        it.push(&close_connection(Version::V1_0));
        assert!(matches!(it.hear(), Ok(Some(Heard::Closed))));

        let mut it = conversation();
        it.write(b"", &mut Vec::new());
        let there = IiopProfile {
            host: "there".to_owned(),
            ..it.profile.clone()
        };
        let ior = Ior::new("IDL:FIPA/MTS:1.0", &there);
        let forward = Reply::new(0, ReplyStatus::LocationForward);
        it.push(&forward.encode(Version::V1_2, ByteOrder::Big, |out| ior.encode(out)));
        match it.hear() {
            Ok(Some(Heard::Elsewhere(Address::Iiop(found)))) => assert_eq!(found, there),
            other => panic!("{other:?}"),
        }

        it.push(&sealbus_giop::message_error(Version::V1_2));
        assert!(it.hear().is_err());
    }

    #[test]
    fn only_a_server_that_keeps_their_order_gets_several_requests_at_once() {
        assert_eq!(conversation().window(), Some(1));
        let own = crate::iiop::OwnObject::new("factory", "h".to_owned(), 9000);
        assert_eq!(IiopConversation::new(own.profile).window(), None);
    }

    #[test]
    fn a_server_that_never_stops_answering_is_left() {
        let mut it = conversation();
        for _ in 0..=MOST_STRAYS {
            it.push(&reply(7));
        }
        assert!(it.hear().is_err());
    }
}

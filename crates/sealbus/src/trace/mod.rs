//! The context of a trace in messages, after [W3C](https://www.w3.org/TR/trace-context/), and spans of OpenTelemetry.
//!
//! A message that belongs to a trace names the trace in the user-defined parameters `X-traceparent` and `X-tracestate`.
//! The sender may claim any trace: nothing proves these parameters.
//!
//! With the feature `telemetry`, agents join the traces of the crate `opentelemetry`. A message that an agent sends
//! while a span is current gets a span of its own, and carries that span. A message that carries a context is handled
//! in a span below it, which is current in the handler. The program's own spans join in. Spans of the crate `tracing`
//! do so if `tracing-opentelemetry` exports them. The program's global tracer provider decides where the spans go.
//! Without a provider there are no spans.

#[cfg(feature = "telemetry")]
mod spans;
#[cfg(not(feature = "telemetry"))]
mod untold;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use sealbus_bus::{Delegation, Provenance};
use sealbus_fipa::{AclMessage, Aid};

#[cfg(feature = "telemetry")]
use spans as telling;
#[cfg(not(feature = "telemetry"))]
use untold as telling;

pub(crate) use telling::{Sending, failed};

const PARENT: &str = "X-traceparent";
const STATE: &str = "X-tracestate";

/// The longest `tracestate` that is passed on, in characters. A longer one is left out, as W3C permits.
const LONGEST_STATE: usize = 512;

/// Prepares a message for its receivers: it names those on whose behalf it is sent, and the trace to which its work belongs.
pub(crate) fn sending(
    agent: &Aid,
    message: impl Into<Arc<AclMessage>>,
) -> (Arc<AclMessage>, Sending) {
    telling::sending(agent, Delegation::carried(message.into()))
}

/// Like [`sending`], for a message to a channel.
pub(crate) fn publishing(
    agent: &str,
    operation: &'static str,
    channel: &str,
    message: impl Into<Arc<AclMessage>>,
) -> (Arc<AclMessage>, Sending) {
    let message = Delegation::carried(message.into());
    telling::publishing(agent, operation, channel, message)
}

/// The handling of a message. The messages that it sends are on behalf of the message's sender, and a span of the
/// message's trace lasts as long as it.
pub(crate) struct Handling {
    told: telling::Handling,
    asked: Delegation,
}

impl Handling {
    pub(crate) fn of(
        agent: &Aid,
        message: &AclMessage,
        provenance: &Provenance,
        channel: Option<&str>,
    ) -> Self {
        Self {
            told: telling::Handling::of(agent, message, provenance, channel),
            asked: Delegation::by(&message.view()),
        }
    }

    /// Makes this work a part of the handling.
    pub(crate) fn within<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        self.asked.clone().carry(self.told.within(work))
    }

    /// Makes this call a part of the handling.
    pub(crate) fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let asked = self.asked.clone();
        asked.carry_in(|| self.told.enter(work))
    }
}

/// The place of a message in a trace.
///
/// ```
/// use sealbus::trace::TraceContext;
///
/// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let context = TraceContext::new(parent, None).ok_or("no traceparent")?;
/// assert_eq!(context.traceparent(), parent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    flags: u8,
    state: Option<String>,
}

tokio::task_local! {
    static CARRIED: TraceContext;
}

impl TraceContext {
    /// Reads W3C's `traceparent` and `tracestate`. `None` if `traceparent` is not valid. A `tracestate` that is too
    /// long or not plain text is left out.
    pub fn new(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let text = traceparent.trim();
        let version = hex(text.get(..2)?)?;
        let is_whole = match text.as_bytes().get(55) {
            None => true,
            // A later version may say more.
            Some(next) => version > 0 && *next == b'-',
        };
        let dashes = [2, 35, 52].map(|place| text.as_bytes().get(place));
        if version == 0xff || !is_whole || dashes != [Some(&b'-'); 3] {
            return None;
        }
        let trace = hex(text.get(3..35)?)?;
        let span = u64::try_from(hex(text.get(36..52)?)?).ok()?;
        let flags = u8::try_from(hex(text.get(53..55)?)?).ok()?;
        let is_plain = |state: &&str| {
            (1..=LONGEST_STATE).contains(&state.len())
                && state.bytes().all(|it| (b' '..=b'~').contains(&it))
        };
        (trace != 0 && span != 0).then(|| Self {
            trace,
            span,
            flags,
            state: tracestate.filter(is_plain).map(str::to_owned),
        })
    }

    /// The context that a message carries, if it carries one.
    pub fn of(message: &AclMessage) -> Option<Self> {
        if message.user_defined.is_empty() {
            return None;
        }
        let text = |name| message.user_defined_value(name).and_then(|it| it.as_str());
        Self::new(text(PARENT)?, text(STATE))
    }

    /// The value of W3C's `traceparent`.
    pub fn traceparent(&self) -> String {
        let Self {
            trace, span, flags, ..
        } = self;
        format!("00-{trace:032x}-{span:016x}-{flags:02x}")
    }

    /// The value of W3C's `tracestate`.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Does this work so that the messages that agents send in it carry this context, unless they are sent in a span. A
    /// task that the work spawns does not belong to it.
    pub async fn carry<F: Future>(self, work: F) -> F::Output {
        CARRIED.scope(self, work).await
    }

    /// The message with this context, which replaces any other.
    fn put_into(self, mut message: Arc<AclMessage>) -> Arc<AclMessage> {
        let parameters = &mut Arc::make_mut(&mut message).user_defined;
        let is_context = |name: &str| {
            [PARENT, STATE]
                .iter()
                .any(|it| name.eq_ignore_ascii_case(it))
        };
        parameters.retain(|(name, _)| !is_context(name));
        parameters.push((PARENT.to_owned(), self.traceparent().into()));
        if let Some(state) = self.state {
            parameters.push((STATE.to_owned(), state.into()));
        }
        message
    }
}

/// `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.traceparent())
    }
}

/// Reads a number in lowercase hexadecimal digits.
fn hex(text: &str) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if !text.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

/// The message with the context that its work [carries](TraceContext::carry).
fn carried(message: Arc<AclMessage>) -> Arc<AclMessage> {
    match CARRIED.try_with(Clone::clone) {
        Ok(context) => context.put_into(message),
        Err(_) => message,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::acl::Performative;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_a_traceparent_is_read_as_one() {
        let read = |text: &str| TraceContext::new(text, None).map(|it| it.traceparent());
        assert_eq!(read(GIVEN).as_deref(), Some(GIVEN));
        let later = GIVEN.replacen("00", "cc", 1);
        assert_eq!(read(&later).as_deref(), Some(GIVEN));
        assert_eq!(read(&format!("{later}-more")).as_deref(), Some(GIVEN));
        let wrong = [
            "",
            "00",
            &GIVEN[..54],
            &GIVEN.to_uppercase(),
            &format!("{GIVEN}-more"),
            &format!("{later}more"),
            &GIVEN.replacen("00", "ff", 1),
            &GIVEN.replace('-', "_"),
            &GIVEN.replace("b7ad6b7169203331", "0000000000000000"),
            &GIVEN.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &GIVEN.replace("0a", "+a"),
            "00-½½½½½½½½½½½½½½½½-b7ad6b7169203331-01",
        ];
        for text in wrong {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_state_that_is_too_long_or_no_plain_text_is_left_out() {
        let state = |text: &str| TraceContext::new(GIVEN, Some(text))?.state;
        assert_eq!(state("a=1,b=2").as_deref(), Some("a=1,b=2"));
        assert_eq!(state(&"x".repeat(LONGEST_STATE + 1)), None);
        assert_eq!(state(""), None);
        assert_eq!(state("a=\u{202e}"), None);
    }

    #[tokio::test]
    async fn what_is_sent_in_the_work_carries_the_context() {
        let message = AclMessage::new(Performative::Inform)
            .with_user_defined("x-TraceParent", "old")
            .with_user_defined("X-colour", "red");
        let message = Arc::new(message);
        assert_eq!(carried(message.clone()), message);
        let context = TraceContext::new(GIVEN, Some("a=1")).unwrap();
        let sent = context
            .clone()
            .carry(async { carried(message.clone()) })
            .await;
        assert_eq!(TraceContext::of(&sent), Some(context));
        assert_eq!(sent.user_defined.len(), 3);
        assert_eq!(TraceContext::of(&message), None);
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_as_it_is_read(
            parent in "\\PC*|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?",
            state in ".{0,600}",
        ) {
            if let Some(context) = TraceContext::new(&parent, Some(&state)) {
                let again = TraceContext::new(&context.traceparent(), context.tracestate());
                prop_assert_eq!(again, Some(context));
            }
        }
    }
}

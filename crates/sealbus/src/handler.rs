//! Handlers that run beside the hooks, several at a time.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sealbus_bus::ReceivedMessage;
use sealbus_fipa::{AclMessage, Performative};
use tokio::sync::Semaphore;

use crate::context::Voice;
use crate::filter::Filter;
use crate::labour::{Labour, LabourPermit};
use crate::message::Message;
use crate::supervision::{AgentResult, AtFault, answer};
use crate::trace::Handling;

type Work = dyn Fn(Voice, Message) -> BoxFuture<'static, AgentResult> + Send + Sync;

struct Handler {
    takes: Filter,
    places: Arc<Semaphore>,
    work: Arc<Work>,
}

/// The handlers of an agent.
#[derive(Default)]
pub(crate) struct Handlers(Vec<Handler>);

impl Handlers {
    pub(crate) fn add<F, W>(&mut self, takes: Filter, concurrency: usize, handler: F)
    where
        F: Fn(Voice, Message) -> W + Send + Sync + 'static,
        W: Future<Output = AgentResult> + Send + 'static,
    {
        self.0.push(Handler {
            takes,
            places: Arc::new(Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS))),
            work: Arc::new(move |voice, message| handler(voice, message).boxed()),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn taker(&self, received: &ReceivedMessage) -> Option<&Handler> {
        let message = received.message();
        self.0.iter().find(|it| it.takes.takes(&message))
    }

    /// Whether a message must wait until its handler has room.
    pub(crate) fn is_waiting(&self, received: &ReceivedMessage) -> bool {
        let taker = self.taker(received);
        taker.is_some_and(|handler| handler.places.available_permits() == 0)
    }

    /// Gives a message to the handler that takes it. Returns the message if there is no such handler.
    pub(crate) fn handle(
        &self,
        received: ReceivedMessage,
        voice: &Voice,
        labour: &Labour,
    ) -> Option<ReceivedMessage> {
        let Some(handler) = self.taker(&received) else {
            return Some(received);
        };
        let Some(place) = labour.place(&handler.places) else {
            return Some(received);
        };
        let message = Message::new(received);
        let (work, voice) = (handler.work.clone(), voice.clone());
        labour.employ(run(work, message, voice, labour.clone(), place));
        None
    }
}

async fn run(
    work: Arc<Work>,
    message: Message,
    voice: Voice,
    labour: Labour,
    _place: LabourPermit,
) {
    let _at_work = labour.work().await;
    voice.clock.note();
    let origin = message.shared();
    let handling = Handling::of(voice.aid(), &origin, message.provenance(), None);
    let mut cut_off = CutOff(Some((&voice, &*origin)));
    let done = labour.guard(async { work(voice.clone(), message).await });
    let done = handling.within(done).await;
    cut_off.0 = None;
    if let Err(error) = done {
        if voice.is_only_stopped(&*error) {
            voice.tell_cut_off(&origin);
            return;
        }
        let (fault, failed) = handling.enter(|| voice.answer_error(&origin, error));
        if fault == AtFault::Agent {
            labour.report(failed.handled, failed.error);
        }
    }
}

/// Tells the sender of a message, if a handler is cut off.
struct CutOff<'a>(Option<(&'a Voice, &'a AclMessage)>);

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        if let Some((voice, message)) = self.0 {
            voice.tell_cut_off(message);
        }
    }
}

impl Voice {
    fn tell_cut_off(&self, message: &AclMessage) {
        let reason = "it was cut off before it was done".to_owned();
        if let Some(word) = answer(message, Performative::Failure, reason) {
            self.tell(self.farewell(word));
        }
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|it| &it.takes))
            .finish()
    }
}

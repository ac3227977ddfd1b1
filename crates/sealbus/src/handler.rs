//! Handlers that run beside the hooks, several at a time.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sealbus_bus::ReceivedMessage;
use sealbus_fipa::{AclMessage, Performative};
use tokio::sync::Semaphore;

use crate::context::Voice;
use crate::fault::AtFault;
use crate::filter::Filter;
use crate::labour::{Beginning, Labour, LabourPermit};
use crate::message::Message;
use crate::supervision::{AgentResult, answer};
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
        let beginning = labour.begin(&received);
        let message = Message::new(received);
        let (work, voice) = (handler.work.clone(), voice.clone());
        // The task may be cut off before it begins.
        let taken = Taken {
            cut_off: Some((voice.clone(), message.shared())),
            _place: place,
        };
        labour.employ(run(work, message, voice, labour.clone(), taken, beginning));
        None
    }
}

async fn run(
    work: Arc<Work>,
    message: Message,
    voice: Voice,
    labour: Labour,
    mut taken: Taken,
    beginning: Option<Beginning>,
) {
    voice.clock.note();
    let origin = message.shared();
    let handling = Handling::of(voice.aid(), &origin, message.provenance(), None);
    let done = labour.guard(async { work(voice.clone(), message).await });
    let mut done = pin!(handling.within(done));
    let first = poll_fn(|waiting| Poll::Ready(done.as_mut().poll(waiting))).await;
    drop(beginning);
    let done = match first {
        Poll::Ready(done) => done,
        Poll::Pending => done.await,
    };
    taken.cut_off = None;
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

/// A message that a handler has taken. If the handler is cut off, the sender is told before the agent comes to rest.
struct Taken {
    cut_off: Option<(Voice, Arc<AclMessage>)>,
    _place: LabourPermit,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some((voice, message)) = &self.cut_off {
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

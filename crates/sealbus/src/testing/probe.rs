//! Agents of the test itself.

use std::fmt::{self, Debug};
use std::future::{Future, IntoFuture};
use std::ops::Deref;
use std::pin::Pin;
use std::time::Duration;

use super::clock::VirtualClock;
use crate::body::Body;
use crate::context::{Context, Voice};
use crate::filter::Filter;
use crate::message::Message;

/// How long a probe waits by default, by the clock of the test bed.
const PATIENCE: Duration = Duration::from_secs(5);

/// An agent of the test: the test decides its acts and reads its messages. It has all methods of a [`Voice`].
#[derive(Debug)]
pub struct Probe {
    context: Context,
    clock: VirtualClock,
}

impl Probe {
    pub(super) fn new(context: Context, clock: VirtualClock) -> Probe {
        Probe { context, clock }
    }

    /// Expects that `filter` takes the next message. Lets at most 5 s pass until the message comes.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use sealbus::Performative;
    /// # async fn test(probe: &mut sealbus::testing::Probe) {
    /// let bill = probe.expect(Performative::Inform).text("2.50").within(Duration::from_secs(60)).await;
    /// assert_eq!(bill.sender_name(), "waiter@home");
    /// # }
    /// ```
    ///
    /// # Panics
    /// When awaited, if another message comes, or none.
    pub fn expect(&mut self, filter: impl Into<Filter>) -> Expectation<'_> {
        Expectation {
            probe: self,
            filter: filter.into(),
            body: None,
            limit: PATIENCE,
        }
    }

    /// Expects that no message comes while this much time passes.
    ///
    /// # Panics
    /// If a message comes.
    pub async fn expect_nothing(&mut self, time: Duration) {
        self.clock.advance(time).await;
        if let Some(message) = self.context.try_receive(Filter::any()) {
            panic!(
                "{} expected nothing, and got {}",
                self.name(),
                shown(&message)
            );
        }
    }
}

impl Deref for Probe {
    type Target = Voice;

    fn deref(&self) -> &Voice {
        &self.context
    }
}

type Check = Box<dyn Fn(&Message) -> Result<(), String> + Send>;

/// A message that a probe expects; see [`Probe::expect`]. Await this value.
pub struct Expectation<'a> {
    probe: &'a mut Probe,
    filter: Filter,
    body: Option<Check>,
    limit: Duration,
}

impl Expectation<'_> {
    /// Expects this text as the content.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.body = Some(Box::new(move |message| match message.text() {
            Ok(found) if found == text => Ok(()),
            _ => Err(format!("the text {text:?}")),
        }));
        self
    }

    /// Expects this value as the body.
    #[must_use]
    pub fn body<B: Body + PartialEq + Debug + Send + 'static>(mut self, body: B) -> Self {
        self.body = Some(Box::new(move |message| match message.body::<B>() {
            Ok(found) if found == body => Ok(()),
            Ok(found) => Err(format!("{body:?}, not {found:?}")),
            Err(problem) => Err(format!("{body:?} ({problem})")),
        }));
        self
    }

    /// Lets at most this much time pass.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.limit = time;
        self
    }

    async fn meet(self) -> Message {
        let Expectation {
            probe,
            filter,
            body,
            limit,
        } = self;
        let (clock, name) = (probe.clock.clone(), probe.context.name().to_owned());
        let received = clock.run_within(limit, probe.context.receive(Filter::any()));
        let message = match received.await {
            Ok(Ok(message)) => message,
            Ok(Err(error)) => panic!("{name} expected {filter}: {error}"),
            Err(_) => panic!("{name} expected {filter} within {limit:?}, and nothing came"),
        };
        if !filter.takes(&message.view()) {
            panic!("{name} expected {filter}, and got {}", shown(&message));
        }
        if let Some(Err(expected)) = body.map(|check| check(&message)) {
            panic!("{name} expected {expected}, and got {}", shown(&message));
        }
        message
    }
}

impl<'a> IntoFuture for Expectation<'a> {
    type Output = Message;
    type IntoFuture = Pin<Box<dyn Future<Output = Message> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.meet())
    }
}

impl Debug for Expectation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expectation")
            .field("filter", &self.filter.to_string())
            .field("within", &self.limit)
            .finish_non_exhaustive()
    }
}

fn shown(message: &Message) -> String {
    match message.text() {
        Ok(text) => {
            let text: String = text.chars().take(500).collect();
            format!("{message}: {text}")
        }
        Err(_) => message.to_string(),
    }
}

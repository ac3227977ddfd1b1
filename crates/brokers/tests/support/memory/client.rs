//! Connections to the broker in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::SystemTime;

use sealbus_brokers::{
    Answer, BrokerDelivery, BrokerEnvelope, BrokerFailure, BrokerPromise, BrokerSecurity, Client,
    Condition, Death, Owner, Queue, Receiving, Sending,
};
use sealbus_bus::{Acknowledgement, BoxFuture};
use sealbus_seal::{Identity, Timestamp};

use super::{Connection, Deliveries, MemoryBroker, Publications, Work, broken};

pub(super) struct MemoryClient {
    pub(super) broker: MemoryBroker,
    pub(super) way: u64,
    pub(super) security: BrokerSecurity,
    pub(super) promise: BrokerPromise,
}

impl MemoryClient {
    fn open(&self, owner: &Owner, work: Work) -> Result<MemoryConnection, BrokerFailure> {
        let identity = match &self.security {
            BrokerSecurity::None(_) | BrokerSecurity::Tls(..) => None,
            BrokerSecurity::Auth(trust) | BrokerSecurity::Signed(trust) => {
                let credential = owner.credential.as_ref();
                let credential = credential.ok_or_else(|| BrokerFailure::new("no certificate"))?;
                let now = Timestamp::from(SystemTime::now());
                let chain = credential.chain();
                let verified = trust.verify(chain, now).map_err(BrokerFailure::new)?;
                Some(verified.identity().clone())
            }
        };
        let mut state = self.broker.state();
        let is_admitted =
            |identity: &Identity| state.accounts.iter().any(|it| it.identity == *identity);
        if state.closed.contains(&self.way) || !identity.as_ref().is_none_or(is_admitted) {
            return Err(BrokerFailure::new("not let in"));
        }
        if let Work::Receives(deliveries) = &work
            && !state.queues.contains_key(&deliveries.queue)
        {
            return Err(BrokerFailure::new("there is no such queue"));
        }
        state.next += 1;
        let number = state.next;
        let connection = Connection {
            way: self.way,
            user: identity.map(|identity| identity.to_string()),
            work,
            waker: None,
        };
        state.connections.insert(number, connection);
        Ok(MemoryConnection {
            broker: self.broker.clone(),
            number,
            may_have_lost: false,
        })
    }
}

impl Client for MemoryClient {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn acknowledgement(&self) -> Option<Acknowledgement> {
        (self.promise == BrokerPromise::Durable).then_some(Acknowledgement::OnDisk)
    }

    fn identity_of(&self, user: &str) -> Option<Identity> {
        user.parse().ok()
    }

    fn open_sending<'a>(
        &'a self,
        _: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Box<dyn Sending>, BrokerFailure>> {
        Box::pin(async {
            let work = Work::Publishes(Publications::default());
            let mut connection = self.open(owner, work)?;
            let is_new = self.broker.state().marks.insert(owner.queue.clone());
            connection.may_have_lost = is_new && self.promise == BrokerPromise::Transient;
            Ok(Box::new(connection) as Box<dyn Sending>)
        })
    }

    fn open_receiving<'a>(
        &'a self,
        _: &'a str,
        owner: &'a Owner,
        prefetch: u16,
    ) -> BoxFuture<'a, Result<Box<dyn Receiving>, BrokerFailure>> {
        Box::pin(async move {
            let work = Work::Receives(Deliveries {
                queue: Queue {
                    owner: owner.queue.clone(),
                    promise: self.promise,
                },
                prefetch: prefetch.into(),
                next: 0,
                open: BTreeMap::new(),
            });
            Ok(Box::new(self.open(owner, work)?) as Box<dyn Receiving>)
        })
    }
}

struct MemoryConnection {
    broker: MemoryBroker,
    number: u64,
    may_have_lost: bool,
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.broker.state().cut(self.number);
    }
}

impl Sending for MemoryConnection {
    fn may_have_lost(&self) -> bool {
        self.may_have_lost
    }

    fn publish(&mut self, order: u64, envelope: BrokerEnvelope) {
        {
            let mut state = self.broker.state();
            if let Some(Connection {
                work: Work::Publishes(publications),
                ..
            }) = state.connections.get_mut(&self.number)
            {
                publications.line.push_back((order, envelope));
            }
        }
        self.broker.begin_work();
    }

    fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(u64, Answer), BrokerFailure>> {
        let mut state = self.broker.state();
        let Some(connection) = state.connections.get_mut(&self.number) else {
            return Poll::Ready(Err(broken()));
        };
        let Work::Publishes(publications) = &mut connection.work else {
            return Poll::Ready(Err(broken()));
        };
        match publications.answers.pop_front() {
            Some(answer) => Poll::Ready(Ok(answer)),
            None => {
                connection.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn poll_condition(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Condition, BrokerFailure>> {
        let mut state = self.broker.state();
        match state.connections.get_mut(&self.number) {
            Some(connection) => {
                connection.waker = Some(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(Err(broken())),
        }
    }

    fn close(&mut self, _: &'static str) -> BoxFuture<'static, ()> {
        self.broker.state().cut(self.number);
        Box::pin(std::future::ready(()))
    }
}

impl Receiving for MemoryConnection {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<BrokerDelivery>, BrokerFailure>> {
        Box::pin(poll_fn(|context| {
            let mut state = self.broker.state();
            if state.loses && state.strikes(200) {
                state.cut(self.number);
            }
            state.deliver(self.number, context)
        }))
    }

    fn acknowledge(
        &mut self,
        up_to: Option<u64>,
        singles: &BTreeSet<u64>,
    ) -> Result<(), BrokerFailure> {
        let mut state = self.broker.state();
        // The broker is not told, so it delivers all of them again.
        if state.loses && state.strikes(200) {
            state.cut(self.number);
            return Err(broken());
        }
        if let Some(last) = up_to {
            let open = &state.receiver(self.number)?.open;
            let tags: Vec<u64> = open.range(..=last).map(|(tag, _)| *tag).collect();
            for tag in tags {
                state.take(self.number, tag)?;
            }
        }
        for tag in singles {
            state.take(self.number, *tag)?;
        }
        Ok(())
    }

    fn reject(&mut self, tag: u64) -> Result<(), BrokerFailure> {
        let mut state = self.broker.state();
        let queue = state.receiver(self.number)?.queue.clone();
        if let Some(message) = state.take(self.number, tag)? {
            state.bury(message, &queue.owner, Death::Refused);
        }
        Ok(())
    }

    fn close(self: Box<Self>, _: &'static str) -> BoxFuture<'static, ()> {
        self.broker.state().cut(self.number);
        Box::pin(std::future::ready(()))
    }
}

//! Requests to the node to keep items: in order, one after another, and repeated until the node has answered.

use std::future::Future;
use std::time::Duration;

use sealbus_bus::Moment;
use sealbus_bus::NotKept;
use tokio::sync::{mpsc, oneshot};

use sealbus_control::{Fault, FaultCode};

/// The most items that wait for the node.
const MOST_WAITING: usize = 4096;
/// The pause before the node is asked again.
const PAUSE: Duration = Duration::from_millis(100);

type Answered<A> = oneshot::Sender<Result<A, NotKept>>;

/// How the items of a [`NodeQueue`] are handled.
pub(super) trait Keeper: Send + Sync + 'static {
    /// The item to keep.
    type Item: Send + 'static;
    /// A numbered item in the node's form. The number lets the node recognise items that it has had already.
    type Prepared: Clone + Send + Sync + 'static;
    /// The node's answer about an item that it keeps.
    type Answer: Send + 'static;

    /// The most items and bytes of one request. A single item may have more bytes.
    const MOST: (usize, usize);

    /// The size of an item, in bytes.
    fn size(item: &Self::Item) -> usize;

    /// Prepares an item. Returns it with its expiry, or the reason why it cannot be kept.
    fn prepare(&mut self, item: Self::Item) -> Result<(Self::Prepared, Option<Moment>), NotKept>;

    /// Asks the node, which answers for each item in order.
    fn ask(
        &self,
        items: Vec<Self::Prepared>,
    ) -> impl Future<Output = Result<Vec<Result<Self::Answer, Fault>>, Fault>> + Send;
}

/// The queue of a process's items to its node. Submitted items go on as long as the queue is held.
pub(super) struct NodeQueue<K: Keeper>(mpsc::Sender<(K::Item, Answered<K::Answer>)>);

impl<K: Keeper> NodeQueue<K> {
    pub(super) fn start(keeper: K) -> Self {
        let (items, waiting) = mpsc::channel(MOST_WAITING);
        let carrying = Carrying {
            keeper,
            waiting,
            next: None,
        };
        tokio::spawn(carrying.run());
        Self(items)
    }

    /// Has an item kept. Returns when the node has answered.
    ///
    /// # Errors
    /// The reason why the item is not kept.
    pub(super) async fn keep(&self, item: K::Item) -> Result<K::Answer, NotKept> {
        let (answer, answered) = oneshot::channel();
        let gone = || NotKept("this process is leaving its platform".to_owned());
        self.0.send((item, answer)).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

struct Carrying<K: Keeper> {
    keeper: K,
    waiting: mpsc::Receiver<(K::Item, Answered<K::Answer>)>,
    /// The items that the previous request had no room for.
    next: Option<(K::Item, Answered<K::Answer>)>,
}

/// An item that the node has been or will be asked to keep.
struct Posted<K: Keeper> {
    item: K::Prepared,
    expiry: Option<Moment>,
    answer: Answered<K::Answer>,
}

impl<K: Keeper> Carrying<K> {
    async fn run(mut self) {
        loop {
            let first = match self.next.take() {
                Some(first) => first,
                None => match self.waiting.recv().await {
                    Some(first) => first,
                    None => return,
                },
            };
            let mut batch = self.batch(first);
            while !batch.is_empty() {
                batch = give(&self.keeper, batch).await;
            }
        }
    }

    /// The contents of one request.
    fn batch(&mut self, first: (K::Item, Answered<K::Answer>)) -> Vec<Posted<K>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut more = Some(first);
        while let Some((item, answer)) = more.take() {
            let size = K::size(&item);
            if batch.len() >= K::MOST.0 || (bytes > 0 && bytes + size > K::MOST.1) {
                self.next = Some((item, answer));
                break;
            }
            bytes += size;
            match self.keeper.prepare(item) {
                Ok((item, expiry)) => batch.push(Posted {
                    item,
                    expiry,
                    answer,
                }),
                Err(reason) => drop(answer.send(Err(reason))),
            }
            more = self.waiting.try_recv().ok();
        }
        batch
    }
}

/// Asks the node once. Returns the items that must be sent again. The node recognises items that it has had already.
async fn give<K: Keeper>(keeper: &K, batch: Vec<Posted<K>>) -> Vec<Posted<K>> {
    let items: Vec<K::Prepared> = batch.iter().map(|posted| posted.item.clone()).collect();
    let answers = match keeper.ask(items).await {
        Ok(answers) if answers.len() == batch.len() => answers,
        Ok(_) => return refuse(batch, &Fault::other_answer()),
        Err(fault) if fault.code == FaultCode::Unavailable => {
            tracing::debug!(%fault, "what is to be kept waits for the node");
            let waits = still_wanted(batch);
            tokio::time::sleep(PAUSE).await;
            return waits;
        }
        Err(fault) => return refuse(batch, &fault),
    };
    for (posted, answer) in batch.into_iter().zip(answers) {
        // The item is kept even if its sender no longer waits.
        let _ = posted
            .answer
            .send(answer.map_err(|fault| NotKept(fault.to_string())));
    }
    Vec::new()
}

fn refuse<K: Keeper>(batch: Vec<Posted<K>>, fault: &Fault) -> Vec<Posted<K>> {
    for posted in batch {
        let _ = posted.answer.send(Err(NotKept(fault.to_string())));
    }
    Vec::new()
}

/// The items that have not expired and that a task still waits for.
fn still_wanted<K: Keeper>(batch: Vec<Posted<K>>) -> Vec<Posted<K>> {
    let now = Moment::now();
    let mut waits = Vec::with_capacity(batch.len());
    for posted in batch {
        if posted.expiry.is_some_and(|at| at <= now) {
            let gone =
                "it expired while its node could not be reached; whether it was kept is not known";
            let _ = posted.answer.send(Err(NotKept(gone.to_owned())));
        } else if !posted.answer.is_closed() {
            waits.push(posted);
        }
    }
    waits
}

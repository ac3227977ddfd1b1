//! Messages that the platform keeps. Letters from this process's agents go to the node in batches. Letters for its
//! agents go into their mailboxes, and are reported as they are taken.

mod receipts;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_bus::Moment;
use sealbus_bus::{
    Acknowledgement, BoxFuture, Kept, KeptListener, KeptOutcome, Letter, NotKept, Post,
    RefusalReason, WeakBus, until,
};
use tokio::sync::{Notify, mpsc};

use super::Shared;
use super::again::again;
use super::freeze::Unreadable;
use super::node_queue::{Keeper, NodeQueue};
use receipts::{Next, Owed, Receipts};
use sealbus_control::attachment::ask;
use sealbus_control::clock::now;
use sealbus_control::host::Host;
use sealbus_control::names::AMS;
use sealbus_control::post::{
    Cover, DeliveredLetter, LetterOutcome, LetterRefusal, PostedLetter, Receipt,
};
use sealbus_control::{Blob, Fault, WaitingProvenance};
use sealbus_keeping::post::{MOST_POSTED, expiry_of, new_origin};

/// The longest pause before the node is asked again.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The most bytes of letters in one request.
const MOST_BYTES: usize = 4 << 20;
/// How long reports may be outstanding when their agent moves.
const LAST_REPORTS: Duration = Duration::from_secs(10);

/// The way out to the node.
pub(super) struct NodePost(NodeQueue<LetterKeeper>);

impl Post for NodePost {
    fn keep(&self, letter: Letter) -> BoxFuture<'_, Result<(), NotKept>> {
        Box::pin(self.0.keep(letter))
    }
}

impl NodePost {
    /// Opens a way out. Letters that were given to it go on as long as it is held.
    pub(super) fn start(host: Arc<dyn Host>, platform: String) -> Arc<Self> {
        let keeper = LetterKeeper {
            host,
            platform,
            origin: new_origin(),
            sequences: HashMap::new(),
        };
        Arc::new(Self(NodeQueue::start(keeper)))
    }
}

/// Letters on their way to the node.
struct LetterKeeper {
    host: Arc<dyn Host>,
    platform: String,
    origin: u64,
    /// The sequence numbers, by receiver.
    sequences: HashMap<String, u64>,
}

impl Keeper for LetterKeeper {
    type Item = Letter;
    type Prepared = PostedLetter;
    type Answer = ();

    const MOST: (usize, usize) = (MOST_POSTED, MOST_BYTES);

    fn size(letter: &Letter) -> usize {
        letter.message.len() + letter.evidence.as_ref().map_or(0, Vec::len)
    }

    fn prepare(&mut self, letter: Letter) -> Result<(PostedLetter, Option<Moment>), NotKept> {
        let posted = posted(letter, &self.platform, self.origin, &mut self.sequences)?;
        let expiry = Moment::from_unix_ms(posted.cover.expiry);
        Ok((posted, Some(expiry)))
    }

    async fn ask(&self, letters: Vec<PostedLetter>) -> Result<Vec<Result<(), Fault>>, Fault> {
        let refused = self.host.ask(ask::Post { letters }).await?;
        let outcomes = refused.into_iter().map(|fault| fault.map_or(Ok(()), Err));
        Ok(outcomes.collect())
    }
}

fn posted(
    letter: Letter,
    platform: &str,
    origin: u64,
    sequences: &mut HashMap<String, u64>,
) -> Result<PostedLetter, NotKept> {
    let receiver = match letter.receiver.rsplit_once('@') {
        Some((local, of)) if of == platform => local.to_owned(),
        _ => {
            return Err(NotKept(format!(
                "{} is not of platform {platform}, which keeps messages for its own agents only",
                letter.receiver
            )));
        }
    };
    let posted = now();
    let delivery = letter.delivery;
    let expiry = expiry_of(delivery.expiry.map(Moment::unix_ms), posted);
    if expiry <= posted {
        return Err(NotKept("it has expired already".to_owned()));
    }
    if delivery
        .valid_from
        .is_some_and(|from| from.unix_ms() >= expiry)
    {
        return Err(NotKept("it expires before it is valid".to_owned()));
    }
    let receipt = match delivery.receipt {
        // The message is on disk when the node answers.
        None | Some(Acknowledgement::OnDisk) => None,
        Some(Acknowledgement::ReceiverProcess) => Some(Receipt::Process),
        Some(Acknowledgement::ReceiverAgent) => Some(Receipt::Agent),
        Some(Acknowledgement::OnMajority) => {
            return Err(NotKept(
                "a node keeps messages on one disk, not on a majority of several: ask for `disk`"
                    .to_owned(),
            ));
        }
    };
    let sequence = sequences.entry(receiver.clone()).or_default();
    *sequence += 1;
    let is_notice = *letter.sender == *format!("{AMS}@{platform}");
    let identity = sealbus_seal::Identity::from_agent_name(&letter.sender)
        .map_err(|error| NotKept(error.to_string()))?;
    Ok(PostedLetter {
        cover: Cover {
            origin,
            sequence: *sequence,
            hops: 0,
            again: false,
            receiver,
            provenance: match letter.evidence {
                Some(evidence) => WaitingProvenance::Signed {
                    identity: identity.to_string(),
                    evidence: Blob(evidence),
                },
                None if is_notice => WaitingProvenance::Platform,
                None => WaitingProvenance::SameProcess {
                    identity: identity.to_string(),
                },
            },
            posted,
            expiry,
            valid_from: delivery.valid_from.map(Moment::unix_ms),
            receipt,
            about: None,
        },
        message: Blob(letter.message.to_vec()),
    })
}

/// A letter in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    /// In the mailbox, unread. The number is that of its last hand-over.
    Unread(u64),
    /// Out of the mailbox. The node must be told, or has not confirmed the report yet.
    Settled(LetterOutcome),
}

/// The letters handed to this process's agents.
pub(super) struct Inbox {
    host: Arc<dyn Host>,
    bus: WeakBus,
    receipts: Receipts,
    /// Letters by local name and number, so that a letter that the node hands over again is recognised.
    letters: Mutex<HashMap<String, HashMap<u64, Here>>>,
    /// Reports for the node, in order.
    reports: mpsc::UnboundedSender<(String, u64, LetterOutcome)>,
    /// Tells that all reports so far are confirmed.
    confirmed: Notify,
    /// Tells that a letter came.
    came: Arc<Notify>,
}

impl Inbox {
    pub(super) fn start(host: Arc<dyn Host>, bus: WeakBus) -> Arc<Self> {
        let (reports, waiting) = mpsc::unbounded_channel();
        let inbox = Arc::new(Self {
            host,
            bus,
            receipts: Receipts::default(),
            letters: Mutex::default(),
            reports,
            confirmed: Notify::new(),
            came: Arc::default(),
        });
        tokio::spawn(report(Arc::downgrade(&inbox), waiting));
        inbox
    }

    /// Puts letters into the mailbox of an agent.
    pub(super) fn take_in(
        self: &Arc<Self>,
        shared: &Shared,
        agent: &str,
        letters: Vec<DeliveredLetter>,
    ) {
        let whole = format!("{agent}@{}", shared.platform);
        let local = shared.bus.agent(&whole);
        for letter in letters {
            let DeliveredLetter {
                number,
                hand_over,
                again,
                posted,
                expiry,
                receipt,
                waiting,
            } = letter;
            let Some(local) = &local else {
                self.say(agent, number, LetterOutcome::Left(hand_over));
                continue;
            };
            {
                let mut letters = self.letters.lock();
                match letters.entry(agent.to_owned()).or_default().entry(number) {
                    Slot::Occupied(mut known) => {
                        let outcome = match known.get_mut() {
                            Here::Unread(last) => {
                                // A node that was started again knows no earlier hand-over.
                                *last = hand_over;
                                LetterOutcome::Arrived
                            }
                            Here::Settled(outcome) => *outcome,
                        };
                        drop(letters);
                        self.say(agent, number, outcome);
                        continue;
                    }
                    Slot::Vacant(place) => {
                        place.insert(Here::Unread(hand_over));
                        self.came.notify_one();
                    }
                }
            }
            let message = match shared.unpack(waiting, &whole) {
                Ok(message) => message.with_kept(Kept {
                    number,
                    again,
                    expiry: Some(Moment::from_unix_ms(expiry)),
                    listener: Arc::new(Listener {
                        inbox: Arc::downgrade(self),
                        agent: agent.to_owned(),
                    }),
                }),
                Err(Unreadable::NotProved { sender, why }) => {
                    let to = Some(&*whole);
                    let reason = RefusalReason::NotProved;
                    shared.bus.refused(&sender, None, to, reason, why);
                    let refused = LetterOutcome::Refused(LetterRefusal::NotProved);
                    self.settled(agent, number, refused);
                    continue;
                }
                Err(Unreadable::Malformed(problem)) => {
                    tracing::error!(
                        agent,
                        number,
                        problem,
                        "a persistent message cannot be opened; it is given up"
                    );
                    self.settled(agent, number, LetterOutcome::Expired);
                    continue;
                }
            };
            if let Err(refusal) = shared.judge_letter(&message, posted, &whole) {
                self.settled(agent, number, LetterOutcome::Refused(refusal));
                continue;
            }
            let message = match shared.opened(message, &whole) {
                Ok(message) => message,
                Err(refusal) => {
                    self.settled(agent, number, LetterOutcome::Refused(refusal));
                    continue;
                }
            };
            if receipt == Some(Receipt::Agent) {
                self.receipts.owe(agent, number, &message, &whole);
            }
            match local.mailbox().push_accepted(message) {
                Ok(()) => self.say(agent, number, LetterOutcome::Arrived),
                Err(_) => {
                    self.forget(agent, number);
                    self.say(agent, number, LetterOutcome::Left(hand_over));
                }
            }
        }
    }

    fn say(&self, agent: &str, number: u64, outcome: LetterOutcome) {
        // This fails only when the process ends.
        let _ = self.reports.send((agent.to_owned(), number, outcome));
    }

    /// Sends the receipt for a letter, and then reports its outcome. A receipt may have to wait for its receiver's key;
    /// other letters do not wait with it.
    fn acknowledge(self: &Arc<Self>, receipt: Owed, agent: String, number: u64) {
        let (inbox, bus) = (Arc::downgrade(self), self.bus.clone());
        tokio::spawn(async move {
            let outcome = receipt.send(bus).await;
            if let Some(inbox) = inbox.upgrade() {
                inbox.receipts.settled(&agent, number);
                inbox.say(&agent, number, outcome);
            }
        });
    }

    fn settled(&self, agent: &str, number: u64, outcome: LetterOutcome) {
        if let Some(letters) = self.letters.lock().get_mut(agent)
            && let Some(letter) = letters.get_mut(&number)
        {
            *letter = Here::Settled(outcome);
        }
        self.say(agent, number, outcome);
    }

    fn forget(&self, agent: &str, number: u64) {
        let mut letters = self.letters.lock();
        if let Some(of_agent) = letters.get_mut(agent) {
            of_agent.remove(&number);
            if of_agent.is_empty() {
                letters.remove(agent);
            }
        }
    }

    /// Releases the letters of an agent that is gone, or whose mailbox was emptied. Unread letters wait on the node.
    pub(super) fn left(&self, agent: &str) {
        let mut unread = Vec::new();
        {
            let mut letters = self.letters.lock();
            let Some(of_agent) = letters.get_mut(agent) else {
                return;
            };
            of_agent.retain(|number, here| {
                let Here::Unread(hand_over) = *here else {
                    return true;
                };
                unread.push((*number, hand_over));
                false
            });
        }
        for (number, hand_over) in unread {
            self.say(agent, number, LetterOutcome::Left(hand_over));
        }
    }

    /// Waits until the node knows about all letters that were taken.
    pub(super) async fn all_confirmed(&self) -> Result<(), String> {
        let are_confirmed = || {
            let letters = self.letters.lock();
            let mut all = letters.values().flat_map(HashMap::values);
            (!all.any(|here| matches!(here, Here::Settled(_)))).then_some(())
        };
        let wait = until(&self.confirmed, are_confirmed);
        tokio::time::timeout(LAST_REPORTS, wait).await.map_err(|_| {
            "its node did not take note of the kept messages that were read".to_owned()
        })
    }

    /// Notifies one waiting task of each letter.
    pub(super) fn came(&self) -> Arc<Notify> {
        self.came.clone()
    }

    /// Whether the process has no letters.
    pub(super) fn is_empty(&self) -> bool {
        self.letters.lock().is_empty()
    }

    /// Settles letters that have expired unread.
    pub(super) fn sweep(&self, shared: &Shared) {
        let agents: Vec<String> = self.letters.lock().keys().cloned().collect();
        for agent in agents {
            if let Some(local) = shared.bus.agent(&format!("{agent}@{}", shared.platform)) {
                local.mailbox().sweep();
            }
        }
    }
}

/// Is told what becomes of one agent's letters.
struct Listener {
    inbox: Weak<Inbox>,
    agent: String,
}

impl KeptListener for Listener {
    fn settled(&self, number: u64, outcome: KeptOutcome) {
        if let Some(inbox) = self.inbox.upgrade() {
            let outcome = match outcome {
                KeptOutcome::Taken => LetterOutcome::Taken,
                KeptOutcome::Expired => LetterOutcome::Expired,
            };
            inbox.settled(&self.agent, number, outcome);
        }
    }
}

/// Reports the outcomes of letters to the node, repeatedly until the node confirms them.
async fn report(
    inbox: Weak<Inbox>,
    mut waiting: mpsc::UnboundedReceiver<(String, u64, LetterOutcome)>,
) {
    while let Some(first) = waiting.recv().await {
        let mut by_agent: HashMap<String, Vec<(u64, LetterOutcome)>> = HashMap::new();
        let mut next = Some(first);
        let mut count = 0;
        while let Some((agent, number, outcome)) = next.take() {
            let Some(inbox) = inbox.upgrade() else {
                return;
            };
            match inbox.receipts.next(&agent, number, outcome) {
                Next::Report => by_agent.entry(agent).or_default().push((number, outcome)),
                Next::Send(receipt) => inbox.acknowledge(*receipt, agent, number),
                Next::Wait => {}
            }
            count += 1;
            if count < MOST_POSTED {
                next = waiting.try_recv().ok();
            }
        }
        for (agent, outcomes) in by_agent {
            let settled = again(LONGEST_PAUSE, Fault::may_pass, || async {
                let Some(inbox) = inbox.upgrade() else {
                    return Ok(None);
                };
                let settled = ask::Letters {
                    agent: agent.clone(),
                    outcomes: outcomes.clone(),
                };
                inbox.host.ask(settled).await?;
                Ok(Some(inbox))
            });
            match settled.await {
                Ok(Some(inbox)) => {
                    for (number, outcome) in &outcomes {
                        if outcome.is_final() {
                            inbox.forget(&agent, *number);
                        }
                    }
                    inbox.confirmed.notify_waiters();
                }
                Ok(None) => return,
                Err(fault) => {
                    tracing::warn!(agent, %fault, "the node did not take note of what became of persistent messages");
                }
            }
        }
    }
}

//! Freezing a process's agents for a move, and thawing them when the move failed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{ANY_LENGTH, UndeliverableReason, aid_of, failure_notice};
use sealbus_fipa::bitefficient;
use sealbus_keeping::post::{MOST_POSTED, expiry_of, new_origin, origin_of};
use sealbus_seal::Identity;
use tokio::sync::oneshot;

use super::processes::{AfterMove, FrozenProcess};
use super::shared::Shared;
use sealbus_control::attachment::{AttachmentNotice, FrozenPart};
use sealbus_control::clock::now;
use sealbus_control::post::{Cover, PostedLetter};
use sealbus_control::rpc::Untold;
use sealbus_control::text::excerpt;
use sealbus_control::traffic::ask_process;
use sealbus_control::{
    Blob, Fault, FaultCode, FrozenAgent, SealedKeys, UnixMillis, WaitingProvenance,
};

/// How long a process may take to freeze.
const FREEZING: Duration = Duration::from_secs(50);
/// How long a process may take to attach, which it does by itself after its own start, and after its node's.
const ATTACHING: Duration = Duration::from_secs(5);
/// How long a process may take to seal its keys.
pub(crate) const KEYS: Duration = Duration::from_secs(10);
/// How long frozen agents are kept for their destination after their process has ended.
const FROZEN_KEPT: Duration = Duration::from_secs(300);
/// The most characters of the list of other platforms in the log. The process chooses their names.
const LONGEST_LIST: usize = 512;

impl Shared {
    /// Freezes all agents of a process. Returns the size of the frozen agents in bytes. If a Master takes over and
    /// repeats what the former one began, it gets the same outcome.
    ///
    /// # Errors
    /// If the process cannot be moved. It then goes on.
    pub(crate) async fn freeze_process(
        self: &Arc<Self>,
        process: &str,
        destination: &str,
    ) -> Result<u64, Fault> {
        if let Some(size) = self.processes.frozen_for(process, destination) {
            return Ok(size as u64);
        }
        self.processes.await_attachment(process, ATTACHING).await?;
        let (waiting, frozen) = oneshot::channel();
        let ended = || Fault::new(FaultCode::NotPermitted, "its process ended meanwhile");
        let freeze = new_origin();
        let begun = self
            .processes
            .begin_freeze(process, freeze, destination, waiting)?;
        let Some(caller) = begun else {
            return Ok(frozen.await.unwrap_or_else(|_| Err(ended()))? as u64);
        };
        let notice = AttachmentNotice::Freeze { freeze };
        let result = match caller.try_notify(&notice).map_err(untold) {
            Ok(()) => match tokio::time::timeout(FREEZING, frozen).await {
                Ok(result) => result.unwrap_or_else(|_| Err(ended())),
                Err(_) => Err(Fault::new(
                    FaultCode::NotPermitted,
                    format!("its `save` hook did not return within {FREEZING:?}"),
                )),
            },
            Err(fault) => Err(fault),
        };
        let give_up = || self.processes.give_up_freeze(process, freeze);
        let size = result.or_else(|fault| give_up().ok_or(fault))?;
        let (shared, process) = (self.clone(), process.to_owned());
        tokio::spawn(async move {
            let forgetting = shared.forget_frozen_later(&process, freeze, FROZEN_KEPT);
            forgetting.await;
        });
        Ok(size as u64)
    }

    /// Takes a part of a process's frozen agents.
    pub(crate) async fn take_frozen_part(
        &self,
        process: &str,
        freeze: u64,
        part: &FrozenPart,
    ) -> Result<(), Fault> {
        let Some(whole) = self.processes.add_frozen_part(process, freeze, part)? else {
            return Ok(());
        };
        // From here on the agents may live elsewhere, which the node must know after a restart.
        self.processes.note(process, &self.memory).await;
        let taken = self.processes.handed_in(process, whole);
        if taken.is_err() {
            // The agents go on here. With the note above, a restarted node would keep them at rest.
            self.processes.note(process, &self.memory).await;
        }
        taken
    }

    /// The keys of a frozen process for sealed messages, sealed to the process that restores its agents on the node
    /// `from`.
    pub(crate) async fn former_keys(
        &self,
        from: &str,
        process: &str,
        key: Blob,
    ) -> Result<SealedKeys, Fault> {
        // Only the node that may fetch the frozen agents gets their keys.
        self.processes.fetch(from, process, 0)?;
        let caller = self.processes.with(process, |entry| {
            entry.connection.as_ref().map(|(_, caller)| caller.clone())
        })?;
        let caller = caller.ok_or_else(|| untold(Untold::Closed))?;
        caller.ask(ask_process::FormerKeys { key }, KEYS).await
    }

    /// Forgets the agents that were handed in for a freeze, some time after their process ended. If nobody has fetched
    /// them, nobody will restore them.
    async fn forget_frozen_later(&self, process: &str, freeze: u64, kept: Duration) {
        // After a failed move there is nothing to forget.
        while self.processes.keeps_frozen(process, freeze) {
            tokio::time::sleep(kept).await;
            if self.processes.with(process, |_| ()).is_err() {
                if let Some(frozen) = self.processes.forget_frozen(process) {
                    self.answer_unread(process, &frozen).await;
                }
                return;
            }
        }
    }

    /// Ends a failed move: the process goes on. If it has ended, the node answers its agents' unread messages.
    pub(crate) async fn thaw(&self, process: &str) -> Result<(), Fault> {
        let after = self.processes.thaw(process)?;
        self.processes.note(process, &self.memory).await;
        match after {
            AfterMove::GoesOn(Some(caller)) => {
                caller.try_notify(&AttachmentNotice::Thaw).map_err(untold)
            }
            AfterMove::GoesOn(None) => Ok(()),
            AfterMove::Answer(frozen) => {
                self.answer_unread(process, &frozen).await;
                Ok(())
            }
        }
    }
}

impl Shared {
    /// Posts answers to the unread messages of agents that have ended and that nobody restores.
    async fn answer_unread(&self, process: &str, frozen: &FrozenProcess) {
        let platform = self.platform.read().name.clone();
        let Answers { letters, untold } =
            answers(frozen, &platform, origin_of(process, new_origin()), now());
        tracing::warn!(
            process,
            count = letters.len(),
            "agents ended during their move: the senders of what they have not read are told"
        );
        if !untold.is_empty() {
            let listed = untold.iter().map(|(of, count)| format!("{of}: {count}"));
            let untold = excerpt(&listed.collect::<Vec<_>>().join(", "), LONGEST_LIST);
            tracing::warn!(
                process,
                untold,
                "agents ended during their move: senders on other platforms are not told of these unread messages"
            );
        }
        for some in letters.chunks(MOST_POSTED) {
            let refused = self.post.keep(some.to_vec()).await;
            for fault in refused.into_iter().flatten() {
                self.log_refusal(process, &format!("a sender is not told: {fault}"));
            }
        }
    }
}

/// The answers to the unread messages of agents.
#[derive(Debug, Default)]
struct Answers {
    letters: Vec<PostedLetter>,
    /// The number of messages from each other platform. The gateway passes on failures to other platforms only in the
    /// platform's name, and any process could state such messages. So nobody answers them.
    untold: BTreeMap<String, u64>,
}

/// The answers to the unread messages of a process's agents. Only the process knows who wrote these, so the answers are
/// in the names of its agents, and not in the platform's.
fn answers(frozen: &FrozenProcess, platform: &str, origin: u64, posted: UnixMillis) -> Answers {
    let agents: Vec<FrozenAgent> = serde_json::from_slice(&frozen.bytes).unwrap_or_default();
    let mut sequences: HashMap<String, u64> = HashMap::new();
    let mut answers = Answers::default();
    for FrozenAgent { agent, mailbox, .. } in agents {
        let name = format!("{agent}@{platform}");
        let Ok(identity) = Identity::from_agent_name(&name) else {
            continue;
        };
        if !frozen.agents.contains(&agent) {
            continue;
        }
        for waiting in mailbox {
            if waiting.provenance == WaitingProvenance::Platform {
                continue;
            }
            let unread = bitefficient::decode_ref(&waiting.message.0, &ANY_LENGTH);
            let answer = unread.ok().and_then(|unread| {
                let reason = UndeliverableReason::ReceiverGone;
                failure_notice(&aid_of(&name), &unread, &name, &reason)
            });
            let Some(answer) = answer else { continue };
            let Some((receiver, of)) = answer.receivers[0].name.rsplit_once('@') else {
                continue;
            };
            if of != platform || waiting.provenance == WaitingProvenance::Foreign {
                *answers.untold.entry(of.to_owned()).or_default() += 1;
                continue;
            }
            let mut message = Vec::new();
            if bitefficient::encode(&answer, &mut message).is_err() {
                continue;
            }
            let sequence = sequences.entry(receiver.to_owned()).or_default();
            *sequence += 1;
            answers.letters.push(PostedLetter {
                cover: Cover {
                    origin,
                    sequence: *sequence,
                    hops: 0,
                    again: false,
                    receiver: receiver.to_owned(),
                    provenance: WaitingProvenance::SameProcess {
                        identity: identity.to_string(),
                    },
                    posted,
                    expiry: expiry_of(None, posted),
                    valid_from: None,
                    receipt: None,
                    about: None,
                },
                message: Blob(message),
            });
        }
    }
    answers
}

fn untold(why: Untold) -> Fault {
    Fault::new(FaultCode::Unavailable, why.to_string())
}

#[cfg(test)]
mod tests {
    use sealbus_control::WaitingMessage;
    use sealbus_fipa::{AclMessage, Performative};

    use super::*;
    use crate::memory::tests::remembered;
    use crate::processes::Entry;
    use crate::testing;

    fn waiting(sender: &str, provenance: WaitingProvenance) -> WaitingMessage {
        let message = AclMessage::new(Performative::Inform)
            .with_sender(aid_of(sender))
            .with_reply_with("7");
        let mut bytes = Vec::new();
        bitefficient::encode(&message, &mut bytes).unwrap();
        WaitingMessage {
            message: Blob(bytes),
            provenance,
        }
    }

    /// A process may be moved in vain any number of times.
    #[tokio::test]
    async fn nothing_waits_for_the_end_of_a_process_whose_move_failed() {
        let place = tempfile::tempdir().unwrap();
        let (shared, _) = testing::node(place.path(), testing::no_isolation()).await;
        let (entries, all) = (&shared.processes.entries, &shared.processes.frozen);
        let entry = Entry::new(remembered("p"));
        entries.lock().insert("p".to_owned(), entry);
        let frozen = FrozenProcess::begun(1, vec!["a".to_owned()], "node-2");
        all.lock().insert("p".to_owned(), frozen);
        let mut waits = std::pin::pin!(shared.forget_frozen_later("p", 1, Duration::ZERO));
        let (soon, late) = (Duration::from_millis(20), Duration::from_secs(120));
        let over = tokio::time::timeout(soon, &mut waits).await;
        assert!(over.is_err(), "the move is in progress");
        shared.thaw("p").await.unwrap();
        tokio::time::timeout(late, waits).await.unwrap();
    }

    /// A process may hand in anything, but it gets no further than its own agents' names.
    #[test]
    fn an_agent_answers_in_its_own_name_and_what_a_process_hands_in_for_others_counts_for_nothing()
    {
        let mailbox = vec![
            waiting("alice@factory", WaitingProvenance::Claimed),
            waiting("ams@factory", WaitingProvenance::Platform),
            waiting("alice@elsewhere", WaitingProvenance::Claimed),
            waiting("carol@elsewhere", WaitingProvenance::Foreign),
            waiting("dora@far", WaitingProvenance::Foreign),
            waiting("alice@factory", WaitingProvenance::Claimed),
            WaitingMessage {
                message: Blob(b"no message".to_vec()),
                provenance: WaitingProvenance::Claimed,
            },
        ];
        let frozen = |agent: &str| FrozenAgent {
            agent: agent.to_owned(),
            state: Blob::default(),
            mailbox: mailbox.clone(),
        };
        let bytes = serde_json::to_vec(&[frozen("bob"), frozen("mallory")]).unwrap();
        let handed_in = FrozenProcess {
            bytes: Arc::new(bytes),
            ..FrozenProcess::begun(1, vec!["bob".to_owned()], "node-2")
        };
        let Answers { letters, untold } = answers(&handed_in, "factory", 3, 1);
        // For senders on other platforms, the operator learns of how many messages they are not told.
        let counted = [("elsewhere", 2), ("far", 1)].map(|(of, count)| (of.to_owned(), count));
        assert_eq!(untold, BTreeMap::from(counted));
        assert_eq!(letters.len(), 2);
        for (letter, number) in letters.iter().zip(1..) {
            let cover = &letter.cover;
            assert_eq!((&*cover.receiver, cover.sequence), ("alice", number));
            let WaitingProvenance::SameProcess { identity } = &cover.provenance else {
                panic!("{cover:?}");
            };
            let identity: Identity = identity.parse().unwrap();
            assert!(identity.is_agent_named("bob@factory"));
            let answer = bitefficient::decode_ref(&letter.message.0, &ANY_LENGTH).unwrap();
            assert_eq!(answer.performative(), Performative::Failure);
            assert_eq!(answer.sender().unwrap().name(), "bob@factory");
            assert_eq!(answer.in_reply_to().unwrap().text().unwrap(), "7");
        }
        let nonsense = FrozenProcess {
            bytes: Arc::new(b"nonsense".to_vec()),
            ..handed_in
        };
        assert!(answers(&nonsense, "factory", 3, 1).letters.is_empty());
    }

    /// A manifest may allow longer messages than the default.
    #[test]
    fn the_sender_of_a_long_message_is_told_that_it_was_not_read() {
        let message = AclMessage::new(Performative::Inform)
            .with_sender(aid_of("alice@factory"))
            .with_content("x".repeat(17 << 20));
        let mut bytes = Vec::new();
        bitefficient::encode(&message, &mut bytes).unwrap();
        let agent = FrozenAgent {
            agent: "bob".to_owned(),
            state: Blob::default(),
            mailbox: vec![WaitingMessage {
                message: Blob(bytes),
                provenance: WaitingProvenance::Claimed,
            }],
        };
        let handed_in = FrozenProcess {
            bytes: Arc::new(serde_json::to_vec(&[agent]).unwrap()),
            ..FrozenProcess::begun(1, vec!["bob".to_owned()], "node-2")
        };
        let letters = answers(&handed_in, "factory", 3, 1).letters;
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].cover.receiver, "alice");
        assert!(letters[0].message.0.len() < 1 << 16);
    }
}

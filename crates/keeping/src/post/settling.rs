//! Letters that have been taken, refused or carried on: the notices to their senders, and their removal.

use std::collections::BTreeSet;
use std::sync::Arc;

use sealbus_control::Fault;
use sealbus_control::post::{LetterMark, LetterOutcome, Receipt};

use super::mailbox::KeptMailbox;
use super::notices::{RECEIPT, reason_of};
use super::shelf::Shelf;
use super::{KeptLetters, storage};

impl KeptLetters {
    /// Takes in the outcomes that a process reports for its letters. Returns when all of them are on disk. An outcome
    /// that cannot be written does not hold up others.
    ///
    /// # Errors
    /// If an outcome cannot be written. The process must report it again.
    pub async fn settle(
        self: &Arc<Self>,
        process: &str,
        agent: &str,
        outcomes: Vec<(u64, LetterOutcome)>,
    ) -> Result<(), Fault> {
        let Some(mailbox) = self.mailboxes.lock().get(agent).cloned() else {
            return Ok(());
        };
        tracing::trace!(agent, ?outcomes, "settled");
        let mut gone = Vec::new();
        let mut written = Ok(());
        // The other letters are handed over again after a while, and not at once.
        let is_news = outcomes
            .iter()
            .any(|(_, outcome)| !matches!(outcome, LetterOutcome::Left(_)));
        for (number, outcome) in outcomes {
            match self.take_in(process, &mailbox, number, outcome).await {
                Ok(()) if outcome.is_final() => gone.push(number),
                Ok(()) => {}
                Err(fault) => written = Err(fault),
            }
        }
        self.settled(&mailbox, &gone).await?;
        if is_news {
            mailbox.news.notify_one();
        }
        written
    }

    /// Takes in the outcome of one letter, and tells its sender if necessary.
    async fn take_in(
        self: &Arc<Self>,
        process: &str,
        mailbox: &KeptMailbox,
        number: u64,
        outcome: LetterOutcome,
    ) -> Result<(), Fault> {
        match outcome {
            LetterOutcome::Left(hand_over) => {
                let mut shelf = mailbox.shelf.lock();
                shelf.was_left(process, number, hand_over);
                Ok(())
            }
            LetterOutcome::Arrived => self.receipt(mailbox, number, Receipt::Process).await,
            LetterOutcome::Taken => {
                self.receipt(mailbox, number, Receipt::Process).await?;
                self.receipt(mailbox, number, Receipt::Agent).await
            }
            LetterOutcome::Acknowledged => Ok(()),
            LetterOutcome::Expired => self.expired(mailbox, number).await,
            LetterOutcome::Refused(refusal) => {
                let reason = reason_of(refusal, &mailbox.agent);
                self.bounce(mailbox, number, &reason).await
            }
        }
    }

    /// Removes letters that will go nowhere from here.
    pub(super) async fn settled(
        &self,
        mailbox: &Arc<KeptMailbox>,
        numbers: &[u64],
    ) -> Result<(), Fault> {
        let settled = |shelf: &mut Shelf| {
            let marks = numbers
                .iter()
                .filter_map(|number| Some((*number, shelf.settled(*number)?)));
            marks.collect()
        };
        self.remove(mailbox, settled).await
    }

    /// Removes letters that another node has, unless they have come back from there.
    pub(super) async fn carried(
        &self,
        mailbox: &Arc<KeptMailbox>,
        sent: &[(u64, LetterMark)],
    ) -> Result<(), Fault> {
        let carried = |shelf: &mut Shelf| {
            let still = |(number, mark): &&(u64, LetterMark)| {
                let kept = shelf.get(*number);
                kept.is_some_and(|kept| kept.cover.mark() == *mark)
            };
            sent.iter().filter(still).copied().collect()
        };
        self.remove(mailbox, carried).await
    }

    /// Removes the letters that `choose` returns, each with the mark that says that it was here. A letter that comes
    /// back after it was chosen is kept anew.
    async fn remove(
        &self,
        mailbox: &Arc<KeptMailbox>,
        choose: impl FnOnce(&mut Shelf) -> Vec<(u64, LetterMark)>,
    ) -> Result<(), Fault> {
        let mut taken = Vec::new();
        let (numbers, written) = {
            let mut shelf = mailbox.shelf.lock();
            let removed = choose(&mut shelf);
            if removed.is_empty() {
                return Ok(());
            }
            let numbers: Vec<u64> = removed.iter().map(|(number, _)| *number).collect();
            for number in &numbers {
                let kept = shelf.get(*number);
                if kept.is_some_and(|kept| kept.cover.receipt == Some(Receipt::Process)) {
                    let name = format!("{RECEIPT}{number}");
                    mailbox.stream.forget_cursor(&name).map_err(storage)?;
                }
            }
            // Once the letter is gone, only this mark says that it was here.
            let noted = mailbox.note_removed(&mut shelf, &removed);
            noted.map_err(storage)?;
            let written = mailbox.stream.remove(&numbers).map_err(storage)?;
            // The letter leaves the shelf at once, so that it is kept again if it comes back while this is written.
            for number in &numbers {
                taken.extend(shelf.take(*number).map(|kept| (*number, kept)));
            }
            (numbers, written)
        };
        if let Err(error) = written.await {
            let mut shelf = mailbox.shelf.lock();
            for (number, mut kept) in taken {
                // A process may have taken it, and the shelf no longer knows to which one it was handed.
                kept.cover.again = true;
                // The letter may have come back already.
                if !shelf.holds(&kept.cover) {
                    shelf.put(number, kept);
                }
            }
            drop(shelf);
            self.carry(mailbox);
            return Err(storage(error));
        }
        let mut origins = BTreeSet::new();
        for (number, kept) in taken {
            origins.insert(kept.cover.origin);
            self.forget_notices(&mailbox.agent, number);
        }
        mailbox.forget_doubts(&numbers);
        mailbox.forget_surplus(&origins).map_err(storage)
    }
}

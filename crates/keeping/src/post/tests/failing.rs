//! Letters whose senders cannot be told, and disks that fail, do not hold up other letters.

use std::path::{Path, PathBuf};

use futures_util::FutureExt;

use super::*;

/// Far longer than anything takes.
const LATE: Duration = Duration::from_secs(120);

/// The files of an agent's mailbox, moved away. After a restart of the node none is open, so nothing can be written
/// there until they are back.
struct Away(PathBuf, PathBuf);

impl Away {
    fn of(folder: &Path, agent: &str) -> Self {
        let end = format!("-mailbox_{agent}");
        let entries = std::fs::read_dir(folder).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let is_mailbox = |path: &PathBuf| path.to_string_lossy().ends_with(&end);
        let files = paths.find(is_mailbox).unwrap();
        let away = folder.join("away");
        std::fs::rename(&files, &away).unwrap();
        Self(files, away)
    }

    fn come_back(self) {
        std::fs::rename(self.1, self.0).unwrap();
    }
}

/// A post on which a letter from carol waits for alice. Nothing can be written to alice's mailbox.
async fn without_alices_mailbox(folder: &Path) -> (Arc<KeptLetters>, Away) {
    let post = Arc::new(open(folder));
    keep(&post, letter("carol", 1, "alice")).await.unwrap();
    let post = restarted(post, folder).await;
    (post, Away::of(folder, "alice"))
}

fn waiting_for(post: &KeptLetters, agent: &str) -> Vec<(u64, String)> {
    let letters = post.list(agent).0.into_iter();
    letters.map(|it| (it.number, it.sender)).collect()
}

async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LATE, waiting).await.unwrap();
}

/// The notice repeats its conversation, which leaves no room for anything else.
#[tokio::test]
async fn a_letter_whose_notice_would_be_too_long_holds_up_no_other_one() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    let message = AclMessage::new(Performative::Inform)
        .with_sender(Aid::new("mallory@factory").unwrap())
        .with_conversation_id("x".repeat(post.longest - 100));
    let mut long = letter("mallory", 1, "bob");
    long.message.0.clear();
    bitefficient::encode(&message, &mut long.message.0).unwrap();
    keep(&post, long).await.unwrap();
    keep(&post, letter("alice", 2, "bob")).await.unwrap();
    let waiting = waiting_for(&post, "bob").into_iter();
    let expired = waiting.map(|(number, _)| (number, LetterOutcome::Expired));
    let expired = expired.collect();
    post.settle("process", "bob", expired).await.unwrap();
    assert_eq!(post.list("bob").1, 0);
    for sender in ["mallory", "alice"] {
        let (notices, count) = post.list(sender);
        assert_eq!(count, 1, "{sender}");
        assert_eq!(notices[0].sender, "ams@factory");
        assert_eq!(notices[0].performative, Performative::Failure.to_string());
    }
}

#[tokio::test]
async fn the_outcomes_of_other_letters_are_taken_in_when_a_sender_cannot_be_told() {
    let folder = tempfile::tempdir().unwrap();
    let (post, away) = without_alices_mailbox(folder.path()).await;
    keep(&post, letter("alice", 2, "bob")).await.unwrap();
    keep(&post, letter("carol", 3, "bob")).await.unwrap();
    let waiting = waiting_for(&post, "bob");
    let outcomes = vec![
        (waiting[0].0, LetterOutcome::Expired),
        (waiting[1].0, LetterOutcome::Taken),
    ];
    let settled = post.settle("process", "bob", outcomes.clone()).await;
    let fault = settled.unwrap_err();
    // The process reports them again.
    assert!(fault.may_pass(), "{fault}");
    assert_eq!(waiting_for(&post, "bob"), waiting[..1]);
    away.come_back();
    post.settle("process", "bob", outcomes).await.unwrap();
    assert_eq!(post.list("bob").1, 0);
    let senders = waiting_for(&post, "alice").into_iter().map(|it| it.1);
    assert_eq!(
        senders.collect::<Vec<_>>(),
        ["carol@factory", "ams@factory"]
    );
}

/// The agent bob is in a process of this node, or on another node, which always refuses the letter with the number 2.
struct BobIs {
    elsewhere: bool,
    handed: AtomicU64,
}

impl Ways for BobIs {
    fn whereabouts(&self, agent: &str) -> Whereabouts {
        match (agent, self.elsewhere) {
            ("bob", false) => Whereabouts::Here("process".to_owned(), 1),
            ("bob", true) => Whereabouts::There("node-2".to_owned()),
            _ => Whereabouts::Away,
        }
    }

    fn deliver<'a>(
        &'a self,
        _: &'a str,
        letters: Vec<DeliveredLetter>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let count = letters.len() as u64;
        self.handed.fetch_add(count, Ordering::SeqCst);
        std::future::ready(Ok(())).boxed()
    }

    fn forward<'a>(
        &'a self,
        _: &'a str,
        letters: Vec<PostedLetter>,
    ) -> BoxFuture<'a, Result<Vec<Option<Fault>>, Fault>> {
        let refused = letters.iter().map(|letter| {
            let is_refused = letter.cover.sequence == 2;
            is_refused.then(|| Fault::new(FaultCode::BadRequest, "no"))
        });
        let refused: Vec<Option<Fault>> = refused.collect();
        std::future::ready(Ok(refused)).boxed()
    }

    fn trail<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: Vec<LetterMark>,
    ) -> BoxFuture<'a, Result<Trail, Fault>> {
        unreachable!("no letter went to a third node")
    }
}

#[tokio::test]
async fn a_letter_whose_sender_cannot_be_told_yet_stays_and_others_go() {
    for elsewhere in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (post, away) = without_alices_mailbox(folder.path()).await;
        let mut first = letter("alice", 2, "bob");
        if !elsewhere {
            first.cover.expiry = now() - 1;
        }
        keep(&post, first).await.unwrap();
        keep(&post, letter("carol", 3, "bob")).await.unwrap();
        let ways = Arc::new(BobIs {
            elsewhere,
            handed: AtomicU64::new(0),
        });
        let carriers = tokio::spawn(run(post.clone(), ways.clone()));
        let of_bob = || waiting_for(&post, "bob");
        let is_gone = || match elsewhere {
            false => ways.handed.load(Ordering::SeqCst) == 1,
            true => of_bob().len() == 1,
        };
        until(is_gone).await;
        assert_eq!(of_bob()[0].1, "alice@factory");
        away.come_back();
        until(|| {
            post.wake("bob");
            let is_told = post.list("alice").1 == 2;
            is_told && of_bob().iter().all(|it| it.1 != "alice@factory")
        })
        .await;
        carriers.abort();
    }
}

#[tokio::test]
async fn a_letter_stays_until_its_notice_is_on_disk_even_if_two_tasks_bring_the_notice() {
    let folder = tempfile::tempdir().unwrap();
    let (post, away) = without_alices_mailbox(folder.path()).await;
    keep(&post, letter("alice", 2, "bob")).await.unwrap();
    let number = waiting_for(&post, "bob")[0].0;
    let expire = || {
        let expired = vec![(number, LetterOutcome::Expired)];
        post.settle("process", "bob", expired)
    };
    let (one, other) = tokio::join!(expire(), expire());
    assert!(one.is_err() && other.is_err(), "{one:?} {other:?}");
    assert_eq!(post.list("bob").1, 1);
    away.come_back();
    let (one, other) = tokio::join!(expire(), expire());
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    assert_eq!(post.list("bob").1, 0);
    // There is one notice beside the letter of carol.
    assert_eq!(post.list("alice").1, 2);
}

/// The process that took the letter may end before it reports that again.
#[tokio::test]
async fn a_letter_that_was_taken_and_could_not_be_removed_comes_again_marked() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    keep(&post, letter("alice", 1, "bob")).await.unwrap();
    let post = restarted(post, folder.path()).await;
    let mailbox = post.mailbox("bob").unwrap();
    let hand_over = |process: &str| {
        let mut shelf = mailbox.shelf.lock();
        shelf.is_in(Some(process));
        let next = shelf.to_hand_over(now());
        shelf.hand_over(&next).1
    };
    let handed = hand_over("one");
    let number = handed[0].0;
    assert_eq!(handed, [(number, false)]);
    let away = Away::of(folder.path(), "bob");
    let taken = vec![(number, LetterOutcome::Taken)];
    let settled = post.settle("one", "bob", taken.clone()).await;
    assert_eq!(settled.unwrap_err().code, FaultCode::Storage);
    away.come_back();
    assert_eq!(hand_over("two"), [(number, true)]);
    post.settle("two", "bob", taken).await.unwrap();
    assert_eq!(post.list("bob").1, 0);
}

/// Otherwise a letter that has arrived and is not read could vanish silently.
#[tokio::test]
async fn a_sender_that_has_not_read_its_receipt_is_told_that_the_letter_failed() {
    let folder = tempfile::tempdir().unwrap();
    let mut post = Arc::new(open(folder.path()));
    let mut asking = letter("alice", 1, "bob");
    asking.cover.receipt = Some(Receipt::Process);
    keep(&post, asking).await.unwrap();
    let number = waiting_for(&post, "bob")[0].0;
    for outcome in [LetterOutcome::Arrived, LetterOutcome::Expired] {
        let settled = vec![(number, outcome)];
        post.settle("process", "bob", settled).await.unwrap();
        // The disk says of each notice which one it is.
        post = restarted(post, folder.path()).await;
    }
    assert_eq!(post.list("bob").1, 0);
    let told = post.list("alice").0.into_iter();
    let told: Vec<_> = told.map(|notice| notice.performative).collect();
    let right = [Performative::Inform, Performative::Failure];
    assert_eq!(told, right.map(|it| it.to_string()));
}

/// Each node numbers its letters by itself.
#[tokio::test]
async fn a_notice_that_was_carried_here_says_nothing_of_the_letters_here() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    keep(&post, letter("alice", 1, "bob")).await.unwrap();
    let number = waiting_for(&post, "bob")[0].0;
    let mut carried = letter("ams", 2, "alice");
    carried.cover.hops = 1;
    carried.cover.provenance = WaitingProvenance::Platform;
    carried.cover.about = Some(AboutLetter {
        receiver: "bob".to_owned(),
        number,
        failure: true,
    });
    keep(&post, carried).await.unwrap();
    let post = restarted(post, folder.path()).await;
    let expired = vec![(number, LetterOutcome::Expired)];
    post.settle("process", "bob", expired).await.unwrap();
    assert_eq!(post.list("alice").1, 2);
}

/// The removal of a letter may fail or come late.
#[tokio::test]
async fn a_letter_that_is_not_removed_yet_is_told_of_once_whatever_becomes_of_notices() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    keep(&post, letter("alice", 1, "bob")).await.unwrap();
    let number = waiting_for(&post, "bob")[0].0;
    let mailbox = post.mailbox("bob").unwrap();
    post.expired(&mailbox, number).await.unwrap();
    // Another node has its own numbers for its letters.
    let mut carried = letter("ams", 2, "alice");
    carried.cover.hops = 1;
    carried.cover.provenance = WaitingProvenance::Platform;
    carried.cover.about = Some(AboutLetter {
        receiver: "bob".to_owned(),
        number,
        failure: true,
    });
    keep(&post, carried).await.unwrap();
    // Alice reads the notice of the other node, and then the one of this node.
    for left in [1, 0] {
        let latest = waiting_for(&post, "alice").pop().unwrap().0;
        let read = vec![(latest, LetterOutcome::Taken)];
        post.settle("process", "alice", read).await.unwrap();
        post.expired(&mailbox, number).await.unwrap();
        assert_eq!(post.list("alice").1, left);
    }
    let expired = vec![(number, LetterOutcome::Expired)];
    post.settle("process", "bob", expired).await.unwrap();
    assert_eq!((post.list("alice").1, post.list("bob").1), (0, 0));
}

/// A new mailbox numbers its letters from the beginning.
#[tokio::test]
async fn a_notice_says_nothing_of_a_later_letter_to_a_name_that_was_forgotten() {
    for restarts in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut post = Arc::new(open(folder.path()));
        let carriers = tokio::spawn(run(post.clone(), Arc::new(NoWays)));
        let mut short = letter("alice", 1, "nobody");
        short.cover.expiry = now() + 20;
        keep(&post, short).await.unwrap();
        let first = waiting_for(&post, "nobody");
        until(|| !post.mailboxes.lock().contains_key("nobody")).await;
        carriers.abort();
        let _ = carriers.await;
        let mut second = letter("carol", 2, "nobody");
        second.cover.posted += 1;
        keep(&post, second).await.unwrap();
        let number = waiting_for(&post, "nobody")[0].0;
        assert!(first.is_empty() || first[0].0 == number);
        if restarts {
            post = restarted(post, folder.path()).await;
        }
        let expired = vec![(number, LetterOutcome::Expired)];
        post.settle("process", "nobody", expired).await.unwrap();
        // The notice to alice still waits.
        assert_eq!((post.list("alice").1, post.list("carol").1), (1, 1));
    }
}

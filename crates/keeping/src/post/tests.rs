#![allow(clippy::unwrap_used)]

mod failing;
mod origins;

use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_control::FaultCode;
use sealbus_control::WaitingProvenance;
use sealbus_control::post::{LetterOutcome, Receipt};
use sealbus_fipa::{AclMessage, Performative};
use sealbus_journal::JournalConfig;

use super::*;

const MEBIBYTE: u64 = 1 << 20;

/// A world in which no agent and no node is there.
struct NoWays;

impl Ways for NoWays {
    fn whereabouts(&self, _: &str) -> Whereabouts {
        Whereabouts::Away
    }

    fn deliver<'a>(
        &'a self,
        _: &'a str,
        _: Vec<DeliveredLetter>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        unreachable!("nobody is there")
    }

    fn forward<'a>(
        &'a self,
        _: &'a str,
        _: Vec<PostedLetter>,
    ) -> BoxFuture<'a, Result<Vec<Option<Fault>>, Fault>> {
        unreachable!("nobody is there")
    }

    fn trail<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: Vec<LetterMark>,
    ) -> BoxFuture<'a, Result<Trail, Fault>> {
        unreachable!("nobody is there")
    }
}

fn open(folder: &std::path::Path) -> KeptLetters {
    let (journal, _) = Journal::open(folder, JournalConfig::default()).unwrap();
    KeptLetters::open(journal, "node-1", "factory", 1 << 20).unwrap()
}

/// The post after a restart of its node.
async fn restarted(post: Arc<KeptLetters>, folder: &std::path::Path) -> Arc<KeptLetters> {
    let journal = post.journal.clone();
    drop(post);
    tokio::task::spawn_blocking(move || journal.close())
        .await
        .unwrap();
    Arc::new(open(folder))
}

fn letter(sender: &str, sequence: u64, receiver: &str) -> PostedLetter {
    let message = AclMessage::new(Performative::Inform)
        .with_sender(Aid::new(format!("{sender}@factory")).unwrap());
    let mut bytes = Vec::new();
    bitefficient::encode(&message, &mut bytes).unwrap();
    let posted = now();
    PostedLetter {
        cover: Cover {
            origin: 7,
            sequence,
            hops: 0,
            again: false,
            receiver: receiver.to_owned(),
            provenance: WaitingProvenance::SameProcess {
                identity: format!("spiffe://factory/agent/{sender}"),
            },
            posted,
            expiry: expiry_of(None, posted),
            valid_from: None,
            receipt: None,
            about: None,
        },
        message: Blob(bytes),
    }
}

async fn keep(post: &Arc<KeptLetters>, letter: PostedLetter) -> Result<(), Fault> {
    match post.keep(vec![letter]).await.remove(0) {
        None => Ok(()),
        Some(fault) => Err(fault),
    }
}

#[tokio::test]
async fn letters_leave_a_reserve_of_the_disk_for_the_platform() {
    let folder = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(1000 * MEBIBYTE));
    let mut post = open(folder.path());
    post.reserve = Reserve::with_free(&free);
    let post = Arc::new(post);
    keep(&post, letter("alice", 1, "bob")).await.unwrap();
    free.store(50 * MEBIBYTE, Ordering::SeqCst);
    for receiver in ["bob", "carol"] {
        let fault = keep(&post, letter("alice", 2, receiver)).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Full);
        assert!(fault.to_string().contains("50 MiB free"), "{fault}");
    }
    // The letter that is there is recognised, and can be settled.
    keep(&post, letter("alice", 1, "bob")).await.unwrap();
    let taken = vec![(post.list("bob").0[0].number, LetterOutcome::Taken)];
    post.settle("process", "bob", taken).await.unwrap();
    assert_eq!(post.list("bob").1, 0);
    free.store(1000 * MEBIBYTE, Ordering::SeqCst);
    keep(&post, letter("alice", 2, "bob")).await.unwrap();
}

#[tokio::test]
async fn a_sender_fills_no_more_than_its_share_of_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    keep(&post, letter("mallory", 1, "bob")).await.unwrap();
    let large = letter("mallory", 0, "carol").cover.provenance;
    post.shares.add(&large, "carol", shares::MOST_BYTES);
    let fault = keep(&post, letter("mallory", 2, "bob")).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Full);
    assert!(
        fault.to_string().contains("256 MiB of its messages"),
        "{fault}"
    );
    keep(&post, letter("alice", 3, "bob")).await.unwrap();
    post.shares.remove(&large, "carol", shares::MOST_BYTES);
    keep(&post, letter("mallory", 2, "bob")).await.unwrap();
    for number in 1..shares::MOST_RECEIVERS {
        post.shares.add(&large, &number.to_string(), 1);
    }
    let fault = keep(&post, letter("mallory", 1, "dora")).await.unwrap_err();
    assert!(fault.to_string().contains("1000 agents"), "{fault}");
    assert!(post.mailboxes.lock().get("dora").is_none());
    keep(&post, letter("mallory", 4, "bob")).await.unwrap();
}

/// Puts a notice on the shelf of its receiver, as if it lay on disk under this number.
fn shelve_notice(mailbox: &KeptMailbox, number: u64, size: u64) {
    let mut notice = letter("ams", number, &mailbox.agent);
    notice.cover.provenance = WaitingProvenance::Platform;
    notice.cover.about = Some(AboutLetter {
        receiver: "bob".to_owned(),
        number,
        failure: false,
    });
    let cover = notice.cover;
    let kept = ShelvedLetter { cover, size };
    mailbox.shelf.lock().put(number, kept);
}

/// Notices do not count for a sender's share, and those of this node pass the reserve. A sender that takes none has no
/// further letters kept.
#[tokio::test]
async fn a_sender_that_takes_no_notices_posts_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    let mut first = letter("mallory", 1, "bob");
    first.cover.receipt = Some(Receipt::Agent);
    keep(&post, first).await.unwrap();
    keep(&post, letter("mallory", 2, "bob")).await.unwrap();
    let mailbox = post.mailbox("mallory").unwrap();
    let most = waiting_notices::MOST_NOTICES as u64;
    for number in 1..most {
        shelve_notice(&mailbox, 1000 + number, 1);
    }
    keep(&post, letter("mallory", 3, "bob")).await.unwrap();

    // A receipt is a notice, too.
    let settle = |outcome| {
        let settled = vec![(post.list("bob").0[0].number, outcome)];
        post.settle("process", "bob", settled)
    };
    settle(LetterOutcome::Taken).await.unwrap();
    assert_eq!(post.list("mallory").1, most);
    for receiver in ["bob", "carol"] {
        let refused = keep(&post, letter("mallory", 4, receiver)).await;
        let fault = refused.unwrap_err();
        assert_eq!(fault.code, FaultCode::Full);
        let text = fault.to_string();
        assert!(text.contains("from mallory: 10000 notices"), "{text}");
    }
    assert!(post.mailboxes.lock().get("carol").is_none());
    // Letters that are there are recognised. Letters from other nodes and from other senders are kept, and so are notices.
    keep(&post, letter("mallory", 1, "bob")).await.unwrap();
    keep(&post, letter("mallory", 2, "bob")).await.unwrap();
    let mut carried = letter("mallory", 5, "bob");
    carried.cover.hops = 1;
    keep(&post, carried).await.unwrap();
    keep(&post, letter("alice", 6, "bob")).await.unwrap();
    settle(LetterOutcome::Expired).await.unwrap();
    assert_eq!(post.list("mallory").1, most + 1);

    // The sender reads some.
    let read = vec![(1, LetterOutcome::Taken), (2, LetterOutcome::Taken)];
    post.settle("process", "mallory", read).await.unwrap();
    keep(&post, letter("mallory", 7, "bob")).await.unwrap();
    // A few long ones are as bad.
    mailbox.shelf.lock().take(1001);
    shelve_notice(&mailbox, 1, waiting_notices::MOST_BYTES);
    let fault = keep(&post, letter("mallory", 8, "bob")).await.unwrap_err();
    assert!(fault.to_string().contains("9999 notices"), "{fault}");
    mailbox.shelf.lock().take(1);
    keep(&post, letter("mallory", 8, "bob")).await.unwrap();
}

/// The other node keeps them until there is room. Otherwise it could fill the disk with them.
#[tokio::test]
async fn notices_of_other_nodes_leave_the_reserve_and_stop_at_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(1000 * MEBIBYTE));
    let mut post = open(folder.path());
    post.reserve = Reserve::with_free(&free);
    let post = Arc::new(post);
    let carried = |sequence, receiver: &str| {
        let mut notice = letter("ams", sequence, receiver);
        (notice.cover.origin, notice.cover.hops) = (9, 1);
        notice.cover.provenance = WaitingProvenance::Platform;
        notice.cover.about = Some(AboutLetter {
            receiver: "bob".to_owned(),
            number: sequence,
            failure: true,
        });
        notice
    };
    keep(&post, carried(1, "mallory")).await.unwrap();
    free.store(50 * MEBIBYTE, Ordering::SeqCst);
    for receiver in ["mallory", "dora"] {
        let fault = keep(&post, carried(2, receiver)).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Full, "{receiver}");
    }
    assert!(post.mailboxes.lock().get("dora").is_none());
    free.store(1000 * MEBIBYTE, Ordering::SeqCst);
    let mailbox = post.mailbox("mallory").unwrap();
    for number in 1..waiting_notices::MOST_NOTICES as u64 {
        shelve_notice(&mailbox, 1000 + number, 1);
    }
    let fault = keep(&post, carried(2, "mallory")).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Full);
    // The notice that is there is recognised, and the node's own ones are kept.
    keep(&post, carried(1, "mallory")).await.unwrap();
    let mut own = carried(1, "mallory");
    (own.cover.origin, own.cover.hops) = (10, 0);
    keep(&post, own).await.unwrap();
    // The agent reads two.
    for number in [1001, 1002] {
        mailbox.shelf.lock().take(number);
    }
    keep(&post, carried(2, "mallory")).await.unwrap();
}

#[tokio::test]
async fn messages_that_go_back_without_end_have_a_share_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    for number in 1..=20 {
        keep(&post, letter("mallory", number, "bob")).await.unwrap();
    }
    for _ in 0..20 {
        let expired = vec![(post.list("bob").0[0].number, LetterOutcome::Expired)];
        post.settle("process", "bob", expired).await.unwrap();
    }
    assert_eq!(post.admit_line("mallory@factory"), None);
    assert!(post.admit_line("alice@factory").is_some());
}

#[tokio::test]
async fn nothing_is_kept_for_centuries() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    let mut eternal = letter("alice", 1, "bob");
    eternal.cover.expiry = now() + 300 * 365 * 86_400_000;
    let fault = keep(&post, eternal).await.unwrap_err();
    assert!(fault.to_string().contains("30 days at most"), "{fault}");
    // Another node, which brings one, may have accepted it by another clock.
    let mut carried = letter("alice", 2, "bob");
    (carried.cover.hops, carried.cover.expiry) = (1, u64::MAX);
    keep(&post, carried).await.unwrap();
    let latest = now() + (LONGEST_LIFETIME + CLOCKS_APART).as_millis() as u64;
    assert!(post.list("bob").0[0].expiry <= latest);
}

#[tokio::test]
async fn a_name_that_no_agent_has_leaves_no_mailbox_behind() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    let carriers = tokio::spawn(run(post.clone(), Arc::new(NoWays)));
    let mut short = letter("alice", 1, "nobody");
    short.cover.expiry = now() + 20;
    keep(&post, short).await.unwrap();
    while post.mailboxes.lock().contains_key("nobody") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let streams = || -> Vec<String> {
        let streams = post.journal.streams();
        streams.iter().map(|it| it.name().to_owned()).collect()
    };
    // The sender is told.
    assert_eq!(post.list("alice").1, 1);
    assert_eq!(streams(), ["mailbox/alice"]);
    // The name can be used again.
    keep(&post, letter("alice", 2, "nobody")).await.unwrap();
    assert_eq!(post.list("nobody").1, 1);
    carriers.abort();
}

#[test]
fn the_numbers_of_one_process_are_not_those_of_another() {
    let said = new_origin();
    let (one, other) = (origin_of("one", said), origin_of("other", said));
    assert_ne!(one, other);
    assert_eq!(one, origin_of("one", said));
    assert_ne!(one, origin_of("one", said ^ 1));
    assert_eq!(one >> 32, said >> 32);
    assert!(origin_of("one", u64::MAX) >> 32 <= now() / 1000);
}

/// Otherwise the node would not recognise a letter that is brought again a second later.
#[test]
fn a_process_whose_clock_is_ahead_has_one_origin() {
    let (began, most) = (1_800_000_000_u64, CLOCKS_APART.as_secs());
    let at = |second: u64| origin_at("one", began << 32 | 5, second * 1000);
    for ahead in [1, 10, most] {
        assert_eq!(at(began - ahead), at(began + 60));
        assert_eq!(at(began - ahead) >> 32, began);
    }
    // No process is remembered longer by claiming that it begins in the far future.
    assert_eq!(at(began - most - 1) >> 32, 0);
    assert_eq!(origin_at("one", u64::MAX, began * 1000) >> 32, 0);
}

/// A letter that comes back is marked if an agent may have taken it where it was, even after a restart of the node.
#[tokio::test]
async fn a_letter_that_comes_back_is_marked_as_it_was_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    for sequence in [1, 2] {
        keep(&post, letter("a", sequence, "b")).await.unwrap();
    }
    let mut back = letter("a", 1, "b");
    back.cover.hops = 2;
    back.cover.again = true;
    keep(&post, back).await.unwrap();
    let marked = |post: &KeptLetters| {
        let mailbox = post.mailbox("b").unwrap();
        let shelf = mailbox.shelf.lock();
        let letters = shelf.letters();
        let marks = letters.map(|(_, kept, _)| (kept.cover.hops, kept.cover.again));
        marks.collect::<Vec<_>>()
    };
    assert_eq!(marked(&post), [(2, true), (0, false)]);
    let post = restarted(post, folder.path()).await;
    assert_eq!(marked(&post), [(2, true), (0, false)]);
}

#[tokio::test]
async fn a_letter_that_comes_again_and_again_takes_no_more_room() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    keep(&post, letter("mallory", 1, "bob")).await.unwrap();
    keep(&post, letter("mallory", 2, "bob")).await.unwrap();
    let stream = post.mailbox("bob").unwrap().stream.clone();
    let before = stream.info().bytes;
    for _ in 0..100 {
        for number in [1, 2] {
            keep(&post, letter("mallory", number, "bob")).await.unwrap();
        }
    }
    assert_eq!(stream.info().bytes, before);
    assert_eq!(post.list("bob").1, 2);
}

/// A disk on which no file can be begun: a letter that does not fit into the present file is not written, and one that
/// fits is.
#[tokio::test]
async fn a_copy_of_a_letter_that_could_not_be_written_is_not_kept_either() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    let long = |sequence| {
        let message = AclMessage::new(Performative::Inform)
            .with_sender(Aid::new("alice@factory").unwrap())
            .with_content("x".repeat(500_000));
        let mut letter = letter("alice", sequence, "bob");
        letter.message.0.clear();
        bitefficient::encode(&message, &mut letter.message.0).unwrap();
        letter
    };
    for sequence in 1..=8 {
        keep(&post, long(sequence)).await.unwrap();
    }
    let stream = std::fs::read_dir(folder.path()).unwrap();
    let mut folders = stream.map(|entry| entry.unwrap().path());
    let files = folders.find(|path| path.is_dir()).unwrap();
    let away = folder.path().join("away");
    std::fs::rename(&files, &away).unwrap();
    let (one, other) = (
        post.begin(vec![long(9)], None),
        post.begin(vec![long(9)], None),
    );
    for begun in [one, other] {
        assert!(begun.finish().await[0].is_some());
    }
    assert_eq!(post.list("bob").1, 8);
    std::fs::rename(&away, &files).unwrap();
    keep(&post, long(9)).await.unwrap();
    assert_eq!(post.list("bob").1, 9);
}

/// While the letter is written, a copy comes that was carried further. The node that brings the copy then forgets it,
/// so this copy must be the one that is kept here.
#[tokio::test]
async fn a_letter_counts_the_way_of_the_copy_that_was_carried_furthest() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    let carried = |hops| {
        let mut letter = letter("a", 1, "b");
        letter.cover.hops = hops;
        post.begin(vec![letter], None)
    };
    for begun in [carried(1), carried(7), carried(3)] {
        assert_eq!(begun.finish().await, [None]);
    }
    let hops = |post: &KeptLetters| {
        let mailbox = post.mailbox("b").unwrap();
        let shelf = mailbox.shelf.lock();
        shelf.letters().map(|(_, kept, _)| kept.cover.hops).max()
    };
    assert_eq!(hops(&post), Some(7));
    let post = restarted(post, folder.path()).await;
    assert_eq!(hops(&post), Some(7));
}

/// Nobody waits for the end of work that has begun, and later letters are still found.
#[tokio::test]
async fn a_letter_that_nobody_waits_for_holds_up_no_other_one() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    drop(post.begin(vec![letter("a", 1, "b")], None));
    keep(&post, letter("a", 2, "b")).await.unwrap();
    assert_eq!(post.list("b").1, 2);
}

#[tokio::test]
async fn a_letter_that_is_taken_while_its_return_is_noted_leaves_no_note_behind() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    keep(&post, letter("a", 1, "b")).await.unwrap();
    let mut back = letter("a", 1, "b");
    back.cover.hops = 2;
    let begun = post.begin(vec![back], None);
    let taken = vec![(post.list("b").0[0].number, LetterOutcome::Taken)];
    post.settle("process", "b", taken).await.unwrap();
    assert_eq!(begun.finish().await, [None]);
    let notes = post.mailbox("b").unwrap().stream.cursors();
    let notes: Vec<_> = notes
        .keys()
        .filter(|name| name.starts_with("hops/"))
        .collect();
    assert!(notes.is_empty(), "{notes:?}");
}

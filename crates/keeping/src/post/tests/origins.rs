//! Origins and numbers that processes choose.

use super::*;
use crate::post::had::{MOST_OF_ORIGIN, MOST_STRETCHES};

fn of(origin: u64, sequence: u64) -> PostedLetter {
    let mut letter = letter("alice", sequence, "bob");
    letter.cover.origin = origin;
    letter
}

/// Keeps letters. Returns their numbers on the node.
async fn kept(post: &Arc<KeptLetters>, letters: Vec<PostedLetter>) -> Vec<u64> {
    let refused = post.keep(letters).await;
    assert!(refused.iter().all(Option::is_none));
    let mailbox = post.mailbox("bob").unwrap();
    let shelf = mailbox.shelf.lock();
    shelf.letters().map(|(number, ..)| number).collect()
}

async fn take(post: &Arc<KeptLetters>, numbers: impl IntoIterator<Item = u64>) {
    let taken = numbers.into_iter().map(|it| (it, LetterOutcome::Taken));
    let taken = taken.collect();
    post.settle("process", "bob", taken).await.unwrap();
}

/// Whether a letter that is brought again counts as a new one.
async fn is_new(post: &Arc<KeptLetters>, letter: PostedLetter) -> bool {
    let before = post.list("bob").1;
    keep(post, letter).await.unwrap();
    post.list("bob").1 > before
}

#[tokio::test]
async fn memory_and_disk_forget_the_same_origins() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    let last = MOST_STRETCHES as u64 + 100;
    let letters = (1..=last).map(|origin| of(origin, 1)).collect();
    let numbers = kept(&post, letters).await;
    take(&post, numbers).await;
    for known in [101, last] {
        assert!(!is_new(&post, of(known, 1)).await, "{known}");
    }
    assert!(is_new(&post, of(1, 1)).await);
    let post = restarted(post, folder.path()).await;
    for known in [101, last] {
        assert!(!is_new(&post, of(known, 1)).await, "{known}");
    }
    assert!(is_new(&post, of(100, 1)).await);
}

/// Each stretch between two gaps is noted on disk.
#[tokio::test]
async fn an_origin_with_many_gaps_pushes_out_its_own_stretches() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    let numbers = kept(&post, vec![of(7, 1)]).await;
    take(&post, numbers).await;
    let last = 2 * (MOST_STRETCHES as u64 + 10);
    let sequences = (2..=last).step_by(2);
    let letters = sequences.map(|sequence| of(8, sequence)).collect();
    let numbers = kept(&post, letters).await;
    take(&post, numbers).await;
    let post = restarted(post, folder.path()).await;
    assert!(!is_new(&post, of(7, 1)).await);
    let first = last - 2 * (MOST_OF_ORIGIN as u64 - 1);
    for known in [first, last] {
        assert!(!is_new(&post, of(8, known)).await, "{known}");
    }
    assert!(is_new(&post, of(8, first - 2)).await);
}

#[tokio::test]
async fn letters_that_are_taken_in_any_order_leave_one_note() {
    let folder = tempfile::tempdir().unwrap();
    let post = Arc::new(open(folder.path()));
    let letters = (1..=5).map(|sequence| of(7, sequence)).collect();
    let numbers = kept(&post, letters).await;
    for taken in [3, 1, 4, 0, 2] {
        take(&post, [numbers[taken]]).await;
    }
    let notes = post.mailbox("bob").unwrap().stream.cursors();
    let notes = notes.keys().filter(|name| name.starts_with("seen/"));
    assert_eq!(notes.count(), 1);
}

use proptest::prelude::*;

use super::*;
use sealbus_control::WaitingProvenance;

fn letter(origin: u64, sequence: u64) -> ShelvedLetter {
    ShelvedLetter {
        cover: Cover {
            origin,
            sequence,
            receiver: "b".to_owned(),
            provenance: WaitingProvenance::Claimed,
            posted: 0,
            expiry: 1000,
            hops: 0,
            again: false,
            valid_from: None,
            receipt: None,
            about: None,
        },
        size: 10,
    }
}

fn hand_over(shelf: &mut Shelf, now: UnixMillis) -> Vec<(u64, bool)> {
    let next = shelf.to_hand_over(now);
    shelf.hand_over(&next).1
}

#[derive(Clone, Debug)]
enum Step {
    Post(u64),
    PostAgain(u64),
    HandOver,
    Settle,
    Restart,
    Reconnect,
    Leave,
    SayAgain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u64..3).prop_map(Step::Post),
        2 => (0_u64..3).prop_map(Step::PostAgain),
        4 => Just(Step::HandOver),
        4 => Just(Step::Settle),
        1 => Just(Step::Restart),
        1 => Just(Step::Reconnect),
        1 => Just(Step::Leave),
        1 => Just(Step::SayAgain),
    ]
}

proptest! {
    /// Letters may be posted twice, lost on the way or left unread, and the process may report again that it left them.
    /// Still, each is taken once and in the order of its origin, and a process gets no letter as new that an earlier
    /// process may have taken.
    #[test]
    fn each_letter_is_taken_once_and_in_order(steps in prop::collection::vec(step(), 1..80)) {
        let mut shelf = Shelf::default();
        let (mut number, mut process) = (0, 0);
        let mut sequences = [0_u64; 3];
        // Each letter with its hand-over.
        let mut inside: Vec<(u64, u64)> = Vec::new();
        let mut said: Vec<(u64, u64, u64)> = Vec::new();
        let mut touched = BTreeSet::new();
        let name = |process: u64| format!("p{process}");
        let mut taken: Vec<(u64, u64)> = Vec::new();
        shelf.is_in(Some("p0"));
        for step in steps {
            match step {
                Step::Post(origin) => {
                    sequences[origin as usize] += 1;
                    let kept = letter(origin, sequences[origin as usize]);
                    prop_assert_eq!(shelf.admit(&kept.cover, kept.size), Ok(()));
                    number += 1;
                    shelf.put(number, kept);
                }
                Step::PostAgain(origin) => {
                    for sequence in 1..=sequences[origin as usize] {
                        let kept = letter(origin, sequence);
                        prop_assert_eq!(shelf.admit(&kept.cover, 10), Err(NotTaken::Known));
                    }
                }
                Step::HandOver => {
                    let next = shelf.to_hand_over(0);
                    let (hand_over, handed) = shelf.hand_over(&next);
                    for (next, again) in handed {
                        let is_touched =
                            (0..process).any(|former| touched.contains(&(next, former)));
                        prop_assert!(again || !is_touched);
                        if inside.iter().all(|(number, _)| *number != next) {
                            inside.push((next, hand_over));
                            touched.insert((next, process));
                        }
                    }
                }
                Step::Settle if !inside.is_empty() => {
                    let kept = shelf.take(inside.remove(0).0);
                    let kept = kept.expect("it was not taken before");
                    taken.push((kept.cover.origin, kept.cover.sequence));
                }
                Step::Settle => {}
                Step::Restart => {
                    process += 1;
                    inside.clear();
                    shelf.is_in(Some(&name(process)));
                }
                Step::Reconnect => shelf.resend(),
                Step::Leave => for (left, hand_over) in inside.drain(..) {
                    shelf.was_left(&name(process), left, hand_over);
                    touched.remove(&(left, process));
                    said.push((process, left, hand_over));
                },
                Step::SayAgain => for (process, left, hand_over) in &said {
                    shelf.was_left(&name(*process), *left, *hand_over);
                },
            }
        }
        loop {
            for (next, _) in hand_over(&mut shelf, 0) {
                if inside.iter().all(|(number, _)| *number != next) {
                    inside.push((next, 0));
                }
            }
            if inside.is_empty() {
                break;
            }
            let kept = shelf.take(inside.remove(0).0).expect("it was not taken before");
            taken.push((kept.cover.origin, kept.cover.sequence));
        }
        for origin in 0..3 {
            let of_it: Vec<u64> =
                taken.iter().filter(|(from, _)| *from == origin).map(|(_, n)| *n).collect();
            let all: Vec<u64> = (1..=sequences[origin as usize]).collect();
            prop_assert_eq!(of_it, all);
        }
    }
}

#[test]
fn nothing_is_handed_over_before_its_time_or_after() {
    let mut shelf = Shelf::default();
    let mut early = letter(1, 1);
    early.cover.valid_from = Some(50);
    shelf.put(1, early);
    shelf.put(2, letter(1, 2));
    assert_eq!(shelf.next_moment(10), Some(50));
    assert_eq!(hand_over(&mut shelf, 10), [(2, false)]);
    assert_eq!(hand_over(&mut shelf, 50), [(1, false)]);
    shelf.was_not_handed(1);
    assert_eq!(shelf.expired(1000), [1]);
    assert_eq!(hand_over(&mut shelf, 1000), []);
}

/// The process did not get the answer to its first report, and the letter was handed over anew in the meantime.
#[test]
fn a_report_that_a_letter_was_left_says_nothing_of_a_later_hand_over() {
    let mut shelf = Shelf::default();
    shelf.put(1, letter(1, 1));
    shelf.is_in(Some("one"));
    let (first, _) = shelf.hand_over(&[1]);
    shelf.was_left("one", 1, first);
    let (second, handed) = shelf.hand_over(&[1]);
    assert_eq!(handed, [(1, false)]);
    // The agent takes it.
    shelf.was_left("one", 1, first);
    assert_eq!(hand_over(&mut shelf, 0), [], "it is under way");
    // A report of a hand-over that never happened.
    for unknown in [second + 9, u64::MAX] {
        shelf.was_left("one", 1, unknown);
    }
    shelf.is_in(Some("two"));
    assert!(shelf.may_be_taken(1));
    shelf.was_left("one", 1, second);
    assert_eq!(hand_over(&mut shelf, 0), [(1, false)]);
}

#[test]
fn letters_come_to_the_shelf_in_the_order_of_the_disk() {
    let mut shelf = Shelf::default();
    shelf.begin_at(7);
    shelf.arrived(8, letter(1, 2));
    assert_eq!(hand_over(&mut shelf, 0), []);
    shelf.arrived(7, letter(1, 1));
    assert_eq!(hand_over(&mut shelf, 0), [(7, false), (8, false)]);
}

#[test]
fn a_full_shelf_takes_notices_only() {
    let mut shelf = Shelf::default();
    for number in 1..=MOST_LETTERS as u64 {
        let kept = letter(1, number);
        assert_eq!(shelf.admit(&kept.cover, 10), Ok(()));
        shelf.put(number, kept);
    }
    let mut next = letter(2, 1);
    assert_eq!(shelf.admit(&next.cover, 10), Err(NotTaken::Full));
    // A letter that precedes a waiting letter is admitted.
    assert_eq!(shelf.admit(&letter(1, 0).cover, 10), Ok(()));
    next.cover.about = Some(sealbus_control::post::AboutLetter {
        receiver: "c".to_owned(),
        number: 1,
        failure: false,
    });
    assert_eq!(shelf.admit(&next.cover, 10), Ok(()));
    shelf.retract(&next.cover);
    assert_eq!(shelf.admit(&next.cover, 10), Ok(()));
    // Only letters on the shelf count as waiting notices.
    let none = shelf.notices();
    assert_eq!(none, Notices::default());
    shelf.put(20_000, next.clone());
    assert_ne!(shelf.notices(), none);
    assert_eq!(shelf.take(20_000), Some(next));
    assert_eq!(shelf.notices(), none);
}

fn carried(sequence: u64, hops: u32) -> ShelvedLetter {
    let mut kept = letter(1, sequence);
    kept.cover.hops = hops;
    kept
}

/// A letter that went on from here is taken in when it comes back. A letter that is brought again, or was settled here,
/// is not.
#[test]
fn what_was_carried_onward_comes_back_and_what_was_taken_does_not() {
    let mut shelf = Shelf::default();
    for hops in [0, 2] {
        let kept = carried(1, hops);
        assert_eq!(shelf.admit(&kept.cover, 10), Ok(()));
        assert_eq!(shelf.admit(&kept.cover, 10), Err(NotTaken::BeingWritten));
        shelf.put(u64::from(hops) + 1, kept.clone());
        assert_eq!(shelf.admit(&kept.cover, 10), Err(NotTaken::Known));
        // The letter is carried again to where it lies, before the first carrier knows that it has arrived.
        let later = carried(1, hops + 1);
        assert_eq!(
            shelf.admit(&later.cover, 10),
            Err(NotTaken::Returned(u64::from(hops) + 1))
        );
        shelf.take(u64::from(hops) + 1);
        assert_eq!(
            shelf.admit(&carried(1, hops).cover, 10),
            Err(NotTaken::Known)
        );
    }
    let kept = carried(1, 4);
    assert_eq!(shelf.admit(&kept.cover, 10), Ok(()));
    shelf.put(9, kept);
    shelf.settled(9);
    shelf.take(9);
    assert_eq!(
        shelf.admit(&carried(1, 100).cover, 10),
        Err(NotTaken::Known)
    );
}

/// A letter that comes back goes before the letters that its sender wrote after it.
#[test]
fn letters_of_one_origin_go_in_the_order_they_were_written() {
    let mut shelf = Shelf::default();
    for (number, sequence) in [(1, 6), (2, 7), (4, 2), (5, 1), (6, 8)] {
        shelf.put(number, letter(1, sequence));
    }
    shelf.put(3, letter(2, 1));
    assert_eq!(shelf.to_hand_over(0), [5, 4, 1, 2, 3, 6]);
    assert_eq!(shelf.to_forward(1000), [5, 4, 1, 2, 3, 6]);
    let may_go = [4, 1, 3].into();
    assert_eq!(shelf.still_in_order(&shelf.to_forward(1000), &may_go), [3]);
    assert_eq!(
        shelf.standing(letter(1, 1).cover.mark(), 0),
        LetterStanding::Free
    );
    assert_eq!(
        shelf.standing(letter(1, 3).cover.mark(), 0),
        LetterStanding::Behind
    );
    assert_eq!(
        shelf.standing(letter(3, 3).cover.mark(), 0),
        LetterStanding::Free
    );
}

/// A letter whose predecessor has come and is still being written waits for it.
#[test]
fn a_letter_waits_for_an_earlier_one_that_is_being_written() {
    let mut shelf = Shelf::default();
    shelf.put(1, letter(1, 7));
    shelf.put(2, letter(2, 1));
    let earlier = letter(1, 3);
    assert_eq!(shelf.admit(&earlier.cover, earlier.size), Ok(()));
    let may_go = [1, 2].into();
    assert_eq!(shelf.still_in_order(&shelf.to_hand_over(0), &may_go), [2]);
    shelf.put(3, earlier);
    let may_go = [1, 2, 3].into();
    let line = shelf.to_hand_over(0);
    assert_eq!(shelf.still_in_order(&line, &may_go), [3, 1, 2]);
}

/// The node may end before the copy is on disk, and the other node would have forgotten its own copy.
#[test]
fn another_node_keeps_its_copy_until_this_one_is_on_disk() {
    let mut shelf = Shelf::default();
    let elsewhere = carried(1, 0).cover.mark();
    let here = carried(1, 1);
    shelf.admit(&here.cover, 10).unwrap();
    assert_eq!(shelf.standing(elsewhere, 0), LetterStanding::Behind);
    shelf.arrived(0, here.clone());
    assert_eq!(shelf.standing(elsewhere, 0), LetterStanding::Had);

    // The letter was carried on, and comes back.
    let (elsewhere, back) = (carried(1, 2).cover.mark(), carried(1, 3).cover);
    assert_eq!(shelf.standing(elsewhere, 0), LetterStanding::Free);
    let again = back.again;
    // If the note cannot be written, the copy that is brought once more gets another note.
    for _ in 0..2 {
        assert_eq!(shelf.admit(&back, 10), Err(NotTaken::Returned(0)));
        assert_eq!(shelf.returned(0, &back), Some((back.mark(), again)));
        assert_eq!(shelf.standing(elsewhere, 0), LetterStanding::Behind);
    }
    shelf.return_noted(0, back.mark());
    assert_eq!(shelf.standing(elsewhere, 0), LetterStanding::Had);
    assert_eq!(shelf.admit(&back, 10), Err(NotTaken::Known));

    // The note of an earlier return does not count for a later one.
    let (first, _) = shelf.returned(0, &carried(1, 5).cover).unwrap();
    let (second, _) = shelf.returned(0, &carried(1, 7).cover).unwrap();
    shelf.return_noted(0, first);
    let elsewhere = carried(1, 6).cover.mark();
    assert_eq!(shelf.standing(elsewhere, 0), LetterStanding::Behind);
    // A copy that was carried less far counts no more than the letter here.
    let earlier = carried(1, 6).cover;
    assert_eq!(shelf.admit(&earlier, 10), Err(NotTaken::Returned(0)));
    assert_eq!(shelf.returned(0, &earlier), Some((second, again)));
    shelf.return_noted(0, second);
    assert_eq!(shelf.standing(elsewhere, 0), LetterStanding::Had);
    let (last, _) = shelf.returned(0, &carried(1, 9).cover).unwrap();
    shelf.take(0).unwrap();
    shelf.return_noted(0, last);
    assert_eq!(shelf.waiting(), 0);
}

/// A letter that was here stays noted while it comes back.
#[test]
fn a_return_that_is_being_noted_does_not_shorten_what_says_that_letters_were_here() {
    let mut shelf = Shelf::default();
    for sequence in [1, 2, 3, 4] {
        let kept = carried(sequence, 0);
        shelf.admit(&kept.cover, 10).unwrap();
        shelf.put(sequence, kept);
    }
    let stretch = |shelf: &Shelf, sequence, hops| {
        let cover = carried(sequence, hops).cover;
        shelf.stretch(cover.mark())
    };
    shelf.returned(3, &carried(3, 2).cover).unwrap();
    assert_eq!(stretch(&shelf, 1, 0), Some((1, 5)));
    // The letter is gone, and its return is being written.
    shelf.take(4).unwrap();
    shelf.admit(&carried(4, 2).cover, 10).unwrap();
    assert_eq!(stretch(&shelf, 2, 0), Some((1, 5)));
    shelf.returned(2, &carried(2, 2).cover).unwrap();
    assert_eq!(stretch(&shelf, 3, 2), Some((3, 4)));
}

#[test]
fn what_says_on_disk_that_letters_were_here_leaves_out_those_that_may_not_reach_the_disk() {
    let mut shelf = Shelf::default();
    for sequence in [1, 2, 3, 4, 5] {
        let kept = letter(7, sequence);
        shelf.admit(&kept.cover, kept.size).unwrap();
        if sequence != 2 && sequence != 5 {
            shelf.put(sequence, kept);
        }
    }
    let stretch = |shelf: &Shelf, sequence| shelf.stretch(letter(7, sequence).cover.mark());
    assert_eq!(stretch(&shelf, 1), Some((1, 2)));
    assert_eq!(stretch(&shelf, 3), Some((3, 5)));
    assert_eq!(stretch(&shelf, 4), Some((3, 5)));
    shelf.put(2, letter(7, 2));
    assert_eq!(stretch(&shelf, 1), Some((1, 5)));
    shelf.retract(&letter(7, 5).cover);
    assert_eq!(stretch(&shelf, 4), Some((1, 5)));
}

/// A stretch may contain letters that are still here, or on their way to the disk.
#[test]
fn letters_that_are_here_stay_known_when_their_stretch_is_forgotten() {
    let mut shelf = Shelf::default();
    for sequence in [1, 2, 3] {
        let kept = letter(7, sequence);
        shelf.admit(&kept.cover, kept.size).unwrap();
        if sequence != 3 {
            shelf.put(sequence, kept);
        }
    }
    let (first, end) = shelf.stretch(letter(7, 1).cover.mark()).unwrap();
    assert_eq!((first, end), (1, 3));
    shelf.had().note_stretch((7, 0, first), end);
    shelf.take(1).unwrap();
    shelf.forget_stretch((7, 0, first));
    let known = [1, 2, 3].map(|sequence| {
        let mark = letter(7, sequence).cover.mark();
        shelf.had().had(mark)
    });
    assert_eq!(known, [false, true, true]);
}

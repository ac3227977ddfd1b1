//! Messages from outside whose receivers' mailboxes are full. Each mailbox has a line of its own, so that messages for
//! other mailboxes do not wait behind it. Free of I/O.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use sealbus_fipa::AclMessage;

/// A line takes no more than the whole divided by this number, unless the line is empty.
const SHARE: usize = 4;

/// The lines. `T` is the type of the waiting messages.
pub(crate) struct Lines<T> {
    lines: HashMap<String, Line<T>>,
    /// Bytes of all that waits or is in hand.
    bytes: usize,
    most: usize,
}

struct Line<T> {
    waiting: VecDeque<(usize, T)>,
    bytes: usize,
    /// Bytes of the message that was taken from the line last.
    in_hand: usize,
}

/// A message from outside that waits for room in its receiver's mailbox.
pub(crate) struct WaitingMessage {
    pub(crate) message: Arc<AclMessage>,
    pub(crate) until: Instant,
}

/// How something joined a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The message begins the line: the caller must see that the line is handed out.
    First,
    /// Others are before it.
    Behind,
}

/// There is no room in the line, or in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineFull;

impl<T> Lines<T> {
    /// Lines for at most this many bytes together.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            lines: HashMap::new(),
            bytes: 0,
            most,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether messages wait for this mailbox, or one is in hand for it. A new message must then join the line.
    pub(crate) fn is_open(&self, mailbox: &str) -> bool {
        self.lines.contains_key(mailbox)
    }

    pub(crate) fn join(&mut self, mailbox: &str, size: usize, item: T) -> Result<Joined, LineFull> {
        let here = self.lines.get(mailbox).map_or(0, |line| line.bytes);
        if self.bytes + size > self.most || here > 0 && here + size > self.most / SHARE {
            return Err(LineFull);
        }
        self.bytes += size;
        if let Some(line) = self.lines.get_mut(mailbox) {
            line.bytes += size;
            line.waiting.push_back((size, item));
            return Ok(Joined::Behind);
        }
        let line = Line {
            waiting: VecDeque::from([(size, item)]),
            bytes: size,
            in_hand: 0,
        };
        self.lines.insert(mailbox.to_owned(), line);
        Ok(Joined::First)
    }

    /// Takes the next item, after the last one was handled. `None`: the line has ended.
    pub(crate) fn next(&mut self, mailbox: &str) -> Option<T> {
        let line = self.lines.get_mut(mailbox)?;
        let done = std::mem::take(&mut line.in_hand);
        line.bytes -= done;
        self.bytes -= done;
        match line.waiting.pop_front() {
            Some((size, item)) => {
                line.in_hand = size;
                Some(item)
            }
            None => {
                self.lines.remove(mailbox);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_open_until_its_last_is_dealt_with() {
        let mut lines = Lines::new(100);
        assert_eq!(lines.join("a", 1, 1), Ok(Joined::First));
        assert_eq!(lines.join("a", 1, 2), Ok(Joined::Behind));
        assert_eq!(lines.join("b", 1, 3), Ok(Joined::First));
        assert_eq!((lines.next("a"), lines.next("a")), (Some(1), Some(2)));
        assert!(lines.is_open("a"));
        assert_eq!(lines.join("a", 1, 4), Ok(Joined::Behind));
        assert_eq!((lines.next("a"), lines.next("a")), (Some(4), None));
        assert!(!lines.is_open("a") && lines.is_open("b") && !lines.is_empty());
    }

    #[test]
    fn one_line_does_not_take_the_room_of_all() {
        let mut lines = Lines::new(100);
        assert_eq!(lines.join("large", 60, ()), Ok(Joined::First));
        assert_eq!(lines.join("large", 1, ()), Err(LineFull));
        assert_eq!(lines.join("a", 20, ()), Ok(Joined::First));
        assert_eq!(lines.join("a", 6, ()), Err(LineFull));
        assert_eq!(lines.join("a", 5, ()), Ok(Joined::Behind));
        assert_eq!(lines.join("b", 16, ()), Err(LineFull));
        lines.next("large");
        assert_eq!(lines.join("b", 16, ()), Err(LineFull));
        lines.next("large");
        assert_eq!(lines.join("b", 16, ()), Ok(Joined::First));
    }

    proptest! {
        #[test]
        fn order_is_kept_and_room_is_given_back(
            steps in prop::collection::vec((0_usize..3, 0_usize..12, any::<bool>()), 0..200),
        ) {
            let mut lines = Lines::new(64);
            let mut expected: [VecDeque<usize>; 3] = Default::default();
            for (number, (mailbox, size, joins)) in steps.into_iter().enumerate() {
                let name = ["a", "b", "c"][mailbox];
                if joins {
                    let was_open = lines.is_open(name);
                    match lines.join(name, size, number) {
                        Ok(joined) => {
                            prop_assert_eq!(joined == Joined::Behind, was_open);
                            expected[mailbox].push_back(number);
                        }
                        Err(LineFull) => prop_assert!(lines.bytes + size > lines.most / SHARE),
                    }
                } else {
                    prop_assert_eq!(lines.next(name), expected[mailbox].pop_front());
                }
                prop_assert!(lines.bytes <= lines.most);
            }
            for name in ["a", "b", "c"] {
                while lines.next(name).is_some() {}
            }
            prop_assert!(lines.is_empty() && lines.bytes == 0);
        }
    }
}

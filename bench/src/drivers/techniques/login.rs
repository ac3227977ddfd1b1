//! Logins: the words of two ends before the first message, by which each proves itself to the other.

mod certificate;
mod password;

pub(crate) use certificate::{Algorithm, Authority, Certified};
pub(crate) use password::{Accounts, Password};

use super::NotBelieved;

/// An end's answer to the words of the other one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) say: Option<Vec<u8>>,
    /// The other end is proved.
    pub(crate) is_done: bool,
}

impl Reply {
    fn more(say: Vec<u8>) -> Self {
        Self {
            say: Some(say),
            is_done: false,
        }
    }

    fn last(say: Vec<u8>) -> Self {
        Self {
            is_done: true,
            ..Self::more(say)
        }
    }

    fn done() -> Self {
        Self {
            say: None,
            is_done: true,
        }
    }
}

/// One end of a login.
pub(crate) trait Party: Send {
    /// The first words, if this end has them.
    fn begin(&mut self) -> Option<Vec<u8>>;

    /// Takes the other end's next words.
    fn hear(&mut self, words: &[u8]) -> Result<Reply, NotBelieved>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets two ends talk. `change` gets the words of each turn, and may change them.
    pub(super) fn talk(
        asking: &mut dyn Party,
        answering: &mut dyn Party,
        mut change: impl FnMut(usize, &mut Vec<u8>),
    ) -> Result<(), NotBelieved> {
        let mut words = asking.begin().unwrap();
        let mut done = [false; 2];
        for turn in 0.. {
            change(turn, &mut words);
            let is_answering = turn % 2 == 0;
            let party: &mut dyn Party = match is_answering {
                true => answering,
                false => asking,
            };
            let reply = party.hear(&words)?;
            done[usize::from(is_answering)] |= reply.is_done;
            match reply.say {
                Some(say) => words = say,
                None => break,
            }
        }
        assert_eq!(done, [true; 2]);
        Ok(())
    }

    /// Each byte of each of the words is changed once, and the login must fail. Returns how many bytes there were.
    pub(super) fn change_each_byte(
        mut make: impl FnMut() -> (Box<dyn Party>, Box<dyn Party>),
    ) -> usize {
        let mut lengths = Vec::new();
        let (mut asking, mut answering) = make();
        talk(asking.as_mut(), answering.as_mut(), |_, words| {
            lengths.push(words.len());
        })
        .unwrap();
        for (turn, length) in lengths.iter().enumerate() {
            for at in 0..*length {
                let (mut asking, mut answering) = make();
                let result = talk(asking.as_mut(), answering.as_mut(), |now, words| {
                    if now == turn {
                        // The words may be shorter this time: signatures of ECDSA have no fixed length.
                        let at = at.min(words.len() - 1);
                        words[at] ^= 1;
                    }
                });
                assert!(result.is_err(), "byte {at} of the words {turn}");
            }
        }
        lengths.iter().sum()
    }
}

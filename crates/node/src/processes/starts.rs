//! The starts of processes. If a start is requested again, because its answer was lost or another Master leads, it does
//! not begin a second time, not even when its process has ended.

use sealbus_control::Fault;
use tokio::sync::watch;

use super::{End, Ends, Entry, Processes};

/// The most ended processes that are remembered. The Master asks a node for one start after the other.
const MOST_ENDED: usize = 256;

/// The outcome of a start: the id of the process. `None` until there is one.
pub(crate) type Outcome = Option<Result<u32, Fault>>;

/// The state of a start that is requested.
pub(crate) enum Begun {
    /// It begins now. Its outcome goes here, for all who ask for it.
    Now(watch::Sender<Outcome>),
    /// It began earlier.
    Before(watch::Receiver<Outcome>),
    /// Its process has ended.
    Over(Box<End>),
}

impl Ends {
    /// Remembers a process that has ended.
    pub(crate) fn remember(&mut self, end: End) {
        self.last.push_back(end);
        if self.last.len() > MOST_ENDED {
            self.last.pop_front();
        }
    }
}

impl Entry {
    /// The outcome of the process's start, if the node is starting it or has started it.
    fn outcome(&self) -> Option<watch::Receiver<Outcome>> {
        // If it was taken over after the node's restart, its start is over.
        let taken_over = || Some(watch::channel(Some(Ok(self.pid()?))).1);
        self.start.clone().or_else(taken_over)
    }

    pub(crate) fn is_being_started(&self) -> bool {
        let outcome = self.start.as_ref();
        outcome.is_some_and(|outcome| outcome.borrow().is_none())
    }
}

impl Processes {
    /// Begins the start of a process, unless it began before. No other process ever has the same name.
    pub(crate) fn begin(&self, mut entry: Entry) -> Begun {
        let process = entry.placement.process.clone();
        // The process cannot end in between.
        let ended = self.ended.lock();
        let mut last = ended.last.iter();
        if let Some(end) = last.find(|end| end.row.launch.process == process) {
            return Begun::Over(Box::new(end.clone()));
        }
        let mut entries = self.entries.lock();
        let before = entries.get(&process).and_then(Entry::outcome);
        if let Some(outcome) = before {
            return Begun::Before(outcome);
        }
        let (outcome, start) = watch::channel(None);
        entry.start = Some(start);
        entries.insert(process, entry);
        Begun::Now(outcome)
    }

    /// Whether a process was told to stop, or has ended.
    pub(crate) fn is_stopped(&self, process: &str) -> bool {
        self.with(process, |entry| entry.is_stopped).unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use sealbus_control::node::Exit;

    use super::*;
    use crate::memory::tests::remembered;

    fn entry(process: &str) -> Entry {
        Entry::new(remembered(process))
    }

    fn begun(processes: &Processes, process: &str) -> watch::Sender<Outcome> {
        match processes.begin(entry(process)) {
            Begun::Now(outcome) => outcome,
            _ => panic!("{process} began before"),
        }
    }

    #[tokio::test]
    async fn a_start_begins_once_and_all_that_ask_for_it_get_its_outcome() {
        let processes = Processes::default();
        let outcome = begun(&processes, "p");
        let Begun::Before(mut other) = processes.begin(entry("p")) else {
            panic!("it begins twice");
        };
        let is_being_started = || processes.with("p", |entry| entry.is_being_started());
        assert!(is_being_started().unwrap());
        outcome.send_replace(Some(Ok(7)));
        assert!(!is_being_started().unwrap());
        let told = other.wait_for(Option::is_some).await.unwrap().clone();
        assert_eq!(told, Some(Ok(7)));

        // A process that ran before the node was restarted.
        let mut taken_over = remembered("q");
        taken_over.pid = Some((9, 1));
        let taken_over = Entry::taken_over(taken_over);
        processes.entries.lock().insert("q".to_owned(), taken_over);
        let Begun::Before(outcome) = processes.begin(entry("q")) else {
            panic!("it begins twice");
        };
        assert_eq!(*outcome.borrow(), Some(Ok(9)));
    }

    #[test]
    fn the_latest_ends_are_remembered() {
        let processes = Processes::default();
        let end = |number: usize| {
            let process = remembered(&format!("p-{number}"));
            let end = End::of(&process, Exit::Code { code: 0 }, Default::default());
            processes.ended.lock().remember(end);
        };
        (0..=MOST_ENDED).for_each(end);
        assert_eq!(processes.ended.lock().last.len(), MOST_ENDED);
        let Begun::Over(over) = processes.begin(entry("p-1")) else {
            panic!("it begins twice");
        };
        assert_eq!(over.row.launch.process, "p-1");
        drop(begun(&processes, "p-0"));
    }
}

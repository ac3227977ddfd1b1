//! The Masters of the platform, as the node knows them: where they are, and the highest term that it has heard of. It
//! obeys no Master of a lower term.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use sealbus_control::node::MasterContact;
use sealbus_control::{Fault, FaultCode, Term};
use sealbus_enrolment::Enrolment;
use sealbus_seal::Heard;
use sealbus_seal::token::MOST_ADDRESSES;
use tokio::sync::Notify;

use super::memory::{Memory, MemoryError};

/// The longest address of a Master, in bytes.
const ADDRESS_LENGTH: usize = 300;
/// If the leading Master has been silent for this long, requests that another Master can answer go there first.
const SILENT: Duration = Duration::from_secs(2);

/// The node's knowledge about Masters.
pub(crate) struct Leaders {
    enrolment: RwLock<Enrolment>,
    /// The highest term.
    term: Mutex<Option<Term>>,
    led_anew: Notify,
    /// Where the leading Master says that it is.
    at: Mutex<Option<(Option<Term>, MasterContact)>>,
    /// When the leading Master was last heard.
    heard: Mutex<Instant>,
    /// Whether the leading Master says that the store does not answer.
    store_is_away: AtomicBool,
    memory: Memory,
}

impl Leaders {
    /// The Masters, and the highest term from earlier times.
    pub(crate) fn new(enrolment: Enrolment, memory: Memory) -> Result<Self, MemoryError> {
        Ok(Self {
            enrolment: RwLock::new(enrolment),
            term: Mutex::new(memory.term()?),
            led_anew: Notify::new(),
            at: Mutex::default(),
            heard: Mutex::new(Instant::now()),
            store_is_away: AtomicBool::new(false),
            memory,
        })
    }

    /// How to join the platform.
    pub(crate) fn enrolment(&self) -> Enrolment {
        self.enrolment.read().clone()
    }

    /// Whether there is more than one Master.
    pub(crate) fn are_several(&self) -> bool {
        self.enrolment.read().addresses.len() > 1
    }

    /// Notes the addresses of all Masters; if there are none, only the known Master exists. Returns whether they are new.
    pub(crate) fn are_at(&self, addresses: &[String]) -> bool {
        let mut enrolment = self.enrolment.write();
        let is_plausible = addresses.len() <= MOST_ADDRESSES
            && addresses.iter().all(|it| it.len() <= ADDRESS_LENGTH);
        if addresses.is_empty() || !is_plausible || enrolment.addresses == addresses {
            return false;
        }
        enrolment.addresses = addresses.to_vec();
        true
    }

    /// Obeys a Master of this term from now on, unless the node has heard of a higher one. The term is on disk before
    /// the Master is obeyed. Returns whether it is higher than all before.
    ///
    /// # Errors
    /// [`FaultCode::NotPermitted`] if the term is over; [`FaultCode::Storage`] if it cannot be noted.
    pub(crate) fn obey(&self, term: Option<Term>) -> Result<bool, Fault> {
        let mut highest = self.term.lock();
        let Some(term) = term else {
            // A platform whose state was always in one file has only one Master, which states no term.
            let Some(known) = *highest else {
                return Ok(false);
            };
            let message = format!("it names no term: another Master leads in {known}");
            tracing::warn!(%known, "a Master that names no term is not obeyed");
            return Err(Fault::new(FaultCode::NotPermitted, message));
        };
        match term.heard_after(*highest) {
            Heard::Over { highest: known } => {
                let message = format!("the term {term} is over: another Master leads in {known}");
                tracing::warn!(%term, %known, "a Master whose term is over is not obeyed");
                return Err(Fault::new(FaultCode::NotPermitted, message));
            }
            Heard::Same => return Ok(false),
            Heard::Higher => {}
        }
        self.memory
            .keep_term(term)
            .map_err(|error| Fault::new(FaultCode::Storage, error.to_string()))?;
        tracing::info!(%term, "a Master leads");
        *highest = Some(term);
        Ok(true)
    }
}

impl Leaders {
    /// Notes that an unknown Master spoke to this node, so that nobody waits for the former one.
    pub(crate) fn another_leads(&self) {
        self.led_anew.notify_one();
    }

    /// Notes that the leading Master was heard, or that another one must be heard from now on.
    pub(crate) fn heard(&self) {
        *self.heard.lock() = Instant::now();
    }

    /// When the leading Master was last heard.
    pub(crate) fn heard_at(&self) -> Instant {
        *self.heard.lock()
    }

    /// Whether there are several Masters, and the leading one has been silent for a while.
    pub(crate) fn are_silent(&self) -> bool {
        self.are_several() && self.heard_at().elapsed() > SILENT
    }

    /// Notes whether the leading Master says that the store does not answer.
    pub(crate) fn store_is(&self, away: bool) {
        self.store_is_away.store(away, Ordering::Relaxed);
    }

    /// Whether the leading Master last said that the store does not answer.
    pub(crate) fn is_store_away(&self) -> bool {
        self.store_is_away.load(Ordering::Relaxed)
    }

    /// Notes where the Master that leads in this term says that it is.
    pub(crate) fn leads_at(&self, term: Option<Term>, at: MasterContact) {
        *self.at.lock() = Some((term, at));
        self.another_leads();
    }

    /// Where the Master that leads in the highest term is now, if it has said so since the last call.
    pub(crate) fn moved_to(&self) -> Option<MasterContact> {
        let (term, at) = self.at.lock().take()?;
        (term == *self.term.lock()).then_some(at)
    }

    /// Waits until another Master than before speaks to this node.
    pub(crate) async fn led_anew(&self) {
        self.led_anew.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaders(folder: &std::path::Path) -> Leaders {
        let enrolment = Enrolment {
            platform: "factory".parse().unwrap(),
            addresses: vec!["10.0.0.1:7000".to_owned()],
            root: sealbus_seal::Fingerprint::of(b"root"),
        };
        Leaders::new(enrolment, Memory::open(folder).unwrap()).unwrap()
    }

    #[test]
    fn a_lower_term_is_refused_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let term = |text: &str| Some(text.parse::<Term>().unwrap());
        let node = leaders(folder.path());
        assert!(!node.obey(None).unwrap());
        assert!(node.obey(term("0.4")).unwrap());
        assert!(!node.obey(term("0.4")).unwrap());
        assert_eq!(
            node.obey(term("0.3")).unwrap_err().code,
            FaultCode::NotPermitted
        );
        let node = leaders(folder.path());
        assert!(node.obey(term("0.3")).is_err());
        assert!(node.obey(None).is_err());
        assert!(node.obey(term("0.4")).is_ok());
        // After a restore the numbers begin anew, in a later epoch.
        assert!(node.obey(term("1790000000.1")).is_ok());
        assert!(node.obey(term("0.5")).is_err());
    }

    #[test]
    fn a_term_that_cannot_be_kept_is_not_obeyed() {
        let folder = tempfile::tempdir().unwrap();
        let node = leaders(folder.path());
        std::fs::create_dir(folder.path().join("term.json")).unwrap();
        let fault = node.obey(Some("0.4".parse().unwrap())).unwrap_err();
        assert_eq!(fault.code, FaultCode::Storage);
        std::fs::remove_dir(folder.path().join("term.json")).unwrap();
        assert!(node.obey(Some("0.3".parse().unwrap())).is_ok());
    }

    #[test]
    fn the_word_of_a_former_master_about_its_place_is_worth_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let node = leaders(folder.path());
        let term = |text: &str| Some(text.parse::<Term>().unwrap());
        let contact = |port: u16| sealbus_control::ProcessContact {
            node: "master".to_owned(),
            process: format!("{port:032x}"),
            address: ([10, 0, 0, 1], port).into(),
        };
        let at = |port| MasterContact {
            control: contact(port),
            services: contact(port),
        };
        node.obey(term("0.4")).unwrap();
        node.leads_at(term("0.4"), at(4));
        assert_eq!(node.moved_to(), Some(at(4)));
        assert_eq!(node.moved_to(), None);
        node.leads_at(term("0.4"), at(4));
        node.obey(term("0.5")).unwrap();
        assert_eq!(node.moved_to(), None);
    }

    #[test]
    fn addresses_that_make_no_sense_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let node = leaders(folder.path());
        let long = vec!["x".repeat(1000)];
        let many = vec!["10.0.0.2:1".to_owned(); MOST_ADDRESSES + 1];
        for addresses in [Vec::new(), long, many] {
            assert!(!node.are_at(&addresses));
        }
        assert!(!node.are_several());
        let both = ["10.0.0.1:7000".to_owned(), "10.0.0.2:7000".to_owned()];
        assert!(node.are_at(&both) && !node.are_at(&both) && node.are_several());
        assert_eq!(node.enrolment().addresses, both);
    }
}

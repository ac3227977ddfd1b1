//! The decision when an instance claims the leadership: the next step, from the outcome of the last step and the time.
//! No I/O.
//!
//! An instance stands by while another one holds the role. Once nobody holds the role, the instance takes it. It then claims the
//! next term, if the latest term is still the one that it saw before it took the role. The role hangs on a lease, and only says
//! which instance tries. An instance that sleeps between two steps therefore deposes no instance that began to lead meanwhile,
//! and none that has kept its lease. An instance that loses its lease while it leads goes on leading until another one has
//! claimed a later term.

#[cfg(test)]
mod simulation;

use sealbus_store::Revision;

/// Milliseconds of a clock that never goes back.
pub(super) type Moment = u64;

/// How long a lease lives without renewal, in whole seconds, and how often it is renewed.
pub(super) const LIFE: Moment = 3000;
const RENEWAL: Moment = 500;
/// How often a standby looks at the role.
const LOOK: Moment = 300;
/// The pause after a failure.
const PAUSE: Moment = 300;
/// How long an instance that gave the role back leaves it to others, unless one of them takes it sooner.
const YIELDING: Moment = 3000;

/// The next step. Each step but `Wait`, `Lead` and `Over` has an [`Outcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Do nothing until then.
    Wait(Moment),
    /// Get a lease.
    Lease,
    /// Renew the lease.
    Renew,
    /// Read the term, and then the role.
    Look,
    /// Take the role, if it is still as it was seen.
    Take {
        /// The revision of the role's row.
        seen: Revision,
    },
    /// Claim the next term, if the latest one is still as it was seen.
    Claim {
        /// The revision of the term's row.
        term: Revision,
    },
    /// End the lease, and with it the role.
    GiveBack,
    /// Begin to lead.
    Lead,
    /// The operator has ended the platform.
    Over,
}

/// The holder of the role, as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// No one.
    Nobody,
    /// This instance: now, or in an earlier life.
    Mine(Revision),
    /// Another instance.
    Others,
    /// The operator ended the platform.
    Ended(Revision),
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Of `Lease`: whether there is one.
    Leased(bool),
    /// Of `Renew`: whether the lease still lives; none if that is not known.
    Renewed(Option<bool>),
    /// Of `Look`.
    Seen {
        /// The revision of the term's row.
        term: Revision,
        /// The role.
        role: Role,
    },
    /// Of `Look`: the store does not answer.
    Unseen,
    /// Of `Take`: whether the role is this instance's. After an unclear answer it looks again.
    Taken(bool),
    /// Of `Claim`: whether the term is this instance's. After an unclear answer it looks again.
    Claimed(bool),
    /// Of `GiveBack`.
    GivenBack,
}

/// The place of an instance among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidacy {
    /// Another instance leads, or none, or that is not known.
    Standing,
    /// The role is free.
    Free { seen: Revision, term: Revision },
    /// The role is this instance's, and the term is not claimed yet.
    Holding { term: Revision },
    /// The instance may not claim, and gives the role back.
    Refused,
    /// The instance has claimed the term, and does not lead yet.
    Elected,
    /// The instance leads. Its lease may have ended meanwhile.
    Leading { holds: bool },
    /// The instance leads, and the role is free.
    LeadingFree { seen: Revision },
    /// The platform was ended.
    Over,
}

/// One instance's way to the leadership.
#[derive(Clone, Debug)]
pub(super) struct Claimant {
    place: Candidacy,
    leased: bool,
    renew_at: Moment,
    look_at: Moment,
    /// Until when the role is left to others.
    yields_until: Moment,
    stood_by: bool,
}

impl Claimant {
    /// An instance that begins. It `yields` if it has just given the role back.
    pub(super) fn new(yields: bool, now: Moment) -> Self {
        Self {
            place: Candidacy::Standing,
            leased: false,
            renew_at: now,
            look_at: now,
            yields_until: if yields { now + YIELDING } else { now },
            stood_by: false,
        }
    }

    /// Whether another instance was seen to hold the role.
    pub(super) fn stood_by(&self) -> bool {
        self.stood_by
    }

    /// Notes that the role's row has changed. An instance that stands by looks at it at once.
    pub(super) fn changed(&mut self, now: Moment) {
        self.look_at = now;
    }

    /// The step to take now.
    pub(super) fn step(&mut self, now: Moment) -> Step {
        match self.place {
            Candidacy::Over => return Step::Over,
            Candidacy::Elected => {
                self.place = Candidacy::Leading { holds: true };
                return Step::Lead;
            }
            Candidacy::Refused => return Step::GiveBack,
            _ => {}
        }
        if now >= self.renew_at {
            return match self.leased {
                true => Step::Renew,
                false => Step::Lease,
            };
        }
        if !self.leased {
            return Step::Wait(self.renew_at);
        }
        match self.place {
            Candidacy::Free { seen, .. } | Candidacy::LeadingFree { seen } => Step::Take { seen },
            Candidacy::Holding { term } => Step::Claim { term },
            Candidacy::Leading { holds: true } => Step::Wait(self.renew_at),
            _ if now >= self.look_at => Step::Look,
            _ => Step::Wait(self.renew_at.min(self.look_at)),
        }
    }

    /// Notes the outcome of a step.
    pub(super) fn note(&mut self, outcome: Outcome, now: Moment) {
        match outcome {
            Outcome::Leased(leased) => {
                self.leased = leased;
                self.renew_at = now + if leased { RENEWAL } else { PAUSE };
            }
            Outcome::Renewed(Some(true)) => self.renew_at = now + RENEWAL,
            Outcome::Renewed(None) => self.renew_at = now + PAUSE,
            Outcome::Renewed(Some(false)) => {
                self.leased = false;
                self.renew_at = now;
                self.look_again(now);
            }
            Outcome::Unseen => self.look_at = now + PAUSE,
            Outcome::Seen { term, role } => self.saw(term, role, now),
            Outcome::Taken(taken) => match self.place {
                Candidacy::Free { term, .. } if taken => self.place = Candidacy::Holding { term },
                Candidacy::LeadingFree { .. } if taken => {
                    self.place = Candidacy::Leading { holds: true }
                }
                _ => self.look_again(now),
            },
            Outcome::Claimed(true) => self.place = Candidacy::Elected,
            Outcome::Claimed(false) => self.place = Candidacy::Refused,
            Outcome::GivenBack => {
                self.leased = false;
                self.renew_at = now;
                self.place = Candidacy::Standing;
                self.look_at = now + PAUSE;
            }
        }
    }

    /// Looks at the role again. A leader goes on leading, and any other instance stands by.
    fn look_again(&mut self, now: Moment) {
        self.place = match self.place {
            Candidacy::Leading { .. } | Candidacy::LeadingFree { .. } => {
                Candidacy::Leading { holds: false }
            }
            _ => Candidacy::Standing,
        };
        self.look_at = now;
    }

    fn saw(&mut self, term: Revision, role: Role, now: Moment) {
        self.look_at = now + LOOK;
        let leads = matches!(self.place, Candidacy::Leading { .. });
        let seen = match role {
            Role::Others => {
                self.stood_by |= !leads;
                self.yields_until = now;
                return;
            }
            Role::Ended(_) if self.stood_by && !leads => {
                self.place = Candidacy::Over;
                return;
            }
            Role::Nobody if now < self.yields_until => return,
            Role::Nobody => 0,
            Role::Mine(seen) | Role::Ended(seen) => seen,
        };
        self.place = match leads {
            true => Candidacy::LeadingFree { seen },
            false => Candidacy::Free { seen, term },
        };
    }
}

//! Sealed channels: the groups of this process's publishers, the key packages of readers, and the offers of this
//! process's agents to read events of others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sealbus_bus::{BoxFuture, NotSealed, Sealer};
use sealbus_channels::{
    EventSealer, EventToSeal, GroupChange, Inside, LeftOut, Needs, OpenedPart, PartKind, Reader,
    SealedEvent, SealedPart, Unsealed,
};
use sealbus_mls::{Candidate, Group, GroupError, Invitee, MOST_MEMBERS, Member};
use sealbus_seal::{Credential, Fingerprint, Identity, Serial, Timestamp};

use super::memberships::Memberships;
use super::owned::Owned;
use super::{MOST, NoKey, PATIENCE, PAUSE, ProcessSealer};
use crate::certification::Certified;
use crate::now;

/// The most groups of the publishers of a process.
const MOST_GROUPS: usize = 1024;
/// A group in which nothing was published for this long is forgotten.
const UNUSED: Duration = Duration::from_secs(3600);
/// The pause before a missing key package is asked for again.
const RETRY: Duration = Duration::from_secs(5);
/// The number of key packages that are asked for at a time.
const AT_ONCE: usize = 32;

/// Everything that a process knows about sealed channels.
#[derive(Default)]
pub(super) struct Events {
    offers: HashMap<String, Offer>,
    /// The groups, by publisher and channel.
    groups: HashMap<(String, String), Owned>,
    readers: HashMap<Arc<str>, KnownPackage>,
    memberships: Memberships,
}

/// An agent of this process, and its offer to join groups.
struct Offer {
    serial: Serial,
    credential: Arc<Credential>,
    until: Timestamp,
    invitee: Invitee,
    package: Vec<u8>,
}

/// The key package of a reader, as it was looked up.
struct KnownPackage {
    session: u64,
    found: Result<Candidate, NotSealed>,
    at: Instant,
}

/// A reader that cannot join, and the reason.
type Out = (Arc<str>, NotSealed);

/// The readers of an event, sorted by what must be done for them.
#[derive(Default)]
struct Sorted {
    joining: Vec<(Reader, Candidate)>,
    staying: BTreeSet<Arc<str>>,
    left_out: Vec<Out>,
    unknown: Vec<Reader>,
}

fn not_sealed(error: &GroupError) -> NotSealed {
    NotSealed(error.to_string())
}

fn restless() -> NotSealed {
    NotSealed("its process begins one session after another".to_owned())
}

impl ProcessSealer {
    /// The key package that an agent of this process states under this certificate.
    pub(super) fn offer(&self, certified: &Certified) -> Result<Vec<u8>, GroupError> {
        let certificate = &certified.certificate;
        let name = certificate.identity().agent_name().unwrap_or_default();
        let now = now();
        let mut events = self.events.lock();
        if let Some(known) = events.offers.get(&name)
            && known.serial == certificate.serial()
        {
            return Ok(known.package.clone());
        }
        let (credential, until) = (&certified.credential, certificate.not_after());
        let invitee = match events.offers.get(&name) {
            Some(known) => known.invitee.renewed(credential, until, now),
            None => Invitee::new(credential, until, now),
        };
        let package = invitee.offer(now)?;
        let offer = Offer {
            serial: certificate.serial(),
            credential: credential.clone(),
            until,
            invitee,
            package: package.clone(),
        };
        events.offers.insert(name, offer);
        Ok(package)
    }

    /// Whether the agent made its last offer under this certificate.
    pub(super) fn is_latest(&self, certified: &Certified) -> bool {
        let certificate = &certified.certificate;
        let name = certificate.identity().agent_name().unwrap_or_default();
        let events = self.events.lock();
        let last = events.offers.get(&name);
        last.is_some_and(|offer| offer.serial == certificate.serial())
    }

    /// Forgets groups, offers and packages that are over. Returns whether the process is in no group.
    pub(super) fn forget_groups(&self) -> bool {
        let now = now();
        let mut events = self.events.lock();
        let Events {
            offers,
            groups,
            readers,
            memberships,
        } = &mut *events;
        offers.retain(|_, offer| now <= offer.until);
        groups.retain(|(publisher, _), it| self.is_here(publisher) && it.used.elapsed() < UNUSED);
        readers.retain(|_, known| known.at.elapsed() < UNUSED);
        memberships.forget(&self.trust, now, |agent| self.is_here(agent));
        groups.is_empty() && memberships.is_empty()
    }

    /// The most groups in which the agents of a process read.
    #[cfg(test)]
    pub(crate) const MOST_READ: usize = super::memberships::MOST;

    /// Forgets the process's knowledge of the groups of others.
    #[cfg(test)]
    pub(crate) fn lose_groups(&self) {
        self.events.lock().memberships = Memberships::default();
    }

    /// Forgets the knowledge of an agent of this process about a group.
    #[cfg(test)]
    pub(crate) fn leave_group(&self, publisher: &str, channel: &str, agent: &str) {
        let key = (publisher.to_owned(), channel.to_owned());
        self.events.lock().memberships.leave(&key, agent);
    }

    /// Sorts the readers into those that stay in a group, those that join it, and those that cannot.
    fn sort(&self, events: &Events, owned: Option<&Owned>, readers: &[Reader]) -> Sorted {
        let (now, present) = (now(), Instant::now());
        let waits = self.waits.lock();
        let mut sorted = Sorted::default();
        for reader in readers {
            let joined = owned.and_then(|owned| owned.members.get(&reader.agent));
            if let Some(joined) = joined
                && joined.session == reader.session
                && !joined.must_rejoin()
                && self.trust.check(&joined.verified, now).is_ok()
            {
                sorted.staying.insert(reader.agent.clone());
                continue;
            }
            let known = events.readers.get(&reader.agent);
            match known.filter(|it| it.session == reader.session) {
                Some(KnownPackage {
                    found: Ok(candidate),
                    ..
                }) if self.trust.check(candidate.verified(), now).is_ok() => {
                    sorted.joining.push((reader.clone(), candidate.clone()));
                }
                Some(KnownPackage {
                    found: Err(why),
                    at,
                    ..
                }) if at.elapsed() < RETRY => {
                    sorted.left_out.push((reader.agent.clone(), why.clone()));
                }
                None if waits.left(&reader.agent, present).is_zero()
                    && known.is_some_and(|it| it.at.elapsed() < RETRY) =>
                {
                    let why = known.and_then(|it| it.found.as_ref().err().cloned());
                    sorted
                        .left_out
                        .push((reader.agent.clone(), why.unwrap_or_else(restless)));
                }
                _ => sorted.unknown.push(reader.clone()),
            }
        }
        sorted
    }

    /// Seals an event of an agent of this process.
    fn seal_event(&self, event: &EventToSeal<'_>) -> Result<SealedEvent, Unsealed> {
        let EventToSeal {
            publisher, channel, ..
        } = *event;
        let failed = |error: GroupError| Unsealed::Failed(not_sealed(&error));
        if event.readers.len() > MOST_MEMBERS {
            return Err(failed(GroupError::TooManyMembers(event.readers.len())));
        }
        let inside = Inside::new(event.message).map_err(Unsealed::Failed)?;
        let now = now();
        let mut events = self.events.lock();
        let credential = match events.offers.get(publisher) {
            Some(offer) => offer.credential.clone(),
            None => {
                let why = NotSealed(format!("{publisher} has no certificate yet"));
                return Err(Unsealed::Failed(why));
            }
        };
        let key = (publisher.to_owned(), channel.to_string());
        let of = (publisher, channel.as_str());
        let goes_on = |owned: &Owned| {
            Arc::ptr_eq(&owned.credential, &credential) && owned.group.goes_on(&self.trust, now)
        };
        let owned = events.groups.get(&key).filter(|owned| goes_on(owned));
        let mut sorted = self.sort(&events, owned, event.readers);
        let is_needed = |agent: &str| match event.needs {
            Needs::All => true,
            Needs::Reader(needed) => agent == needed,
            Needs::None => false,
        };
        let unknown = sorted.unknown.iter().filter(|it| is_needed(&it.agent));
        let unknown: Vec<Reader> = unknown.cloned().collect();
        if !unknown.is_empty() {
            return Err(Unsealed::Unknown(unknown));
        }
        if let Needs::Reader(needed) = event.needs
            && let Some((agent, why)) = sorted.left_out.iter().find(|it| *it.0 == *needed)
        {
            let why = NotSealed(format!("{agent} cannot read it: {why}"));
            return Err(Unsealed::Failed(why));
        }
        let unknown = std::mem::take(&mut sorted.unknown).into_iter();
        let for_now = || NotSealed("its key package is not known yet".to_owned());
        sorted
            .left_out
            .extend(unknown.map(|it| (it.agent, for_now())));
        let is_new = owned.is_none();
        let mut owned = match events.groups.remove(&key) {
            Some(owned) if !is_new => owned,
            _ => {
                let group = Group::new(&credential, &self.trust, now).map_err(failed)?;
                Owned::new(group, credential.clone()).map_err(Unsealed::Failed)?
            }
        };
        let (changes, left_out) = self
            .change_group(&mut events, &mut owned, of, sorted, now)
            .map_err(failed)?;
        let part = owned.part(of, PartKind::Event(inside.commitment), &[]);
        let sealed = owned.group.seal(&part.context(), &inside.bytes);
        let sealed = sealed.map_err(failed)?;
        let part = SealedPart {
            bytes: &sealed,
            ..part
        };
        let message = Arc::new(part.to_message());
        let left_out = left_out.into_iter().map(|(agent, reason)| LeftOut {
            is_news: event.needs == Needs::All && owned.told.insert(agent.clone()),
            agent,
            reason,
        });
        let left_out = left_out.collect();
        owned
            .told
            .retain(|agent| !owned.members.contains_key(agent));
        owned.used = Instant::now();
        if events.groups.len() >= MOST_GROUPS {
            let oldest = events.groups.iter().min_by_key(|(_, it)| it.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                events.groups.remove(&oldest);
            }
        }
        events.groups.insert(key, owned);
        Ok(SealedEvent {
            changes,
            message,
            inside: inside.opened,
            left_out,
        })
    }

    /// Brings a group up to date. Returns its changes, and the readers that cannot join.
    fn change_group(
        &self,
        events: &mut Events,
        owned: &mut Owned,
        of: (&str, &str),
        sorted: Sorted,
        now: Timestamp,
    ) -> Result<(Vec<GroupChange>, Vec<Out>), GroupError> {
        let Sorted {
            joining,
            staying,
            mut left_out,
            ..
        } = sorted;
        let is_joining = |agent: &Arc<str>| joining.iter().any(|(it, _)| it.agent == *agent);
        let members = owned.members.keys();
        let leaving: Vec<Arc<str>> = members
            .filter(|agent| !staying.contains(*agent) && !is_joining(agent))
            .cloned()
            .collect();
        if joining.is_empty() && leaving.is_empty() && !owned.group.is_due(now) {
            return Ok((Vec::new(), left_out));
        }
        match owned.change(of, &leaving, &joining, now) {
            Ok(changes) => return Ok((changes, left_out)),
            Err(error) if joining.is_empty() => return Err(error),
            Err(_) => {}
        }
        // A key package that does not fit with the others is found by bisection.
        let mut changes = owned.change(of, &leaving, &[], now)?;
        let mut parts = vec![&joining[..]];
        while let Some(part) = parts.pop() {
            match (owned.change(of, &[], part, now), part) {
                (Ok(further), _) => changes.extend(further),
                (Err(error), [(reader, _)]) => {
                    let why = not_sealed(&error);
                    let known = KnownPackage {
                        session: reader.session,
                        found: Err(why.clone()),
                        at: Instant::now(),
                    };
                    events.readers.insert(reader.agent.clone(), known);
                    // The reader may have been a member that had to join again.
                    if owned.members.contains_key(&reader.agent) {
                        let gone = std::slice::from_ref(&reader.agent);
                        changes.extend(owned.change(of, gone, &[], now)?);
                    }
                    left_out.push((reader.agent.clone(), why));
                }
                (Err(_), _) => {
                    let (one, other) = part.split_at(part.len() / 2);
                    parts.extend([other, one]);
                }
            }
        }
        Ok((changes, left_out))
    }

    /// The key package of a reader, if it has stated one that is valid now.
    async fn candidate(&self, reader: &Reader) -> Result<Candidate, NoKey> {
        let (identity, stated, package) = self.published(&reader.agent).await?;
        let now = now();
        let key = stated.verify(&identity, &self.trust, now)?.clone();
        let for_now = |why: &str| NoKey::ForNow(NotSealed(why.to_owned()));
        if package.is_empty() {
            return Err(for_now("its program cannot read sealed channels"));
        }
        let candidate = Candidate::verify(&package, key, &identity, &self.trust, now)
            .map_err(|error| NoKey::Refused(not_sealed(&error)))?;
        if candidate.verified().fingerprint() != Fingerprint::of(stated.chain().leaf()) {
            let why = "its key package is not certified as its key is".to_owned();
            return Err(NoKey::Refused(NotSealed(why)));
        }
        match reader.since {
            Some(since) if candidate.verified().not_before() < since => Err(for_now(
                "the platform offers a key package that it stated in an earlier process",
            )),
            _ => Ok(candidate),
        }
    }

    /// As [`candidate`](Self::candidate), with patience for a package that the platform does not know yet.
    async fn candidate_patiently(
        &self,
        reader: &Reader,
        begun: Instant,
    ) -> Result<Candidate, NotSealed> {
        // An agent that had none before is not waited for again.
        let known = self
            .events
            .lock()
            .readers
            .get(&reader.agent)
            .map(|it| it.session);
        let is_known = known == Some(reader.session);
        if known.is_some() && !is_known {
            // If a process begins one session after another, publishers wait for one look-up after another.
            let now = Instant::now();
            let since = now.checked_sub(PAUSE).unwrap_or(now);
            self.waits.lock().spend(&reader.agent, since, now);
        }
        let patience = if is_known { Duration::ZERO } else { PATIENCE };
        self.patiently(&reader.agent, begun, patience, || self.candidate(reader))
            .await
    }

    async fn look_up_readers(&self, readers: &[Reader]) {
        // All of them share the patience, and each result counts from the end of the look-up.
        let begun = Instant::now();
        let mut all = Vec::with_capacity(readers.len());
        for some in readers.chunks(AT_ONCE) {
            let looking = some.iter().map(|it| self.candidate_patiently(it, begun));
            all.extend(join_all(looking).await);
        }
        let mut events = self.events.lock();
        if events.readers.len() + readers.len() > MOST {
            events.readers.clear();
        }
        let at = Instant::now();
        for (reader, found) in readers.iter().zip(all) {
            let session = reader.session;
            let known = KnownPackage { session, found, at };
            events.readers.insert(reader.agent.clone(), known);
        }
    }

    /// Lets an agent of this process join a group.
    fn join(
        &self,
        events: &mut Events,
        part: &SealedPart<'_>,
        agent: &Arc<str>,
    ) -> Result<(), String> {
        let invitee = events.offers.get(&**agent).map(|offer| &offer.invitee);
        let invitee = invitee.ok_or("the agent has no certificate yet")?;
        let publisher =
            Identity::from_agent_name(part.publisher).map_err(|error| error.to_string())?;
        let find = |id| self.keyring.lock().find(id);
        let member = Member::join(invitee, part.bytes, &publisher, find, &self.trust, now())
            .map_err(|error| error.to_string())?;
        if member.name() != part.group {
            return Err("the Welcome is to another group".to_owned());
        }
        events.memberships.join(part, agent, member);
        Ok(())
    }

    /// Opens a part for agents of this process.
    fn open_part(&self, part: &SealedPart<'_>, agents: &BTreeSet<Arc<str>>) -> OpenedPart {
        let mut events = self.events.lock();
        let mut opening = OpenedPart::default();
        for agent in agents {
            let taken = match part.kind {
                PartKind::Welcome => self.join(&mut events, part, agent),
                PartKind::Commit => events.memberships.follow(part, agent),
                PartKind::Event(_) => return events.memberships.open(part, agents),
            };
            if let Err(why) = taken {
                opening.failed.insert(agent.clone(), why);
            }
        }
        opening
    }
}

impl EventSealer for ProcessSealer {
    fn is_for_all(&self) -> bool {
        Sealer::is_for_all(self)
    }

    fn is_of_platform(&self, agent: &str) -> bool {
        Sealer::is_of_platform(self, agent)
    }

    fn seal(&self, event: &EventToSeal<'_>) -> Result<SealedEvent, Unsealed> {
        self.seal_event(event)
    }

    fn look_up<'a>(&'a self, readers: &'a [Reader]) -> BoxFuture<'a, ()> {
        Box::pin(self.look_up_readers(readers))
    }

    fn open(&self, part: &SealedPart<'_>, agents: &BTreeSet<Arc<str>>) -> OpenedPart {
        self.open_part(part, agents)
    }

    fn not_opened(&self, publisher: &str, channel: &str, readers: &BTreeSet<Arc<str>>) {
        let mut events = self.events.lock();
        let Events {
            groups,
            readers: known,
            ..
        } = &mut *events;
        let Some(owned) = groups.get_mut(&(publisher.to_owned(), channel.to_owned())) else {
            return;
        };
        for agent in readers {
            if let Some(joined) = owned.members.get_mut(agent) {
                joined.is_lost = true;
                known.remove(agent);
            }
        }
    }
}

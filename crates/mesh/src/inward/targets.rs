//! The agents of this process that the peer sends to, and the bus as one of them: opening, credit and closing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use sealbus_bus::{
    Closed, FrameWindow, LocalAgent, MailboxWindow, Permit, ReceivedMessage, WindowListener,
};

use super::{Broken, Inward, slot};
use crate::flow::GivenCredit;
use crate::frame::{Frame, PROCESS_TARGET, Why};
use crate::link::{Link, Unread};
use crate::statement::target_name;

/// The bytes of frames that one process may send before this process's bus has taken them. This is several of the
/// largest usual events, so that the connection stays full.
const FRAME_WINDOW: u64 = 4 << 20;

/// The bytes of the names of all targets that the peer may make this process keep: 128 for each of as many targets as a
/// link usually has at most. The peer chooses the names, also of agents that are not here.
const NAMES: usize = 32 << 20;

/// An agent of this process, or its bus, that the peer sends to.
pub(super) struct Target {
    /// The number of the target among those of the session, from 1. It distinguishes it from a former target with the
    /// same handle.
    pub(super) number: u32,
    pub(super) name: Arc<str>,
    /// `None` if the agent is not here, or no longer.
    pub(super) open: Option<OpenTarget>,
    pub(super) why_not: Why,
    allowance: GivenCredit,
    pub(super) partial: Option<Partial>,
    pub(super) permits: LastPermit,
    /// The number of messages to it that wait for their proofs.
    pub(super) unproved: u32,
}

/// A message that is arriving in pieces.
pub(super) struct Partial {
    pub(super) sender: u32,
    pub(super) is_signed: bool,
    pub(super) total: usize,
    pub(super) bytes: Vec<u8>,
}

impl Target {
    /// Counts a message against the credit, whose limit may have risen meanwhile.
    pub(super) fn allow(&mut self, length: usize) -> Result<(), Broken> {
        if let Some(open) = &self.open {
            self.allowance
                .raise(open.credit.limit.load(Ordering::Acquire));
        }
        if self.allowance.take(length) {
            Ok(())
        } else {
            Err(Broken::Rule("more is sent to a target than it allowed"))
        }
    }

    pub(super) fn leave(&mut self, link: &Arc<Link>, handle: u32, closed: Closed) {
        self.why_not = match closed {
            Closed::Gone => Why::NotHere,
            Closed::Moving => Why::Moving,
        };
        self.open = None;
        let mut outward = link.outward.lock();
        outward.hosted_left(handle);
        outward.session.append(&Frame::Leaving {
            target: handle,
            why: self.why_not,
        });
        drop(outward);
        link.wake();
    }
}

/// The decision about the agent that wrote to a target last.
#[derive(Default)]
pub(super) struct LastPermit {
    sender: Option<Arc<str>>,
    permit: Permit,
}

impl LastPermit {
    /// The decision about this sender. Empty if another sender wrote last.
    pub(super) fn of(&mut self, sender: &Arc<str>) -> &mut Permit {
        let is_known = self
            .sender
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(last, sender));
        if !is_known {
            self.sender = Some(sender.clone());
            self.permit = Permit::default();
        }
        &mut self.permit
    }
}

pub(super) struct OpenTarget {
    pub(super) whom: Whom,
    credit: Arc<TargetCredit>,
}

pub(super) enum Whom {
    Agent {
        agent: Arc<LocalAgent>,
        window: MailboxWindow,
    },
    /// The bus of this process.
    Process(Arc<FrameWindow>),
}

impl Drop for OpenTarget {
    fn drop(&mut self) {
        // This comes before the peer learns that the target is closed, and thus before it uses the handle again.
        self.credit.is_over.store(true, Ordering::Release);
    }
}

/// Tells the peer when a target's mailbox has room again.
struct TargetCredit {
    link: Weak<Link>,
    target: u32,
    number: u32,
    epoch: u64,
    limit: AtomicU64,
    /// Whether the handle may already stand for another target.
    is_over: AtomicBool,
}

impl WindowListener for TargetCredit {
    fn widened(&self, _tag: u64, limit: u64) {
        self.limit.fetch_max(limit, Ordering::AcqRel);
        let Some(link) = self.link.upgrade() else {
            return;
        };
        {
            let mut outward = link.outward.lock();
            if outward.epoch != self.epoch || self.is_over.load(Ordering::Acquire) {
                return;
            }
            outward.session.append(&Frame::Credit {
                target: self.target,
                limit,
            });
        }
        link.wake();
    }

    fn unread(&self, messages: Vec<ReceivedMessage>) {
        let Some(link) = self.link.upgrade() else {
            return;
        };
        link.unread.lock().push(Unread {
            target: self.target,
            number: self.number,
            epoch: self.epoch,
            messages,
        });
        link.requests.make(|requests| &requests.agents_left);
        link.wake();
    }
}

impl Inward {
    pub(super) fn open_target(
        &mut self,
        link: &Arc<Link>,
        handle: u32,
        name: &str,
    ) -> Result<(), Broken> {
        if slot(&mut self.targets, handle, self.agents)?.is_some() {
            return Err(Broken::Rule("a target's handle is used twice"));
        }
        let name = target_name(name);
        if self.names + name.len() > NAMES {
            return Err(Broken::Overdrawn);
        }
        // The number of handles is limited, but they may be reused for ever.
        self.opened = self.opened.saturating_add(1);
        let number = self.opened;
        let mut target = Target {
            number,
            name: name.into(),
            open: None,
            why_not: Why::NotHere,
            allowance: GivenCredit::new(0),
            partial: None,
            permits: LastPermit::default(),
            unproved: 0,
        };
        let credit = Arc::new(TargetCredit {
            link: self.link.clone(),
            target: handle,
            number,
            epoch: link.outward.lock().epoch,
            limit: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let whom = if *name == *PROCESS_TARGET {
            self.bus
                .takes_frames()
                .then(|| Whom::Process(FrameWindow::new(FRAME_WINDOW, credit.clone())))
        } else {
            self.bus
                .receiver(name, Some(&self.writer))
                .filter(|agent| agent.mailbox().closed().is_none())
                .map(|agent| Whom::Agent {
                    window: agent.mailbox().open_window(&self.writer, credit.clone(), 0),
                    agent,
                })
        };
        match whom {
            Some(whom) => {
                // Each handle has a window of its own.
                let former = self.open_names.insert(name.into(), handle);
                let former = former.and_then(|former| self.targets.get(former as usize)?.as_ref());
                if former.is_some_and(|it| it.open.is_some() && *it.name == *name) {
                    return Err(Broken::Rule("a target is opened twice"));
                }
                let (limit, agent) = match &whom {
                    Whom::Agent { agent, window } => (window.first_limit(), Some(agent.clone())),
                    Whom::Process(window) => (window.first_limit(), None),
                };
                credit.limit.fetch_max(limit, Ordering::AcqRel);
                target.allowance.raise(limit);
                target.open = Some(OpenTarget { whom, credit });
                link.outward.lock().accept_target(handle, agent, limit);
            }
            None => {
                link.outward.lock().session.append(&Frame::Leaving {
                    target: handle,
                    why: Why::NotHere,
                });
            }
        }
        *slot(&mut self.targets, handle, self.agents)? = Some(target);
        self.names += name.len();
        link.wake();
        Ok(())
    }

    /// Tells the peer's senders that agents of this process have left.
    pub(crate) fn agents_left(&mut self, link: &Arc<Link>) {
        // Messages go back first, because the peer may close a target as soon as it learns that the target is gone.
        self.give_back_unread(link);
        for (handle, target) in (0..).zip(&mut self.targets) {
            let Some(target) = target else { continue };
            let Some(open) = &target.open else { continue };
            if let Whom::Agent { agent, .. } = &open.whom
                && let Some(closed) = agent.mailbox().closed()
            {
                target.leave(link, handle, closed);
            }
        }
    }

    pub(super) fn close_target(&mut self, link: &Arc<Link>, handle: u32) -> Result<(), Broken> {
        let slot = slot(&mut self.targets, handle, self.agents)?;
        if slot.as_ref().is_some_and(|target| target.unproved > 0) {
            return Err(Broken::Rule("a target ends before its messages are proved"));
        }
        if let Some(target) = slot.take() {
            self.names -= target.name.len();
            self.partials -= usize::from(target.partial.is_some());
            if self.open_names.get(&target.name) == Some(&handle) {
                self.open_names.remove(&target.name);
            }
        }
        let mut outward = link.outward.lock();
        outward.forget_hosted(handle);
        outward
            .session
            .append(&Frame::TargetClosed { target: handle });
        drop(outward);
        link.wake();
        Ok(())
    }
}

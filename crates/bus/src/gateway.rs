//! The bus's side of a gateway: the mailboxes for agents of other platforms, which the gateway reads.

use std::sync::Arc;
use std::time::Instant;

use crate::agent::LocalAgent;
use crate::bus::Bus;
use crate::foreign::{self, Found, ShareUsedUp, StandInLimits, StandInReader, StandIns};
use crate::refusal::RefusalReason;

impl Bus {
    /// Lets `gateway`, an attached agent, speak for the agents of other platforms from now on. Each foreign agent that
    /// receives a message gets a mailbox, and `reader` is given that mailbox.
    ///
    /// Returns false if no agent of that name is attached here.
    pub fn open_gateway(
        &self,
        gateway: &str,
        limits: StandInLimits,
        reader: StandInReader,
    ) -> bool {
        let Some(agent) = self.agent(gateway) else {
            return false;
        };
        let stand_ins = StandIns::new(agent, limits, reader);
        *self.inner.stand_ins.write() = Some(Arc::new(stand_ins));
        self.gateway_changed();
        true
    }

    /// Ends the stand-in for an agent of another platform. Its reader keeps the messages still in the mailbox. The next
    /// message to that agent makes a new stand-in.
    pub fn retire_stand_in(&self, name: &str) {
        let stand_ins = self.inner.stand_ins.read().clone();
        if let Some(agent) = stand_ins.and_then(|stand_ins| stand_ins.retire(name)) {
            self.stand_in_ended(&agent);
        }
    }

    /// Tells the transport that a stand-in has ended.
    fn stand_in_ended(&self, agent: &Arc<LocalAgent>) {
        if let Some(transport) = self.inner.transport.get() {
            transport.detach(agent);
        }
    }

    /// The stand-in for an agent of another platform, if this process has the gateway. `None` also if `writer` has used
    /// up its share of the stand-ins, which is then noted.
    pub(crate) fn stand_in(
        &self,
        name: &str,
        writer: Option<&Arc<str>>,
    ) -> Option<Arc<LocalAgent>> {
        let stand_ins = self.inner.stand_ins.read().clone()?;
        match stand_ins.get(name, writer, Instant::now()) {
            Ok(Found { agent, gave_way }) => {
                for agent in &gave_way {
                    self.stand_in_ended(agent);
                }
                Some(agent)
            }
            Err(ShareUsedUp { own, most }) => {
                let explanation = format!(
                    "it writes to {own} agents of other platforms at the same time, and must leave as many to others \
                     of the {most} in all: write to another one once one of these has taken its messages, or raise \
                     the gateway's limit foreign-agents"
                );
                let tried_by = writer.map_or("this process", |writer| &**writer);
                self.refused(
                    tried_by,
                    writer.map(ToString::to_string),
                    Some(name),
                    RefusalReason::OverLimit,
                    explanation,
                );
                None
            }
        }
    }

    /// The gateway has moved. The routes to other platforms are looked up again.
    pub fn gateway_changed(&self) {
        let platform = &self.inner.config.platform;
        let routes = self.inner.routes.read();
        let names: Vec<Arc<str>> = routes
            .keys()
            .filter(|name| foreign::is_foreign(name, platform))
            .cloned()
            .collect();
        drop(routes);
        for name in names {
            self.arrived(&name);
        }
    }

    pub(crate) fn stand_ins_of(&self, gateway: &str) -> Vec<Arc<LocalAgent>> {
        let stand_ins = self.inner.stand_ins.read();
        let stand_ins = stand_ins.as_ref().filter(|it| it.is_of(gateway));
        stand_ins.map(|it| it.all()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use sealbus_fipa::{AclMessage, Performative};
    use sealbus_seal::PlatformName;
    use tokio::runtime::Handle;

    use super::*;
    use crate::bus::BusConfig;
    use crate::foreign::{GIVE_WAY, PAUSE};
    use crate::mailbox::{Mailbox, MailboxLimits, WindowListener};
    use crate::message::{Provenance, ReceivedMessage};

    /// A bus with a gateway for so many agents of other platforms, and the mailboxes that it was given.
    fn with_gateway(most: usize) -> (Bus, Arc<Mutex<Vec<Mailbox>>>) {
        let platform = PlatformName::new("one").unwrap();
        let bus = Bus::new(BusConfig::new(platform), Handle::current());
        let _gateway = bus.attach("gateway@one", None, None).unwrap();
        let limits = StandInLimits {
            most,
            mailbox: MailboxLimits::default(),
            room: 1 << 20,
        };
        let given: Arc<Mutex<Vec<Mailbox>>> = Arc::default();
        let mailboxes = given.clone();
        let reader = move |_: Arc<str>, mailbox| mailboxes.lock().push(mailbox);
        assert!(bus.open_gateway("gateway@one", limits, Box::new(reader)));
        (bus, given)
    }

    /// Writes to an agent of another platform. Returns whether there is a stand-in for it.
    fn write(bus: &Bus, name: &str, writer: Option<&Arc<str>>) -> bool {
        let Some(agent) = bus.receiver(name, writer) else {
            return false;
        };
        agent.mailbox().try_push(message()).unwrap();
        true
    }

    fn message() -> ReceivedMessage {
        let message = Arc::new(AclMessage::new(Performative::Inform));
        ReceivedMessage::shared(message, Provenance::Claimed)
    }

    /// Does something when a mailbox in which it has a window is closed.
    struct OnClosed<F>(F);

    impl<F: Fn() + Send + Sync> WindowListener for OnClosed<F> {
        fn widened(&self, _: u64, _: u64) {}

        fn closed(&self) {
            (self.0)();
        }
    }

    #[tokio::test]
    async fn a_process_that_writes_to_many_leaves_stand_ins_to_others() {
        let (bus, _mailboxes) = with_gateway(16);
        let (greedy, other): (Arc<str>, Arc<str>) = ("greedy".into(), "other".into());
        // Nobody reads the messages.
        let opened = (0..100).filter(|it| write(&bus, &format!("a{it}@far"), Some(&greedy)));
        assert_eq!(opened.count(), 8);
        assert!(write(&bus, "new@far", Some(&other)));
        assert!(write(&bus, "a0@far", Some(&other)) && write(&bus, "a0@far", Some(&greedy)));
        // Each further attempt is noted in the name of its process, which has a share of the log.
        assert_eq!(bus.refusals().total(), 92);
        let refusal = bus.refusals().last().pop().unwrap();
        assert_eq!(refusal.reason, RefusalReason::OverLimit);
        assert_eq!(refusal.proved.as_deref(), Some("greedy"));
        assert_eq!(refusal.receiver.as_deref(), Some("a99@far"));
    }

    #[tokio::test]
    async fn stand_ins_without_messages_give_way() {
        const MOST: usize = 100;
        let (bus, _mailboxes) = with_gateway(MOST);
        for number in 0..MOST {
            assert!(bus.receiver(&format!("a{number}@far"), None).is_some());
        }
        assert!(write(&bus, "a0@far", None));
        let busy = bus.receiver("a0@far", None).unwrap();
        let idle = bus.receiver("a1@far", None).unwrap();
        let other: Arc<str> = "other".into();
        assert!(bus.receiver("new@far", Some(&other)).is_some());
        assert!(busy.mailbox().closed().is_none() && idle.mailbox().closed().is_some());
        assert_eq!(bus.refusals().total(), 0);
        // The next message makes it anew.
        let again = bus.receiver("a1@far", None).unwrap();
        assert!(again.number() != idle.number() && again.mailbox().closed().is_none());
    }

    #[tokio::test]
    async fn a_stand_in_gives_way_once_its_messages_are_read() {
        let (bus, mailboxes) = with_gateway(1);
        assert!(write(&bus, "a@far", None));
        assert!(bus.receiver("b@far", None).is_none());
        let mut mailbox = mailboxes.lock().pop().unwrap();
        let reading = tokio::spawn(async move { while mailbox.recv().await.is_some() {} });
        while bus.receiver("b@far", None).is_none() {
            tokio::task::yield_now().await;
        }
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn a_stand_in_that_gets_a_message_meanwhile_does_not_give_way() {
        let (bus, _mailboxes) = with_gateway(2);
        let first = bus.receiver("a@far", None).unwrap();
        let second = bus.receiver("b@far", None).unwrap();
        let written = second.clone();
        let listener = OnClosed(move || written.mailbox().try_push(message()).unwrap());
        let mailbox = first.mailbox();
        let _window = mailbox.open_window(&"node-2".into(), Arc::new(listener), 0);
        assert!(bus.receiver("c@far", None).is_some());
        assert!(mailbox.closed().is_some() && second.mailbox().closed().is_none());
    }

    #[tokio::test]
    async fn stand_ins_give_way_while_routes_can_be_made() {
        let (bus, _mailboxes) = with_gateway(1);
        let idle = bus.receiver("a@far", None).unwrap();
        let found = Arc::new(Mutex::new(None));
        let (told, routes) = (found.clone(), bus.clone());
        let are_free = move || routes.inner.routes.try_write().is_some();
        let listener = OnClosed(move || *told.lock() = Some(are_free()));
        let mailbox = idle.mailbox();
        let _window = mailbox.open_window(&"node-2".into(), Arc::new(listener), 0);
        bus.route("b@far");
        assert_eq!(*found.lock(), Some(true));
    }

    #[tokio::test]
    async fn idle_stand_ins_behind_many_others_give_way_a_few_at_a_time() {
        const BUSY: usize = 1000;
        let (bus, _mailboxes) = with_gateway(2 * BUSY);
        for number in 0..BUSY {
            assert!(write(&bus, &format!("a{number}@far"), None));
        }
        let idle = (0..BUSY).map(|number| bus.receiver(&format!("b{number}@far"), None).unwrap());
        let idle: Vec<_> = idle.collect();
        let other: Arc<str> = "other".into();
        assert!(bus.receiver("new@far", Some(&other)).is_some());
        let closed = idle.iter().filter(|it| it.mailbox().closed().is_some());
        assert_eq!(closed.count(), GIVE_WAY);
    }

    #[tokio::test]
    async fn a_look_that_found_no_idle_stand_in_is_not_repeated_at_once() {
        let (bus, mailboxes) = with_gateway(1);
        assert!(write(&bus, "a@far", None));
        let stand_ins = bus.inner.stand_ins.read().clone().unwrap();
        let now = Instant::now();
        assert!(stand_ins.get("b@far", None, now).is_err());
        // Its reader takes the message, and waits for more.
        let mut mailbox = mailboxes.lock().pop().unwrap();
        assert!(mailbox.recv().await.is_some());
        let next = tokio::time::timeout(Duration::ZERO, mailbox.recv());
        assert!(next.await.is_err());
        assert!(stand_ins.get("b@far", None, now).is_err());
        assert!(stand_ins.get("b@far", None, now + PAUSE).is_ok());
    }
}

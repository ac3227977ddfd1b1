//! The promises that the simulation checks: for each event as it is handed out, and for everything at the end.

use super::*;

/// Whether a message passes a filter. A filter that cannot be evaluated holds the message back.
pub(super) fn passes(
    filter: Option<&ChannelFilter>,
    header: &ChannelHeader,
    message: &AclMessageRef<'_>,
) -> bool {
    filter.is_none_or(|filter| filter.matches(header, message).unwrap_or(false))
}

impl World {
    /// Checks that each event is handed out once, in order, in its time, and to a subscription that may have it.
    pub(super) fn check(&mut self, index: usize, at: usize, event: &ReceivedEvent, now: Now) {
        let message = event.message.clone().into_message();
        let text = message.content_text().unwrap().to_owned();
        let number: u64 = text.parse().unwrap();
        let publisher = message.sender.as_ref().unwrap().name.clone();
        let header = &event.header;
        let others: Vec<Arc<str>> = self.processes[index]
            .seats
            .iter()
            .map(|seat| seat.consumer.agent.clone())
            .collect();
        let seat = &mut self.processes[index].seats[at];
        let agent = seat.consumer.agent.clone();
        let is_request = matches!(header.mechanism, crate::Mechanism::Request { .. });
        let is_event = matches!(header.mechanism, crate::Mechanism::Event);
        let is_unheld = header.qos.reliability == Reliability::BestEffort;
        let who = format!("{text} of {publisher} to {index}/{}", seat.consumer.id);
        assert!(
            header.valid_from.is_none_or(|from| now.moment >= from),
            "{who} comes too early"
        );
        assert!(!header.is_expired(now.moment), "{who} comes too late");
        let is_shared = is_event && !is_unheld && seat.consumer.options.group.is_some();
        let is_new = seat.got.insert(text.clone());
        assert!(is_new || header.may_be_again, "{who} comes twice");
        assert!(is_shared || !header.may_be_again, "{who} is marked");
        if let Some(key) = groups::key_of(&seat.consumer)
            && is_shared
        {
            if !header.may_be_again {
                self.shared.take_unmarked(&key, &text);
            }
            seat.in_hand.push(text);
        }
        assert!(
            seat.consumer.options.pattern.matches(&header.channel),
            "{who}: wrong channel"
        );
        let right = if is_request {
            ChannelRight::Answer
        } else {
            ChannelRight::Subscribe
        };
        // The process that ignores the policy hands a message to all of its agents if one of them may have it.
        if !(index == 1 && publisher.starts_with("a1-")) {
            let may = |agent: &str| self.permissions.may(agent, right, &header.channel);
            let may = may(&agent) || (index == 1 && others.iter().any(|other| may(other)));
            assert!(may, "{who}: may not read {}", header.channel);
        }
        if index != 1 {
            let may = self
                .permissions
                .may(&publisher, ChannelRight::Publish, &header.channel);
            assert!(may, "{who}: may not publish on {}", header.channel);
        }
        let view = message.view();
        assert!(
            !(is_event || is_request) || passes(seat.consumer.filter.as_ref(), header, &view),
            "{who} does not pass the filter"
        );
        let is_plain =
            header.qos.ordered && header.valid_from.is_none() && !is_unheld && !is_shared;
        if is_plain {
            let key = (
                publisher,
                header.channel.to_string(),
                header.qos.priority.get(),
            );
            let last = seat.last.entry(key).or_default();
            assert!(*last < number, "{who} comes after {last}");
            *last = number;
        }
    }

    pub(super) fn outcome(&mut self, index: usize, outcome: Outcome) {
        match outcome {
            Outcome::Failed {
                body,
                publisher,
                reason,
                ..
            } => {
                let message =
                    sealbus_fipa::bitefficient::decode(&body, &sealbus_fipa::Limits::default())
                        .unwrap();
                let text = message.content_text().unwrap_or_default().to_owned();
                self.log(format!("{publisher} hears that {text} failed: {reason}"));
                // Messages that come back from a reachable process are sent again.
                let is_refused = matches!(reason, UndeliverableReason::Refused { .. })
                    || reason == UndeliverableReason::ReceiverGone;
                assert!(is_refused || !self.is_in_reach, "{text} failed: {reason}");
                if let Some(owed) = self.owed.get_mut(&text) {
                    assert_eq!(owed.process, index, "another one is told");
                    owed.is_reported = true;
                }
            }
            Outcome::Refused {
                reason,
                explanation,
                ..
            } => {
                // A process that ignores the policy counts events that other processes do not send on credit.
                let is_uncounted = reason == RefusalReason::OverLimit && index == 1;
                let is_known = is_uncounted || reason == RefusalReason::NotPermitted;
                assert!(is_known, "{reason}: {explanation}");
                self.refused += usize::from(!is_uncounted);
            }
            Outcome::Flow { .. } | Outcome::Missed { .. } | Outcome::FilterError { .. } => {}
        }
    }

    /// Ends all faults and reads every subscription. All owed messages must then come.
    pub(super) fn finish(&mut self) {
        self.weather = Weather {
            loss: 0,
            double: 0,
            refusals: 0,
            cuts: 0,
            restarts: 0,
            full: 0,
            ..self.weather
        };
        self.carrier.mend();
        for index in 0..self.processes.len() {
            for agent in self.processes[index].resting.clone() {
                self.move_away(index, &agent);
            }
        }
        self.log("the end begins");
        // Every process wants to know the others, also processes that were just started again.
        for index in 0..self.processes.len() {
            let now = self.time();
            self.processes[index].exchange.take_interest(now);
            self.pump(index);
        }
        // A lazy receiver stays lazy at first, and no other publisher waits for it.
        for is_lazy_too in [false, true] {
            for _ in 0..60 {
                self.run(self.now + Duration::from_millis(200));
                self.read_all(is_lazy_too);
            }
            if !is_lazy_too {
                self.check_nobody_waits();
            }
        }
        self.wait_for_groups();
        let mut seats = self.processes.iter().flat_map(|it| &it.seats);
        let has_any_moved = seats.any(|seat| seat.has_moved);
        for (text, owed) in &self.owed {
            let publisher = &self.processes[owed.process];
            if publisher.epoch != owed.epoch {
                continue;
            }
            if let Some(receipt) = &owed.receipt {
                let outcome = receipt.outcome();
                let is_failed = outcome.expect("a receipt waits for ever").is_err();
                // A member of a group may be lost after its process has acknowledged the event, and an event may expire
                // before a member has it.
                let is_shared = !owed.groups.is_empty();
                let is_over = is_shared && owed.expiry.is_some();
                let is_told = is_failed == owed.is_reported || is_shared && !is_failed;
                // The subscriber may be lost, or move away, after its process has acknowledged the event.
                let is_told = is_told || !is_failed && (has_any_moved || !self.is_in_reach);
                assert!(is_told || is_over, "the receipt of {text}");
            }
            let is_told = owed.is_reported || !owed.is_forbidden;
            assert!(
                is_told,
                "{text} was refused, and its publisher was not told"
            );
            if owed.is_reported || owed.expiry.is_some() {
                continue;
            }
            for key in &owed.groups {
                let is_handled = self.shared.is_handled(key, text);
                assert!(
                    is_handled,
                    "no member of {key:?} has handled {text}, and nobody was told"
                );
            }
            for (process, epoch, id) in &owed.to {
                let process = &self.processes[*process];
                let seat = process.seats.iter().find(|seat| seat.consumer.id == *id);
                let is_owed = process.epoch == *epoch
                    && seat.is_some_and(|seat| !seat.has_left || seat.has_moved);
                let has = seat.is_some_and(|seat| seat.got.contains(text));
                assert!(
                    !is_owed || has,
                    "{text} did not come to subscription {id}, and nobody was told"
                );
            }
        }
        for process in &mut self.processes {
            for peer in process.exchange.peers.values() {
                let name = &peer.identity;
                assert_eq!(
                    peer.outgoing.size(),
                    (0, 0),
                    "{name} is owed frames for ever"
                );
                let unread = peer.outgoing.unread_size();
                assert_eq!(unread, (0, 0), "events for {name} are kept for ever");
                assert!(
                    peer.subscriptions.values().all(|it| it.has_credit()),
                    "credit to {name} is lost"
                );
            }
            for asked in &process.requests {
                while asked.collector.take().is_ok_and(|reply| reply.is_some()) {}
                assert!(asked.collector.take().is_err(), "a request is never over");
            }
            assert!(process.exchange.asking.is_empty());
            let held = process.exchange.groups.held_bytes();
            assert_eq!(held, 0, "events are held for groups for ever");
        }
    }

    pub(super) fn read_all(&mut self, is_lazy_too: bool) {
        for index in 0..self.processes.len() {
            for at in 0..self.processes[index].seats.len() {
                if is_lazy_too || !self.processes[index].seats[at].is_lazy {
                    while self.read_one(index, at) {}
                }
            }
            self.pump(index);
        }
    }

    /// Checks that, while the lazy subscriptions stay unread, all other channels take something from every publisher.
    fn check_nobody_waits(&mut self) {
        let lazy: Vec<_> = self.processes.iter().flat_map(|it| &it.seats).collect();
        assert!(
            lazy.iter()
                .all(|seat| seat.is_lazy || seat.consumer.counts().0 == 0)
        );
        for index in 0..self.processes.len() {
            for channel in ["/a", "/a/b", "/a/b/c"] {
                let now = self.time();
                let publisher = Self::agent(index, 0);
                let (_, message) = self.message(&publisher);
                let path = ChannelPath::new(channel).unwrap();
                let publication = Publication {
                    publisher: &publisher,
                    channel: &path,
                    qos: &Qos::default(),
                    message: &message,
                    kept: None,
                    receipt: None,
                    turn: Turn::default(),
                };
                let attempt = self.processes[index]
                    .exchange
                    .publish(&publication, now)
                    .unwrap();
                assert!(
                    matches!(attempt, Attempt::Done(_)),
                    "{index} waits on {channel}"
                );
                self.pump(index);
                self.run(self.now + Duration::from_millis(200));
                self.read_all(false);
                self.run(self.now + Duration::from_millis(200));
            }
        }
    }
}

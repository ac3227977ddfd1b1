//! The acts of agents in the simulation: subscribe, publish, ask, read, answer and leave.

use sealbus_bus::Acknowledgement;

use super::super::targets::Uses;
use super::checks::passes;
use super::*;

const CHANNELS: [&str; 5] = ["/a", "/a/b", "/a/b/c", "/slow", "/secret"];
const PATTERNS: [&str; 8] = [
    "/a", "/a/b", "/a/*", "/a/**", "/**", "/slow", "/secret", "/*",
];

impl World {
    pub(super) fn step(&mut self) {
        let index = self.random.below(self.processes.len() as u64) as usize;
        match self.random.below(100) {
            0..=9 => self.subscribe(index),
            10..=12 => self.unsubscribe(index),
            13..=52 => self.publish(index, None),
            53..=59 => {
                let receiver = self.random.below(self.processes.len() as u64) as usize;
                let receiver = Self::agent(receiver, self.random.below(3));
                self.publish(index, Some(receiver));
            }
            60..=66 => self.ask(index),
            67..=90 => self.read(index, 8),
            91..=93 if self.random.chance(self.weather.cuts * 25) => {
                let other = self.random.below(self.processes.len() as u64) as usize;
                if index != other {
                    self.cut_or_mend(index, other);
                }
            }
            95..=96 => self.rest_or_move(index),
            94 if self.random.chance(self.weather.restarts * 30) => self.restart(index),
            _ => {
                let pause = self.random.below(700);
                self.run(self.now + Duration::from_millis(pause));
            }
        }
        let pause = self.random.below(12);
        self.run(self.now + Duration::from_millis(pause));
    }

    fn subscribe(&mut self, index: usize) {
        if self.processes[index]
            .seats
            .iter()
            .filter(|it| !it.has_left)
            .count()
            >= 6
        {
            return;
        }
        let now = self.time();
        let agent = Self::agent(index, self.random.below(3));
        let pattern = PATTERNS[self.random.below(PATTERNS.len() as u64) as usize];
        let mut options = SubscriptionOptions::new(ChannelPattern::new(pattern).unwrap());
        options.answers = self.random.chance(50);
        options.policy = FlowPolicy::ALL[self.random.below(6).saturating_sub(2) as usize];
        let events = 1 + self.random.below(40) as usize;
        options.limits = QueueLimits {
            events,
            bytes: 256 * events,
        };
        if self.random.chance(30) {
            "properties.n % 2 == 0".clone_into(&mut options.filter);
        }
        if self.random.chance(30) {
            self.join_a_group(&mut options);
        }
        let policy = options.policy;
        if let Ok(consumer) = self.processes[index]
            .exchange
            .subscribe(&agent, options, now)
        {
            let id = consumer.id;
            self.log(format!(
                "{agent} subscribes as {index}/{id} to {pattern}, {policy}, group {:?}",
                consumer.options.group
            ));
            self.processes[index].seats.push(Seat {
                consumer,
                is_lazy: pattern == "/slow",
                got: BTreeSet::new(),
                last: BTreeMap::new(),
                has_left: false,
                has_moved: false,
                open: Vec::new(),
                in_hand: Vec::new(),
            });
        }
        self.pump(index);
    }

    fn unsubscribe(&mut self, index: usize) {
        let count = self.processes[index].seats.len() as u64;
        if count == 0 {
            return;
        }
        let at = self.random.below(count) as usize;
        let now = self.time();
        let process = &mut self.processes[index];
        let seat = &mut process.seats[at];
        seat.has_moved |= !seat.has_left && process.resting.contains(&seat.consumer.agent);
        seat.has_left = true;
        process
            .exchange
            .unsubscribe(seat.consumer.id, Ended::Cancelled, now);
        let id = seat.consumer.id;
        self.log(format!("{index}/{id} ends"));
        self.pump(index);
    }

    /// Lets an agent rest. If one rests already, it moves away, or goes on here.
    fn rest_or_move(&mut self, index: usize) {
        if let Some(agent) = self.processes[index].resting.first().cloned() {
            if self.random.chance(70) {
                self.move_away(index, &agent);
            } else {
                self.processes[index].resting.remove(&agent);
                self.processes[index].exchange.set_resting(&agent, false);
            }
            return;
        }
        let agent = Self::agent(index, self.random.below(3));
        self.log(format!("{agent} rests"));
        let process = &mut self.processes[index];
        process.exchange.set_resting(&agent, true);
        process.resting.insert(agent);
    }

    pub(super) fn move_away(&mut self, index: usize, agent: &Arc<str>) {
        self.log(format!("{agent} moves away"));
        let now = self.time();
        let process = &mut self.processes[index];
        process.resting.remove(agent);
        let seats = process.seats.iter_mut();
        for seat in seats.filter(|it| it.consumer.agent == *agent && !it.has_left) {
            seat.has_left = true;
            seat.has_moved = true;
        }
        process.exchange.agent_left(agent, now);
        self.pump(index);
    }

    fn qos(&mut self) -> Qos {
        let mut qos = Qos::default();
        if self.random.chance(10) {
            qos.reliability = Reliability::BestEffort;
        } else if self.random.chance(20) {
            qos.reliability = Reliability::AtLeastOnce;
        }
        if self.random.chance(15) {
            qos.acknowledgement = Some(Acknowledgement::ReceiverProcess);
        }
        qos.ordered = self.random.chance(80);
        if self.random.chance(15) {
            qos.priority = Priority::new(self.random.below(10) as u8).unwrap();
        }
        if self.random.chance(8) {
            qos.valid_from = Some(Time::After(Duration::from_millis(self.random.below(800))));
        }
        if self.random.chance(12) {
            qos.expiry = Some(Time::After(Duration::from_millis(
                900 + self.random.below(3000),
            )));
        }
        qos
    }

    pub(super) fn message(&mut self, publisher: &str) -> (String, Arc<AclMessage>) {
        self.next_message += 1;
        let text = format!("{}", self.next_message);
        let message = AclMessage::new(Performative::Inform)
            .with_sender(sealbus_bus::aid_of(publisher))
            .with_user_defined("X-n", self.next_message as i64)
            .with_user_defined("X-padding", "x".repeat(self.random.below(400) as usize))
            .with_content(text.clone());
        (text, Arc::new(message))
    }

    fn publish(&mut self, index: usize, receiver: Option<Arc<str>>) {
        let publisher = Self::agent(index, self.random.below(3));
        let channel = CHANNELS[self.random.below(CHANNELS.len() as u64) as usize];
        let qos = self.qos();
        let path = ChannelPath::new(channel).unwrap();
        let (text, message) = self.message(&publisher);
        let now = self.time();
        let process = &mut self.processes[index];
        process.exchange.take_interest(now);
        let targets = process.exchange.targets(&path);
        let receipt = qos.acknowledgement.map(|_| Arc::<Receipt>::default());
        let publication = Publication {
            publisher: &publisher,
            channel: &path,
            qos: &qos,
            message: &message,
            kept: None,
            receipt: receipt.as_ref(),
            turn: Turn::default(),
        };
        let attempt = match &receiver {
            None => process.exchange.publish(&publication, now),
            Some(receiver) => process.exchange.send(&publication, receiver, now),
        };
        let accepted = matches!(attempt, Ok(Attempt::Done(_)));
        let goes_far = matches!(&attempt, Ok(Attempt::Done(reach)) if reach.processes > 0);
        self.log(format!(
            "{publisher} puts {text} on {channel} {qos} for {receiver:?}: {}",
            match &attempt {
                Ok(Attempt::Done(reach)) => format!("{reach:?}"),
                Ok(Attempt::Full(_)) => "full".to_owned(),
                Ok(Attempt::Unknown(_)) => "unknown".to_owned(),
                Err(error) => error.to_string(),
            }
        ));
        let may_publish = self
            .permissions
            .may(&publisher, ChannelRight::Publish, &path);
        let is_kept = qos.reliability != Reliability::BestEffort;
        if goes_far && !may_publish && is_kept {
            let owed = Owed {
                process: index,
                epoch: self.processes[index].epoch,
                expiry: None,
                to: Vec::new(),
                is_forbidden: true,
                is_reported: false,
                groups: Vec::new(),
                receipt,
            };
            self.owed.insert(text, owed);
        } else if accepted && may_publish && is_kept {
            let header =
                crate::ChannelHeader::new(crate::Mechanism::Event, path, qos, 1, now.moment);
            let view = message.view();
            let mut to = Vec::new();
            let is_event = receiver.is_none();
            let mut is_found = false;
            // The true rights. The process that ignores the policy may assume others.
            let may = |agent: &Arc<str>| {
                let right = ChannelRight::Subscribe;
                self.permissions.may(agent, right, &header.channel)
            };
            let mut wanted =
                |agent: &Arc<str>, uses: &Uses, filter: Option<&ChannelFilter>| match &receiver {
                    _ if !may(agent) => false,
                    None => uses.sees && passes(filter, &header, &view),
                    Some(receiver) if !is_found && uses.reads && *agent == *receiver => {
                        is_found = true;
                        true
                    }
                    Some(_) => false,
                };
            for it in &targets.here {
                let consumer = &it.consumer;
                if wanted(&consumer.agent, &it.uses, consumer.filter.as_ref())
                    && (consumer.pushes_back() || !is_event)
                {
                    to.push((index, self.processes[index].epoch, consumer.id));
                }
            }
            for there in &targets.there {
                let peers = &self.processes[index].exchange.peers;
                let peer = peers.get(there.peer).expect("a known process");
                let process = self
                    .processes
                    .iter()
                    .position(|it| it.identity == *peer.identity);
                for it in &there.subscriptions {
                    let subscription = &it.subscription;
                    if wanted(&subscription.agent, &it.uses, subscription.filter.as_ref())
                        && subscription.pushes_back()
                    {
                        to.push((process.unwrap(), peer.epoch, it.id));
                    }
                }
            }
            let groups = match is_event {
                true => self.groups_for(index, &targets.groups, &header, &view),
                false => Vec::new(),
            };
            // Only a subscription that pushes back promises to take everything.
            to.retain(|(process, epoch, id)| {
                let process = &self.processes[*process];
                process.epoch != *epoch
                    || process
                        .seats
                        .iter()
                        .any(|seat| seat.consumer.id == *id && seat.consumer.pushes_back())
            });
            let owed = Owed {
                process: index,
                epoch: self.processes[index].epoch,
                expiry: header.expiry,
                to,
                is_forbidden: false,
                is_reported: false,
                groups,
                receipt,
            };
            self.owed.insert(text, owed);
        }
        self.pump(index);
    }

    fn ask(&mut self, index: usize) {
        let requester = Self::agent(index, self.random.below(3));
        let channel = CHANNELS[self.random.below(3) as usize];
        let path = ChannelPath::new(channel).unwrap();
        let (_, message) = self.message(&requester);
        let now = self.time();
        let first = self.random.chance(20).then_some(1);
        let within = Duration::from_millis(200 + self.random.below(2000));
        let publication = Publication {
            publisher: &requester,
            channel: &path,
            qos: &Qos::default(),
            message: &message,
            kept: None,
            receipt: None,
            turn: Turn::default(),
        };
        let process = &mut self.processes[index];
        process.exchange.take_interest(now);
        if let Ok(Attempt::Done(asked)) = process.exchange.request(&publication, within, first, now)
        {
            process.requests.push(asked);
        }
        self.pump(index);
    }

    fn read(&mut self, index: usize, most: u64) {
        let count = self.processes[index].seats.len() as u64;
        if count == 0 {
            return;
        }
        let at = self.random.below(count) as usize;
        if self.processes[index].seats[at].is_lazy && !self.random.chance(5) {
            return;
        }
        for _ in 0..most {
            if !self.read_one(index, at) {
                break;
            }
        }
        self.pump(index);
    }

    pub(super) fn read_one(&mut self, index: usize, at: usize) -> bool {
        let now = self.time();
        let process = &mut self.processes[index];
        let seat = &mut process.seats[at];
        if process.resting.contains(&seat.consumer.agent) {
            return false;
        }
        let mut aftermath = Aftermath::default();
        // An agent that asks for the next event has handled the one before.
        let in_hand = std::mem::take(&mut seat.in_hand);
        if let Some(key) = groups::key_of(&seat.consumer) {
            self.shared.handle(&key, in_hand);
        }
        let mut event = None;
        let out = |taken| event = Some(taken);
        seat.consumer.take(now.moment, None, 1, out, &mut aftermath);
        process.exchange.settle(seat.consumer.id, aftermath, now);
        let Some(event) = event else {
            return false;
        };
        self.check(index, at, &event, now);
        let is_request = matches!(event.header.mechanism, crate::Mechanism::Request { .. });
        let seat = &mut self.processes[index].seats[at];
        if is_request {
            seat.open.push(event);
        }
        // Now and then waiting requests are answered, or not.
        while let Some(request) = self.processes[index].seats[at].open.pop() {
            let choice = self.random.below(4);
            let process = &mut self.processes[index];
            let consumer = process.seats[at].consumer.clone();
            let message = request.message.clone().into_message();
            let reply = message
                .create_reply(Performative::Inform)
                .with_sender(sealbus_bus::aid_of(&consumer.agent));
            match choice {
                0 => {
                    process.seats[at].open.push(request);
                    break;
                }
                1 => process.exchange.decline_request(&consumer, &request, now),
                _ => {
                    let _ = process.exchange.reply(
                        &consumer,
                        &request,
                        &Arc::new(reply),
                        Turn::default(),
                        now,
                    );
                }
            }
        }
        true
    }
}

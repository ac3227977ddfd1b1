//! The carrier of the simulation. It keeps the promise of a transport: the other process takes each frame once and in
//! order, or the frame comes back. A frame that comes back may have arrived nevertheless.

use sealbus_bus::LostFrame;

use super::*;

/// A frame between two processes.
struct Carried {
    author: Option<Arc<str>>,
    bytes: Bytes,
    /// The epoch of the process that sent it.
    epoch: u64,
    /// When it arrives or, once it has arrived, when the carrier learns of that.
    at: Duration,
    has_arrived: bool,
}

/// Frames on their way back to a process.
struct Returning {
    from: usize,
    to: usize,
    epoch: u64,
    frame: LostFrame,
    is_refused: bool,
}

/// The carrier's state.
#[derive(Default)]
pub(super) struct Carrier {
    /// The frames under way, by the processes at both ends.
    lines: BTreeMap<(usize, usize), VecDeque<Carried>>,
    /// The frames on their way back, by the time of their return.
    returning: BTreeMap<(Duration, u64), Returning>,
    returned: u64,
    /// Pairs of processes between which nothing arrives.
    cut: BTreeSet<(usize, usize)>,
}

impl Carrier {
    /// Frames arrive everywhere again.
    pub(super) fn mend(&mut self) {
        self.cut.clear();
    }

    /// The next frame to arrive.
    fn next_arrival(&self) -> Option<(Duration, (usize, usize))> {
        let lines = self.lines.iter();
        let open =
            lines.filter(|((from, to), _)| !self.cut.contains(&(*from.min(to), *from.max(to))));
        open.filter_map(|(ends, line)| Some((line.iter().find(|it| !it.has_arrived)?.at, *ends)))
            .min()
    }
}

impl World {
    pub(super) fn pump(&mut self, from: usize) {
        while let Some(index) = self.processes[from].exchange.next_ready() {
            loop {
                let exchange = &mut self.processes[from].exchange;
                let Some(parcel) = exchange.next_parcel(index) else {
                    break;
                };
                let bytes: Bytes = [&parcel.head[..], &parcel.content, parcel.tail]
                    .concat()
                    .into();
                let author = parcel.author.clone();
                if self.random.chance(self.weather.full) {
                    exchange.block(index);
                    let until = self.now + Duration::from_millis(1 + self.random.below(20));
                    let epoch = self.processes[from].epoch;
                    self.full.push((until, from, epoch, index));
                    break;
                }
                let identity = exchange.identity(index).unwrap().clone();
                exchange.sent(index);
                let to = self
                    .processes
                    .iter()
                    .position(|it| it.identity == *identity)
                    .unwrap();
                self.accept(from, to, author, bytes);
            }
        }
        let exchange = &mut self.processes[from].exchange;
        if let Some(alarm) = exchange.take_alarm() {
            let process = &mut self.processes[from];
            process.alarm = Some(process.alarm.map_or(alarm, |old| old.min(alarm)));
        }
        for outcome in self.processes[from].exchange.take_outcomes() {
            self.outcome(from, outcome);
        }
    }

    /// The carrier takes a frame.
    fn accept(&mut self, from: usize, to: usize, author: Option<Arc<str>>, bytes: Bytes) {
        let at = self.now + Duration::from_millis(self.random.below(self.weather.delay));
        let epoch = self.processes[from].epoch;
        let is_refused = author.is_some() && self.random.chance(self.weather.refusals);
        let is_lost = !is_refused && self.random.chance(self.weather.loss);
        let is_doubled = !is_lost && !is_refused && self.random.chance(self.weather.double);
        if is_refused || is_lost || is_doubled {
            let returning = Returning {
                from,
                to,
                epoch,
                frame: LostFrame {
                    sender: author.clone(),
                    payload: bytes.clone(),
                    may_have_arrived: is_doubled,
                },
                is_refused,
            };
            self.carrier.returned += 1;
            let late = Duration::from_millis(self.random.below(4 * self.weather.delay));
            let returned = self.carrier.returned;
            self.carrier
                .returning
                .insert((at + late, returned), returning);
        }
        if !is_refused && !is_lost {
            let line = self.carrier.lines.entry((from, to)).or_default();
            // It arrives in order, behind the frames that have arrived.
            let last = line.iter().rfind(|it| !it.has_arrived).map(|it| it.at);
            line.push_back(Carried {
                author,
                bytes,
                epoch,
                at: last.map_or(at, |last| last.max(at)),
                has_arrived: false,
            });
        }
    }

    fn arrive(&mut self, (from, to): (usize, usize)) {
        let now = self.time();
        let known_at = self.now + Duration::from_millis(self.random.below(2 * self.weather.delay));
        let line = self.carrier.lines.get_mut(&(from, to)).unwrap();
        while line
            .front()
            .is_some_and(|it| it.has_arrived && it.at <= self.now)
        {
            line.pop_front();
        }
        let carried = line.iter_mut().find(|it| !it.has_arrived).unwrap();
        carried.has_arrived = true;
        carried.at = known_at;
        let origin = match &carried.author {
            Some(author) => FrameOrigin::Agent(author.clone()),
            None => FrameOrigin::Process,
        };
        let arrived = ArrivedFrame {
            writer: Arc::new(FrameWriter {
                process: Arc::new(self.processes[from].identity.clone()),
                origin,
                provenance: Provenance::Claimed,
            }),
            payload: carried.bytes.clone(),
            credit: FrameCredit::free(),
        };
        self.processes[to].exchange.take(arrived, now).unwrap();
        self.pump(to);
    }

    fn come_back(&mut self, returning: Returning) {
        let now = self.time();
        let Returning {
            from,
            to,
            epoch,
            frame,
            is_refused,
        } = returning;
        if self.processes[from].epoch != epoch {
            return;
        }
        let identity = self.processes[to].identity.clone();
        let exchange = &mut self.processes[from].exchange;
        if is_refused {
            let reason = UndeliverableReason::Refused {
                reason: RefusalReason::NotProved,
                explanation: "its writer is not proved".to_owned(),
            };
            exchange.frame_refused(&identity, &frame.payload, &reason, now);
        } else {
            exchange.frames_lost(&identity, &[frame], now);
        }
        self.pump(from);
    }

    /// Breaks a line: everything on it comes back, even frames that have arrived without the carrier's knowledge.
    pub(super) fn break_line(&mut self, from: usize, to: usize) {
        let now = self.time();
        let line = self.carrier.lines.remove(&(from, to)).unwrap_or_default();
        let epoch = self.processes[from].epoch;
        let frames: Vec<LostFrame> = line
            .into_iter()
            .filter(|it| it.epoch == epoch && !(it.has_arrived && it.at <= self.now))
            .map(|it| LostFrame {
                sender: it.author,
                payload: it.bytes,
                may_have_arrived: it.has_arrived,
            })
            .collect();
        self.log(format!(
            "{} frames from {from} to {to} come back",
            frames.len()
        ));
        let identity = self.processes[to].identity.clone();
        self.processes[from]
            .exchange
            .frames_lost(&identity, &frames, now);
        self.pump(from);
    }

    /// Cuts two processes off from each other, or connects them again. Frames that were under way arrive then, or have
    /// come back.
    pub(super) fn cut_or_mend(&mut self, one: usize, other: usize) {
        let pair = (one.min(other), one.max(other));
        if self.carrier.cut.insert(pair) {
            self.log(format!("cut {pair:?}"));
            return;
        }
        for (from, to) in [(one, other), (other, one)] {
            if self.random.chance(50) {
                self.break_line(from, to);
            }
        }
        self.carrier.cut.remove(&pair);
        self.log(format!("mend {pair:?}"));
    }

    /// Simulates everything that happens until `until`.
    pub(super) fn run(&mut self, until: Duration) {
        loop {
            let arrival = self.carrier.next_arrival();
            let returning = self
                .carrier
                .returning
                .first_key_value()
                .map(|(key, _)| key.0);
            let alarm = self.processes.iter().filter_map(|it| it.alarm).min();
            let full = self.full.iter().map(|it| it.0).min();
            let next = [arrival.map(|it| it.0), returning, alarm, full];
            let next = next.into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else {
                break;
            };
            self.now = self.now.max(next);
            let now = self.time();
            if let Some((_, ends)) = arrival.filter(|it| it.0 <= self.now) {
                self.arrive(ends);
                continue;
            }
            if let Some(entry) = self.carrier.returning.first_entry()
                && entry.key().0 <= self.now
            {
                let returning = entry.remove();
                self.come_back(returning);
                continue;
            }
            if let Some(at) = self.full.iter().position(|it| it.0 <= self.now) {
                let (_, process, epoch, index) = self.full.remove(at);
                if self.processes[process].epoch == epoch {
                    self.processes[process].exchange.unblock(index);
                    self.pump(process);
                }
                continue;
            }
            for index in 0..self.processes.len() {
                if self.processes[index].alarm.is_some_and(|at| at <= self.now) {
                    let process = &mut self.processes[index];
                    process.alarm = process.exchange.tick(now);
                    self.pump(index);
                }
            }
        }
        self.now = until;
    }
}

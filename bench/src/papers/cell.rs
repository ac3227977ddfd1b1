//! One cell of a table: a system, a setting and a column.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sealbus_bench_driver::{
    Answer, Kind, Order, Prepare, ROUNDS, Role, Scenario, Shape, Stamp, monotonic_ns,
};
use serde_json::Value;

use crate::papers::PapersError;
use crate::papers::process::{Process, cost};
use crate::papers::results::Outcome;
use crate::papers::round::{Round, Rounds, histogram};
use crate::papers::scenario::{Column, Mode, Table};
use crate::papers::system::{Places, Setting, System};

/// Time from the order to the first message, in which all processes read the order.
const LEAD_NS: u64 = 20_000_000;
/// Length of a round of a search.
const SEARCH_ROUND_S: f64 = 0.3;
const SEARCH_STEPS: u32 = 5;
/// Messages of all senders in the first round of a search. That round tells how many messages fill a round.
const PILOT: u32 = 2_000;

/// Deliveries of a warm-up round: enough for every compiler.
const MOST_WARM_UP: u64 = 20_000;

/// The time after which no further counting round begins, however many the table wants.
const ROUNDS_TIME: Duration = Duration::from_millis(1500);

/// Round trips from which the possible number is estimated.
const CUT_SAMPLE: u32 = 20;

/// The subject of the measurement, and its tools.
pub(crate) struct Cell<'a> {
    pub(crate) table: &'a Table,
    pub(crate) column: &'a Column,
    pub(crate) system: &'a System,
    pub(crate) setting: &'a Setting,
    /// The processes of the server.
    pub(crate) service: Option<u32>,
    /// The server's own description.
    pub(crate) served: &'a Value,
    pub(crate) places: &'a Places,
    /// The folder for the processes' logs.
    pub(crate) logs: &'a Path,
}

/// The drivers of a cell.
struct Drivers {
    receiver: Process,
    /// None if all agents are in one process.
    sender: Option<Process>,
    clients: Vec<String>,
}

impl Drivers {
    fn sender(&mut self) -> &mut Process {
        self.sender.as_mut().unwrap_or(&mut self.receiver)
    }

    fn ids(&self, service: Option<u32>) -> Vec<u32> {
        let both = [
            self.receiver.id(),
            self.sender.as_ref().and_then(Process::id),
        ];
        both.into_iter().chain([service]).flatten().collect()
    }
}

impl Cell<'_> {
    fn size(&self) -> usize {
        self.column.size.unwrap_or(self.table.size)
    }

    /// How many receivers get each message.
    fn copies(&self) -> u64 {
        match self.table.shape {
            Shape::Broadcast => u64::from(self.column.receivers),
            Shape::OneToOne | Shape::ManyToOne => 1,
        }
    }

    fn scenario(&self) -> Scenario {
        Scenario {
            kind: self.table.kind,
            shape: self.table.shape,
            senders: self.column.senders,
            receivers: self.column.receivers,
            size: self.size(),
            first_contact: self.table.first_contact,
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.table.patience_s)
    }

    /// Measures the cell. A failure is an outcome too.
    pub(crate) async fn measure(&self) -> Outcome {
        if let Err(why) = self
            .system
            .plays(self.table, self.column.agents(), self.size())
        {
            return Outcome::Cannot { why };
        }
        // The payload names its round in two digits. The folder is for sockets, and their paths must be short.
        let folder = std::env::temp_dir().join(format!("sb-{:x}", monotonic_ns()));
        if let Err(error) = fs::create_dir_all(&folder) {
            return Outcome::failed(error);
        }
        let deadline = self.patience() + Duration::from_secs(60);
        let outcome = match tokio::time::timeout(deadline, self.play(&folder)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Outcome::failed(error),
            Err(_elapsed) => Outcome::failed(format!("not done after {} s", deadline.as_secs())),
        };
        let _ = fs::remove_dir_all(folder);
        outcome
    }

    async fn play(&self, folder: &Path) -> Result<Outcome, PapersError> {
        let mut drivers = self.prepare(folder).await?;
        let outcome = match self.table.mode {
            Mode::Paced => self.paced(&mut drivers).await,
            Mode::Search => self.search(&mut drivers).await,
        };
        let Drivers {
            mut receiver,
            sender,
            ..
        } = drivers;
        if let Some(mut sender) = sender {
            let _ = sender.say(&Order::Stop).await;
            sender.end().await;
        }
        let _ = receiver.say(&Order::Stop).await;
        receiver.end().await;
        outcome
    }

    async fn prepare(&self, folder: &Path) -> Result<Drivers, PapersError> {
        let command = |words: &[String]| -> Vec<String> {
            words.iter().map(|word| self.places.fill(word)).collect()
        };
        let senders = command(&self.system.driver);
        let receivers = match self.system.receivers.is_empty() {
            true => senders.clone(),
            false => command(&self.system.receivers),
        };
        let mut system = self.setting.to_value(self.places)?;
        if let (Value::Object(system), Value::Object(served)) = (&mut system, self.served) {
            system.extend(served.clone());
        }
        let order = |role, there| {
            Order::Prepare(Box::new(Prepare {
                role,
                scenario: self.scenario(),
                system: system.clone(),
                folder: folder.to_string_lossy().into_owned(),
                run: format!("{:x}", monotonic_ns()),
                there,
            }))
        };
        let log = |role: &str| self.logs.join(format!("{}-{role}.log", self.system.id));
        let start = |role: &str, command: &[String]| {
            let name = format!("the driver of {} ({role})", self.system.title);
            Process::start(&name, command, &log(role))
        };
        let mut receiver = start("receive", &receivers)?;
        let mut clients = Vec::new();
        let patience = self.patience();
        let role = match self.setting.one_process {
            true => Role::Both,
            false => Role::Receive,
        };
        let here = prepared(
            receiver.order(&order(role, Value::Null), patience).await?,
            &mut clients,
        )?;
        let mut sender = None;
        if !self.setting.one_process {
            let mut process = start("send", &senders)?;
            let there = process.order(&order(Role::Send, here), patience).await?;
            let there = prepared(there, &mut clients)?;
            receiver.order(&Order::Meet { there }, patience).await?;
            sender = Some(process);
        }
        Ok(Drivers {
            receiver,
            sender,
            clients,
        })
    }

    /// Plays one round on both sides.
    async fn round(
        &self,
        drivers: &mut Drivers,
        round: u32,
        messages: u32,
        interval_ns: u64,
        stamp: Stamp,
    ) -> Result<Round, PapersError> {
        let round = round % ROUNDS;
        let patience = self.patience();
        let expect = Order::Expect { round, messages };
        drivers.receiver.order(&expect, patience).await?;
        let run = Order::Run {
            round,
            messages,
            interval_ns,
            stamp,
            start_ns: monotonic_ns() + LEAD_NS,
        };
        let done = drivers.sender().order(&run, patience).await?;
        let Answer::Done {
            sent,
            first_ns,
            last_ns: sent_ns,
            answered,
            times: answer_times,
            mean_ns: answer_mean,
        } = done
        else {
            return Err(PapersError::unexpected(&done));
        };
        let expected = u64::from(self.column.senders) * u64::from(messages) * self.copies();
        let report = Order::Report {
            expected,
            quiet_ms: self.table.quiet_s * 1000,
        };
        let report = drivers.receiver.order(&report, patience).await?;
        let Answer::Report {
            received,
            duplicated,
            disordered,
            corrupt,
            last_ns,
            times,
            mean_ns,
            remarks,
            ..
        } = report
        else {
            return Err(PapersError::unexpected(&report));
        };
        let is_stream = self.table.kind == Kind::Stream;
        let (last_ns, times, mean_ns) = match is_stream {
            true => (last_ns, times, mean_ns),
            false => (sent_ns, answer_times, answer_mean),
        };
        Ok(Round {
            sent,
            expected,
            received: match is_stream {
                true => received,
                // The number of answers must agree with the correct ones.
                false => received.min(answered),
            },
            duplicated,
            disordered,
            corrupt,
            first_ns,
            last_ns,
            mean_ns,
            times: histogram(&times)?,
            remarks,
        })
    }

    /// Plays the warm-up. Returns how many messages of each sender fit into the available time.
    async fn warm_up(&self, drivers: &mut Drivers, messages: u32) -> Result<u32, PapersError> {
        let interval_ns = self.table.interval_ns(self.column);
        let stamp = self.table.stamp;
        let mut most = u32::MAX;
        if let Some(cut_s) = self.table.cut_s {
            // The first messages take longest, and some systems take a tenth of a second for each.
            let few = self.table.warm_up.min(CUT_SAMPLE);
            let round = self.round(drivers, 0, few, interval_ns, stamp).await?;
            let each_s = round.mean_ns.max(1.0) / 1e9;
            most = (cut_s / each_s).clamp(f64::from(CUT_SAMPLE), f64::from(u32::MAX)) as u32;
        }
        let of_each = MOST_WARM_UP / (u64::from(self.column.senders) * self.copies()).max(1);
        let of_each = u32::try_from(of_each).unwrap_or(u32::MAX).max(1);
        let warm_up = self.table.warm_up.min(most / 2).min(of_each);
        for round in 0..self.system.warm_ups {
            if warm_up > 0 {
                self.round(drivers, round + 1, warm_up, interval_ns, stamp)
                    .await?;
            }
        }
        Ok(messages.min(most))
    }

    async fn paced(&self, drivers: &mut Drivers) -> Result<Outcome, PapersError> {
        let messages = self.column.messages.unwrap_or(self.table.messages);
        let messages = self.warm_up(drivers, messages).await?;
        let interval_ns = self.table.interval_ns(self.column);
        let first = self.system.warm_ups + 1;
        let rounds = self
            .rounds(drivers, first, messages, interval_ns, self.table.stamp)
            .await?;
        Ok(rounds.outcome(self.table, self.size(), &drivers.clients, None))
    }

    /// Plays the rounds that count.
    async fn rounds(
        &self,
        drivers: &mut Drivers,
        first: u32,
        messages: u32,
        interval_ns: u64,
        stamp: Stamp,
    ) -> Result<Rounds, PapersError> {
        let ids = drivers.ids(self.service);
        let before = cost(&ids);
        let began = Instant::now();
        let mut played: Vec<Round> = Vec::new();
        for number in 0..self.table.rounds.max(1) {
            // An odd number of rounds has one in the middle.
            let has_middle = played.len() % 2 == 1;
            if has_middle && began.elapsed() > ROUNDS_TIME {
                break;
            }
            let round = self
                .round(drivers, first + number, messages, interval_ns, stamp)
                .await?;
            let is_sound = round.fault().is_none();
            played.push(round);
            if !is_sound {
                // A single loss fails the cell.
                break;
            }
        }
        Ok(Rounds {
            played,
            before,
            after: cost(&ids),
        })
    }

    /// Sends without a pause first. Then searches between zero and that rate by halving on a scale of ratios.
    async fn search(&self, drivers: &mut Drivers) -> Result<Outcome, PapersError> {
        let senders = self.column.senders;
        let most = self.table.messages;
        let clamp = |total: f64| ((total / f64::from(senders)) as u32).clamp(10, most);
        // Each sender sends often enough for its compiler, if it has one at run time.
        let pilot = PILOT.div_ceil(senders).max(self.table.warm_up);
        let started = Instant::now();
        let mut rate = 0.0;
        let mut number = 0;
        while number < 3 {
            let messages = if number == 0 {
                pilot
            } else {
                clamp(rate * SEARCH_ROUND_S / 2.0)
            };
            let round = self
                .round(drivers, number, messages, 0, Stamp::Sent)
                .await?;
            rate = round.sent as f64 / round.seconds();
            number += 1;
        }
        let messages = clamp(rate * SEARCH_ROUND_S);
        let flat = self
            .rounds(drivers, number, messages, 0, Stamp::Sent)
            .await?;
        let outcome = |best| flat.outcome(self.table, self.size(), &drivers.clients, best);
        let Outcome::Measured(middle) = outcome(None) else {
            return Ok(outcome(None));
        };
        // Senders keep a rate of messages. The reported figure is the received rate, as for rounds without a pause.
        let highest = middle.sent as f64 / middle.seconds;
        let limit_ns = (self.table.limit_ms * 1e6) as u64;
        let (mut low, mut high) = (highest / 32.0, highest * 1.2);
        let mut best = 0.0;
        number += self.table.rounds;
        for step in 0..SEARCH_STEPS {
            if started.elapsed() > self.patience() {
                break;
            }
            let try_rate = (low * high).sqrt();
            let interval_ns = (f64::from(senders) / try_rate * 1e9).max(1.0) as u64;
            let messages = clamp(try_rate * SEARCH_ROUND_S);
            let round = self
                .round(drivers, number + step, messages, interval_ns, Stamp::Due)
                .await?;
            let is_fast = round.times.value_at_quantile(0.99) < limit_ns;
            if is_fast && round.fault().is_none() {
                low = try_rate;
                best = round.received_per_s();
            } else {
                high = try_rate;
            }
        }
        Ok(flat.outcome(self.table, self.size(), &drivers.clients, Some(best)))
    }
}

fn prepared(answer: Answer, clients: &mut Vec<String>) -> Result<Value, PapersError> {
    let Answer::Prepared { here, client } = answer else {
        return Err(PapersError::unexpected(&answer));
    };
    if !client.is_empty() && !clients.contains(&client) {
        clients.push(client);
    }
    Ok(here)
}

//! Agents over ZeroMQ: push and pull sockets for streams, publish and subscribe for a broadcast, request and reply for round
//! trips; a socket for each agent, and a thread for each socket. With CURVE each side proves its key to the other.

use std::error::Error;
use std::io::BufReader;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sealbus_bench_driver::{
    Answer, Kind, Order, Part, Played, Prepare, Role, Scenario, Shape, Tally, fill, monotonic_ns,
    read_order, say,
};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const LOOK: Duration = Duration::from_millis(2);
/// How often a receiver looks whether it is over.
const WAIT_MS: i32 = 200;
const TIMEOUT_MS: i32 = 20_000;

#[derive(Default)]
struct Received {
    tallies: Vec<Mutex<Tally>>,
    answered: AtomicU64,
}

struct Stage {
    context: zmq::Context,
    scenario: Scenario,
    received: Arc<Received>,
    senders: Vec<zmq::Socket>,
    keys: Option<Keys>,
    /// Every publisher of a broadcast knows all its subscribers.
    has_subscribers: bool,
}

/// The two key pairs of a run.
struct Keys {
    server: zmq::CurveKeyPair,
    client: zmq::CurveKeyPair,
}

impl Keys {
    fn from_value(value: &Value) -> Result<Option<Self>> {
        let key = |name: &str| -> Result<[u8; 32]> {
            let text = value["keys"][name].as_str().ok_or("a key is missing")?;
            Ok(zmq::z85_decode(text)?
                .try_into()
                .map_err(|_| "a key of another length")?)
        };
        if value["keys"].is_null() {
            return Ok(None);
        }
        let pair = |public, secret| -> Result<zmq::CurveKeyPair> {
            Ok(zmq::CurveKeyPair {
                public_key: key(public)?,
                secret_key: key(secret)?,
            })
        };
        Ok(Some(Self {
            server: pair("server", "server_secret")?,
            client: pair("client", "client_secret")?,
        }))
    }

    fn create() -> Result<Self> {
        Ok(Self {
            server: zmq::CurveKeyPair::new()?,
            client: zmq::CurveKeyPair::new()?,
        })
    }

    fn to_value(&self) -> Result<Value> {
        let text = |key: &[u8; 32]| zmq::z85_encode(key);
        Ok(json!({
            "server": text(&self.server.public_key)?,
            "server_secret": text(&self.server.secret_key)?,
            "client": text(&self.client.public_key)?,
            "client_secret": text(&self.client.secret_key)?,
        }))
    }
}

fn socket(
    context: &zmq::Context,
    kind: zmq::SocketType,
    keys: Option<&Keys>,
    is_server: bool,
) -> Result<zmq::Socket> {
    let socket = context.socket(kind)?;
    // No limit: what is sent is kept, as the other systems keep it.
    socket.set_sndhwm(0)?;
    socket.set_rcvhwm(0)?;
    socket.set_linger(0)?;
    if let Some(keys) = keys {
        if is_server {
            socket.set_curve_server(true)?;
            socket.set_curve_secretkey(&keys.server.secret_key)?;
        } else {
            socket.set_curve_serverkey(&keys.server.public_key)?;
            socket.set_curve_publickey(&keys.client.public_key)?;
            socket.set_curve_secretkey(&keys.client.secret_key)?;
        }
    }
    Ok(socket)
}

fn bind(socket: &zmq::Socket) -> Result<String> {
    socket.bind("tcp://127.0.0.1:*")?;
    socket
        .get_last_endpoint()?
        .map_err(|_| "an endpoint that is no text".into())
}

fn main() -> Result<()> {
    let mut input = BufReader::new(std::io::stdin());
    let mut stage = None;
    while let Some(order) = read_order(&mut input)? {
        if matches!(order, Order::Stop) {
            break;
        }
        let answer = follow(order, &mut stage).unwrap_or_else(|error| Answer::Error {
            text: error.to_string(),
        });
        say(&answer)?;
    }
    // Threads wait on their sockets; the process ends with all of them.
    std::process::exit(0)
}

fn follow(order: Order, stage: &mut Option<Stage>) -> Result<Answer> {
    if let Order::Prepare(order) = order {
        let (prepared, here) = prepare(&order)?;
        *stage = Some(prepared);
        let (major, minor, patch) = zmq::version();
        return Ok(Answer::Prepared {
            here,
            client: format!("libzmq {major}.{minor}.{patch}"),
        });
    }
    let stage = stage.as_mut().ok_or("the first order must be prepare")?;
    match order {
        Order::Prepare(_) | Order::Stop => {}
        Order::Meet { there } => stage.meet(&there)?,
        Order::Expect { round, messages } => {
            stage.received.answered.store(0, Ordering::Relaxed);
            for (number, tally) in (0..).zip(&stage.received.tallies) {
                lock(tally).begin(round, number + 1, stage.scenario.senders, messages);
            }
        }
        Order::Run {
            round,
            messages,
            interval_ns,
            stamp,
            start_ns,
        } => {
            let part = Part {
                round,
                messages,
                interval_ns,
                stamp,
                start_ns,
            };
            stage.await_subscriptions()?;
            return run(&mut stage.senders, &stage.scenario, part);
        }
        Order::Report { expected, quiet_ms } => {
            return Ok(stage.report(expected, Duration::from_millis(quiet_ms)));
        }
    }
    Ok(Answer::Ready)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn prepare(order: &Prepare) -> Result<(Stage, Value)> {
    let context = zmq::Context::new();
    let scenario = order.scenario.clone();
    let is_receiver = order.role != Role::Send;
    let keys = if !is_receiver {
        Keys::from_value(&order.there)?
    } else if order.system["curve"].as_bool() == Some(true) {
        Some(Keys::create()?)
    } else {
        None
    };
    let mut received = Received::default();
    received
        .tallies
        .resize_with(scenario.receivers as usize, Mutex::default);
    let mut stage = Stage {
        context,
        scenario: scenario.clone(),
        received: Arc::new(received),
        senders: Vec::new(),
        keys,
        has_subscribers: false,
    };
    let mut endpoints = Vec::new();
    let is_broadcast = scenario.shape == Shape::Broadcast;
    if is_receiver {
        // In a broadcast it is the publishers that can be connected to.
        for receiver in 0..if is_broadcast { 0 } else { scenario.receivers } {
            let kind = match scenario.kind {
                Kind::Stream => zmq::PULL,
                Kind::RoundTrip => zmq::REP,
            };
            let socket = socket(&stage.context, kind, stage.keys.as_ref(), true)?;
            endpoints.push(bind(&socket)?);
            stage.listen(receiver, socket);
        }
        let keys = stage.keys.as_ref().map(Keys::to_value).transpose()?;
        return Ok((stage, json!({ "endpoints": endpoints, "keys": keys })));
    }
    for sender in 0..scenario.senders {
        let kind = match (scenario.kind, is_broadcast) {
            (Kind::RoundTrip, _) => zmq::REQ,
            (Kind::Stream, true) => zmq::XPUB,
            (Kind::Stream, false) => zmq::PUSH,
        };
        let socket = socket(&stage.context, kind, stage.keys.as_ref(), is_broadcast)?;
        socket.set_sndtimeo(TIMEOUT_MS)?;
        socket.set_rcvtimeo(TIMEOUT_MS)?;
        if is_broadcast {
            // Each subscription is told, also one that is there already.
            socket.set_xpub_verbose(true)?;
            endpoints.push(bind(&socket)?);
        } else {
            let receiver = match scenario.shape {
                Shape::ManyToOne => 0,
                Shape::OneToOne | Shape::Broadcast => sender as usize,
            };
            let endpoint = order.there["endpoints"][receiver].as_str();
            socket.connect(endpoint.ok_or("an endpoint is missing")?)?;
        }
        stage.senders.push(socket);
    }
    // The receivers of a broadcast connect to the senders, with the keys they have made.
    Ok((stage, json!({ "endpoints": endpoints })))
}

impl Stage {
    /// Publishers wait until all have subscribed.
    fn await_subscriptions(&mut self) -> Result<()> {
        if self.scenario.shape != Shape::Broadcast || self.has_subscribers {
            return Ok(());
        }
        for socket in &self.senders {
            for _ in 0..self.scenario.receivers {
                socket.recv_bytes(0)?;
            }
        }
        self.has_subscribers = true;
        Ok(())
    }

    fn listen(&self, receiver: u32, socket: zmq::Socket) {
        let received = self.received.clone();
        let scenario = self.scenario.clone();
        thread::spawn(move || {
            if let Err(error) = listen(receiver, &socket, &received, &scenario) {
                eprintln!("receiver {receiver}: {error}");
            }
        });
    }

    fn meet(&mut self, there: &Value) -> Result<()> {
        if self.scenario.shape != Shape::Broadcast {
            return Ok(());
        }
        let endpoints = there["endpoints"].as_array().ok_or("no endpoints")?;
        for receiver in 0..self.scenario.receivers {
            let socket = socket(&self.context, zmq::SUB, self.keys.as_ref(), false)?;
            socket.set_subscribe(b"")?;
            for endpoint in endpoints {
                socket.connect(endpoint.as_str().ok_or("an endpoint that is no text")?)?;
            }
            self.listen(receiver, socket);
        }
        Ok(())
    }

    fn report(&self, expected: u64, quiet: Duration) -> Answer {
        let so_far = || match self.scenario.kind {
            Kind::Stream => (self.received.tallies.iter())
                .map(|it| lock(it).received)
                .sum(),
            Kind::RoundTrip => self.received.answered.load(Ordering::Relaxed),
        };
        let (mut seen, mut since): (u64, _) = (so_far(), Instant::now());
        while seen < expected && since.elapsed() < quiet {
            thread::sleep(LOOK);
            let now = so_far();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        let mut sum = Tally::default();
        for tally in &self.received.tallies {
            sum.add(&lock(tally));
        }
        sum.to_answer(so_far())
    }
}

fn listen(
    receiver: u32,
    socket: &zmq::Socket,
    received: &Received,
    scenario: &Scenario,
) -> Result<()> {
    socket.set_rcvtimeo(WAIT_MS)?;
    let mut message = zmq::Message::new();
    loop {
        match socket.recv(&mut message, 0) {
            Ok(()) => {}
            Err(zmq::Error::EAGAIN) => continue,
            Err(error) => return Err(error.into()),
        }
        if scenario.kind == Kind::RoundTrip {
            socket.send(&*message, 0)?;
            received.answered.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let now_ns = monotonic_ns();
        let tally = &received.tallies[receiver as usize];
        lock(tally).count(receiver, &message, scenario.size, now_ns);
    }
}

fn sleep_until(due_ns: u64) {
    let left = due_ns.saturating_sub(monotonic_ns());
    if left > 0 {
        thread::sleep(Duration::from_nanos(left));
    }
}

fn run(senders: &mut Vec<zmq::Socket>, scenario: &Scenario, part: Part) -> Result<Answer> {
    let number_of_senders = u32::try_from(senders.len())?;
    let Scenario { kind, size, .. } = *scenario;
    let mut all = Played::nothing();
    let tasks: Vec<_> = (0..)
        .zip(senders.drain(..))
        .map(|(number, socket)| {
            thread::spawn(move || {
                let played = match kind {
                    Kind::Stream => stream(&socket, number, number_of_senders, size, part),
                    Kind::RoundTrip => round_trips(&socket, number, size, part),
                };
                (socket, played)
            })
        })
        .collect();
    for task in tasks {
        let (socket, played) = task.join().map_err(|_| "a sender's thread ended")?;
        senders.push(socket);
        all.add(&played?);
    }
    Ok(all.to_answer())
}

fn stream(
    socket: &zmq::Socket,
    number: u32,
    senders: u32,
    size: usize,
    part: Part,
) -> Result<Played> {
    let schedule = part.schedule(number, senders);
    sleep_until(schedule.due_ns(0));
    let mut content = fill(size);
    let mut played = Played::begin();
    for message in 0..part.messages {
        let due_ns = schedule.due_ns(message);
        if !schedule.is_flat_out() {
            sleep_until(due_ns);
        }
        part.write(&mut content, number, message, due_ns);
        socket.send(&*content, 0)?;
        played.sent += 1;
    }
    played.last_ns = monotonic_ns();
    Ok(played)
}

fn round_trips(socket: &zmq::Socket, number: u32, size: usize, part: Part) -> Result<Played> {
    sleep_until(part.start_ns);
    let mut content = vec![b'x'; size];
    let mut answer = zmq::Message::new();
    let mut played = Played::begin();
    for message in 0..part.messages {
        part.write_question(&mut content, number, message);
        let began = monotonic_ns();
        socket.send(&*content, 0)?;
        played.sent += 1;
        socket.recv(&mut answer, 0)?;
        if *answer == *content {
            played.answered += 1;
            played.times.record(monotonic_ns() - began);
        }
    }
    played.last_ns = monotonic_ns();
    Ok(played)
}

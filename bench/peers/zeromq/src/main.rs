//! Agents over ZeroMQ: push and pull sockets for streams, publish and subscribe sockets for a broadcast, request and
//! reply sockets for round trips. Each agent has a socket, and each socket a thread. With CURVE each side proves its
//! key to the other.

use std::sync::Arc;
use std::thread;

use sealbus_bench_driver::threads::{self, Fault, Prepared, Received, Sender, System};
use sealbus_bench_driver::{Kind, Prepare, Role, Scenario, Shape};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Fault>;

/// How often a receiver checks whether the run is over.
const WAIT_MS: i32 = 200;
const TIMEOUT_MS: i32 = 20_000;

fn main() -> Result<()> {
    threads::serve::<Agents>()?;
    // Threads wait on their sockets; the process ends with all of them.
    std::process::exit(0)
}

/// The agents of one side.
struct Agents {
    context: zmq::Context,
    scenario: Scenario,
    received: Arc<Received>,
    keys: Option<Keys>,
    /// Whether every publisher of a broadcast knows all its subscribers.
    has_subscribers: bool,
}

/// An agent that sends.
struct Speaker {
    socket: zmq::Socket,
    answer: zmq::Message,
}

impl Sender for Speaker {
    fn send(&mut self, content: &[u8]) -> Result<()> {
        Ok(self.socket.send(content, 0)?)
    }

    fn ask(&mut self, content: &[u8]) -> Result<bool> {
        self.socket.send(content, 0)?;
        self.socket.recv(&mut self.answer, 0)?;
        Ok(*self.answer == *content)
    }
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
    // There is no limit: unsent messages are kept, as the other systems keep them.
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

impl System for Agents {
    type Sender = Speaker;

    fn prepare(order: &Prepare, received: Arc<Received>) -> Result<Prepared<Self>> {
        let is_receiver = order.role != Role::Send;
        let keys = if !is_receiver {
            Keys::from_value(&order.there)?
        } else if order.system["curve"].as_bool() == Some(true) {
            Some(Keys::create()?)
        } else {
            None
        };
        let agents = Self {
            context: zmq::Context::new(),
            scenario: order.scenario.clone(),
            received,
            keys,
            has_subscribers: false,
        };
        let mut senders = Vec::new();
        let here = match is_receiver {
            true => agents.receivers()?,
            false => agents.senders(&order.there, &mut senders)?,
        };
        let (major, minor, patch) = zmq::version();
        Ok(Prepared {
            system: agents,
            senders,
            here,
            client: format!("libzmq {major}.{minor}.{patch}"),
        })
    }

    /// The receivers of a broadcast connect to the senders, with the keys that the receivers made.
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

    /// Makes publishers wait until all receivers have subscribed.
    fn begin(&mut self, senders: &mut [Speaker]) -> Result<()> {
        if self.scenario.shape != Shape::Broadcast || self.has_subscribers {
            return Ok(());
        }
        for sender in senders {
            for _ in 0..self.scenario.receivers {
                sender.socket.recv_bytes(0)?;
            }
        }
        self.has_subscribers = true;
        Ok(())
    }
}

impl Agents {
    fn receivers(&self) -> Result<Value> {
        let mut endpoints = Vec::new();
        // In a broadcast, the receivers connect to the publishers.
        let is_broadcast = self.scenario.shape == Shape::Broadcast;
        for receiver in 0..if is_broadcast {
            0
        } else {
            self.scenario.receivers
        } {
            let kind = match self.scenario.kind {
                Kind::Stream => zmq::PULL,
                Kind::RoundTrip => zmq::REP,
            };
            let socket = socket(&self.context, kind, self.keys.as_ref(), true)?;
            endpoints.push(bind(&socket)?);
            self.listen(receiver, socket);
        }
        let keys = self.keys.as_ref().map(Keys::to_value).transpose()?;
        Ok(json!({ "endpoints": endpoints, "keys": keys }))
    }

    fn senders(&self, there: &Value, senders: &mut Vec<Speaker>) -> Result<Value> {
        let mut endpoints = Vec::new();
        let is_broadcast = self.scenario.shape == Shape::Broadcast;
        for sender in 0..self.scenario.senders {
            let kind = match (self.scenario.kind, is_broadcast) {
                (Kind::RoundTrip, _) => zmq::REQ,
                (Kind::Stream, true) => zmq::XPUB,
                (Kind::Stream, false) => zmq::PUSH,
            };
            let socket = socket(&self.context, kind, self.keys.as_ref(), is_broadcast)?;
            socket.set_sndtimeo(TIMEOUT_MS)?;
            socket.set_rcvtimeo(TIMEOUT_MS)?;
            if is_broadcast {
                // Each subscription is reported, even a repeated one.
                socket.set_xpub_verbose(true)?;
                endpoints.push(bind(&socket)?);
            } else {
                let receiver = match self.scenario.shape {
                    Shape::ManyToOne => 0,
                    Shape::OneToOne | Shape::Broadcast => sender as usize,
                };
                let endpoint = there["endpoints"][receiver].as_str();
                socket.connect(endpoint.ok_or("an endpoint is missing")?)?;
            }
            senders.push(Speaker {
                socket,
                answer: zmq::Message::new(),
            });
        }
        Ok(json!({ "endpoints": endpoints }))
    }

    fn listen(&self, receiver: u32, socket: zmq::Socket) {
        let received = self.received.clone();
        let kind = self.scenario.kind;
        thread::spawn(move || {
            if let Err(error) = listen(receiver, &socket, &received, kind) {
                eprintln!("receiver {receiver}: {error}");
            }
        });
    }
}

fn listen(receiver: u32, socket: &zmq::Socket, received: &Received, kind: Kind) -> Result<()> {
    socket.set_rcvtimeo(WAIT_MS)?;
    let mut message = zmq::Message::new();
    loop {
        match socket.recv(&mut message, 0) {
            Ok(()) => {}
            Err(zmq::Error::EAGAIN) => continue,
            Err(error) => return Err(error.into()),
        }
        match kind {
            Kind::Stream => received.count(receiver, &message),
            Kind::RoundTrip => {
                socket.send(&*message, 0)?;
                received.count_answer();
            }
        }
    }
}

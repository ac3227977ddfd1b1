//! Agents over Zenoh, peer to peer. Each side has a session, each agent a key, and receivers run on Zenoh's own
//! threads.

use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sealbus_bench_driver::threads::{self, Fault, Prepared, Received, Sender, System};
use sealbus_bench_driver::{Kind, Prepare, Role, Scenario, Shape};
use serde_json::{Value, json};
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait};

type Result<T> = std::result::Result<T, Fault>;

const PATIENCE: Duration = Duration::from_secs(20);
/// How often a publisher checks whether somebody listens.
const LOOK: Duration = Duration::from_millis(5);

fn main() -> Result<()> {
    threads::serve::<Agents>()?;
    // The process ends with all threads of the library.
    std::process::exit(0)
}

/// The agents of one side.
struct Agents {
    session: Session,
}

/// An agent that sends.
struct Speaker {
    publisher: Publisher<'static>,
    /// The key of the answers, and the channel on which they come.
    answers: Option<(String, Mutex<Receiver<Vec<u8>>>)>,
}

impl Sender for Speaker {
    fn send(&mut self, content: &[u8]) -> Result<()> {
        self.publisher.put(content).wait()
    }

    fn ask(&mut self, content: &[u8]) -> Result<bool> {
        let (key, answers) = self.answers.as_mut().ok_or("a sender that hears nothing")?;
        self.publisher
            .put(content)
            .attachment(key.as_str())
            .wait()?;
        let answers = answers
            .get_mut()
            .map_err(|_| "a thread of the library ended")?;
        Ok(answers.recv_timeout(PATIENCE)? == content)
    }
}

impl System for Agents {
    type Sender = Speaker;

    fn prepare(order: &Prepare, received: Arc<Received>) -> Result<Prepared<Self>> {
        let scenario = &order.scenario;
        let (config, endpoint) = configure(order)?;
        let session = zenoh::open(config).wait()?;
        let mut senders = Vec::new();
        if order.role == Role::Send {
            for number in 0..scenario.senders {
                senders.push(speaker(&session, scenario, number)?);
            }
            for speaker in &senders {
                while !speaker.publisher.matching_status().wait()?.matching() {
                    thread::sleep(LOOK);
                }
            }
        } else {
            for number in 0..scenario.receivers {
                listen(&session, scenario, number, received.clone())?;
            }
        }
        Ok(Prepared {
            system: Self { session },
            senders,
            here: json!(endpoint),
            client: "zenoh 1.10.2 (Rust)".to_owned(),
        })
    }

    /// Nothing to do: senders subscribe to answers before they report that they are there.
    fn meet(&mut self, _there: &Value) -> Result<()> {
        match self.session.is_closed() {
            true => Err("the session was closed".into()),
            false => Ok(()),
        }
    }
}

/// Receivers listen and senders connect. Neither looks for others.
fn configure(order: &Prepare) -> Result<(Config, String)> {
    let mut config = Config::default();
    let mut put = |key: &str, value: Value| config.insert_json5(key, &value.to_string());
    let pki = order.system["pki"].as_str();
    let is_sender = order.role == Role::Send;
    let mut endpoint = String::new();
    put("mode", json!("peer"))?;
    put("scouting/multicast/enabled", json!(false))?;
    put("scouting/gossip/enabled", json!(false))?;
    if is_sender {
        put("listen/endpoints", json!([]))?;
        put("connect/endpoints", json!([order.there]))?;
    } else {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let protocol = if pki.is_some() { "tls" } else { "tcp" };
        endpoint = format!("{protocol}/127.0.0.1:{port}");
        put("listen/endpoints", json!([endpoint]))?;
    }
    if let Some(pki) = pki {
        let file = |name: &str| json!(Path::new(pki).join(name));
        let (side, name) = match is_sender {
            true => ("connect", "sender"),
            false => ("listen", "receiver"),
        };
        let tls = "transport/link/tls";
        put(&format!("{tls}/root_ca_certificate"), file("ca.pem"))?;
        put(&format!("{tls}/enable_mtls"), json!(true))?;
        put(
            &format!("{tls}/{side}_certificate"),
            file(&format!("{name}.pem")),
        )?;
        put(
            &format!("{tls}/{side}_private_key"),
            file(&format!("{name}.key")),
        )?;
    }
    Ok((config, endpoint))
}

/// The key that a receiver listens to.
fn key(shape: Shape, receiver: u32) -> String {
    match shape {
        Shape::Broadcast => "bench/all".to_owned(),
        Shape::ManyToOne => "bench/agent/0".to_owned(),
        Shape::OneToOne => format!("bench/agent/{receiver}"),
    }
}

fn speaker(session: &Session, scenario: &Scenario, number: u32) -> Result<Speaker> {
    let publisher = session
        .declare_publisher(key(scenario.shape, number))
        .congestion_control(CongestionControl::Block)
        // Zenoh's own ping does the same: a message that somebody waits for is not held back for batching.
        .express(scenario.kind == Kind::RoundTrip)
        .wait()?;
    let mut answers = None;
    if scenario.kind == Kind::RoundTrip {
        let own = format!("bench/answers/{number}");
        let (heard, hear) = channel();
        session
            .declare_subscriber(own.clone())
            .callback(move |sample: Sample| {
                // When the sender has gone, nobody waits any more.
                let _ = heard.send(sample.payload().to_bytes().into_owned());
            })
            .background()
            .wait()?;
        answers = Some((own, Mutex::new(hear)));
    }
    Ok(Speaker { publisher, answers })
}

fn listen(
    session: &Session,
    scenario: &Scenario,
    number: u32,
    received: Arc<Received>,
) -> Result<()> {
    let (own, kind) = (session.clone(), scenario.kind);
    session
        .declare_subscriber(key(scenario.shape, number))
        .callback(move |sample: Sample| {
            let content = sample.payload().to_bytes();
            if kind == Kind::Stream {
                received.count(number, &content);
                return;
            }
            let back = sample.attachment().map(|it| it.to_bytes().into_owned());
            let back = back.and_then(|it| String::from_utf8(it).ok());
            if let Some(back) = back
                && own
                    .put(back, content.as_ref())
                    .congestion_control(CongestionControl::Block)
                    .express(true)
                    .wait()
                    .is_ok()
            {
                received.count_answer();
            }
        })
        .background()
        .wait()
}

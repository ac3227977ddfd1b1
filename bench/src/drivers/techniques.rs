//! One technique of protection alone: requests and answers over bare TCP, as in `raw`, with a login before the first
//! one, or a technique on each message. Each end does the work of its side and refuses what is wrong.

mod login;
mod message;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use sealbus_bench_driver::{Kind, Prepare, Role, Shape};
use sealbus_seal::encryption::EncryptionError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::drivers::raw::{BACKLOG, read_frame};
use crate::drivers::stage::{DriverError, Prepared, Received, Sender, System, failed};
use login::{Accounts, Algorithm, Authority, Certified, Party, Password};
use message::{End, Guard, Keys, Shared, Technique};

/// The reason why the other end, or its message, is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct NotBelieved(&'static str);

impl From<aws_lc_rs::error::Unspecified> for NotBelieved {
    fn from(_: aws_lc_rs::error::Unspecified) -> Self {
        Self("the cryptographic library refused its work")
    }
}

impl From<EncryptionError> for NotBelieved {
    fn from(_: EncryptionError) -> Self {
        Self("the message does not open")
    }
}

impl From<webpki::Error> for NotBelieved {
    fn from(_: webpki::Error) -> Self {
        Self("the certificate is not good, or the signature is not of its key")
    }
}

impl From<rcgen::Error> for NotBelieved {
    fn from(_: rcgen::Error) -> Self {
        Self("no certificate could be made")
    }
}

impl From<NotBelieved> for DriverError {
    fn from(refused: NotBelieved) -> Self {
        failed(refused)
    }
}

/// The setting of a row.
#[derive(Deserialize)]
struct Settings {
    login: Option<Login>,
    message: Option<Technique>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Login {
    Password,
    #[serde(untagged)]
    Certificate(Algorithm),
}

/// The facts about the receiver that senders need.
#[derive(Clone, Serialize, Deserialize)]
struct Here {
    address: SocketAddr,
    /// The secret from which passwords and keys are made.
    shared: Shared,
    authority: Option<Authority>,
}

/// The name of the agent with this number.
fn name(number: u32) -> String {
    format!("agent-{number}")
}

fn password(shared: &Shared, number: u32) -> String {
    let hash = sealbus_seal::sha256(&[b"password", shared, &number.to_be_bytes()]);
    hash[..16].iter().map(|it| format!("{it:02x}")).collect()
}

/// A connection whose frames are protected.
struct Line {
    stream: TcpStream,
    guard: Option<Guard>,
    going: Vec<u8>,
    coming: Vec<u8>,
}

impl Line {
    /// Both ends prove themselves, and exchange their keys, before the first message.
    async fn begin(
        stream: TcpStream,
        end: End,
        login: Option<Box<dyn Party>>,
        technique: Option<(Technique, Shared)>,
    ) -> Result<Self, DriverError> {
        stream.set_nodelay(true)?;
        let mut line = Self {
            stream,
            guard: None,
            going: Vec::new(),
            coming: Vec::new(),
        };
        if let Some(mut party) = login {
            line.log_in(party.as_mut()).await?;
        }
        if let Some((technique, shared)) = technique {
            let keys = Keys::new(technique, shared)?;
            line.say(keys.public()).await?;
            line.hear().await?;
            line.guard = Some(keys.meet(end, &line.coming)?);
        }
        Ok(line)
    }

    async fn log_in(&mut self, party: &mut dyn Party) -> Result<(), DriverError> {
        if let Some(words) = party.begin() {
            self.say(&words).await?;
        }
        loop {
            self.hear().await?;
            let reply = party.hear(&self.coming)?;
            if let Some(say) = reply.say {
                self.say(&say).await?;
            }
            if reply.is_done {
                return Ok(());
            }
        }
    }

    async fn say(&mut self, words: &[u8]) -> Result<(), DriverError> {
        self.going.clear();
        self.going.extend_from_slice(words);
        self.write().await
    }

    async fn hear(&mut self) -> Result<(), DriverError> {
        read_frame(&mut self.stream, &mut self.coming).await
    }

    /// Writes the frame in `going`.
    async fn write(&mut self) -> Result<(), DriverError> {
        let length = u32::try_from(self.going.len()).map_err(failed)?;
        self.going.splice(..0, length.to_be_bytes());
        self.stream.write_all(&self.going).await?;
        Ok(())
    }

    async fn send(&mut self, content: &[u8]) -> Result<(), DriverError> {
        self.going.clear();
        self.going.extend_from_slice(content);
        if let Some(guard) = &mut self.guard {
            guard.protect(&mut self.going)?;
        }
        self.write().await
    }

    /// The next message, checked.
    async fn take(&mut self) -> Result<&[u8], DriverError> {
        read_frame(&mut self.stream, &mut self.coming).await?;
        match &mut self.guard {
            Some(guard) => Ok(guard.check(&mut self.coming)?),
            None => Ok(&self.coming),
        }
    }
}

/// An agent that asks.
pub(crate) struct Caller {
    address: SocketAddr,
    /// The agent's end of the login, before the first contact.
    login: Option<Box<dyn Party>>,
    technique: Option<(Technique, Shared)>,
    line: Option<Line>,
}

impl Caller {
    async fn call(&mut self) -> Result<Line, DriverError> {
        let stream = TcpStream::connect(self.address).await?;
        Line::begin(stream, End::Asking, self.login.take(), self.technique).await
    }
}

impl Sender for Caller {
    async fn send(&mut self, _content: &[u8]) -> Result<(), DriverError> {
        Err(failed("this driver only asks"))
    }

    async fn flush(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    async fn ask(&mut self, content: &[u8]) -> Result<bool, DriverError> {
        let mut line = match self.line.take() {
            Some(line) => line,
            None => self.call().await?,
        };
        line.send(content).await?;
        let is_same = line.take().await? == content;
        self.line = Some(line);
        Ok(is_same)
    }
}

/// The receiver's side of the logins.
#[derive(Clone)]
enum Door {
    Password(Arc<Accounts>),
    Certificate(Arc<Certified>),
}

impl Door {
    fn party(&self) -> Result<Box<dyn Party>, NotBelieved> {
        match self {
            Self::Password(accounts) => accounts.party(),
            Self::Certificate(own) => own.clone().answering(),
        }
    }
}

/// The connections of a process.
pub(crate) struct Techniques;

impl System for Techniques {
    type Sender = Caller;

    async fn prepare(
        order: &Prepare,
        received: Arc<Received>,
    ) -> Result<Prepared<Self>, DriverError> {
        let settings: Settings = serde_json::from_value(order.system.clone()).map_err(failed)?;
        let scenario = &order.scenario;
        if (scenario.kind, scenario.shape) != (Kind::RoundTrip, Shape::ManyToOne) {
            return Err(failed("this driver plays round trips to one receiver"));
        }
        let (senders, here) = match order.role {
            Role::Send => (call(order, &settings).await?, Value::Null),
            Role::Receive | Role::Both => {
                let here = listen(order, &settings, received).await?;
                (Vec::new(), serde_json::to_value(here).map_err(failed)?)
            }
        };
        Ok(Prepared {
            system: Self,
            senders,
            here,
            client: "tokio, aws-lc-rs".to_owned(),
        })
    }

    fn meet(&mut self, _there: &Value) -> Result<(), DriverError> {
        Ok(())
    }

    async fn leave(self) {}
}

/// Makes the agents, and connects them unless that is a part of what is measured.
async fn call(order: &Prepare, settings: &Settings) -> Result<Vec<Caller>, DriverError> {
    let there: Here = serde_json::from_value(order.there.clone()).map_err(failed)?;
    let mut callers = Vec::new();
    for number in 0..order.scenario.senders {
        let login: Option<Box<dyn Party>> = match (settings.login, &there.authority) {
            (None, _) => None,
            (Some(Login::Password), _) => {
                let password = password(&there.shared, number);
                Some(Box::new(Password::new(name(number), password)?))
            }
            (Some(Login::Certificate(_)), Some(authority)) => {
                Some(authority.certify(&name(number))?.asking()?)
            }
            (Some(Login::Certificate(_)), None) => return Err(failed("there is no authority")),
        };
        let mut caller = Caller {
            address: there.address,
            login,
            technique: settings.message.map(|it| (it, there.shared)),
            line: None,
        };
        if !order.scenario.first_contact {
            caller.line = Some(caller.call().await?);
        }
        callers.push(caller);
    }
    Ok(callers)
}

/// Answers every agent that proves itself.
async fn listen(
    order: &Prepare,
    settings: &Settings,
    received: Arc<Received>,
) -> Result<Here, DriverError> {
    let mut shared = Shared::default();
    SystemRandom::new().fill(&mut shared).map_err(failed)?;
    let mut authority = None;
    let door = match settings.login {
        None => None,
        Some(Login::Password) => {
            let mut accounts = Accounts::default();
            for number in 0..order.scenario.senders {
                accounts.add(name(number), &password(&shared, number))?;
            }
            Some(Door::Password(Arc::new(accounts)))
        }
        Some(Login::Certificate(algorithm)) => {
            let own = authority.insert(Authority::create(algorithm)?);
            Some(Door::Certificate(own.certify("server")?))
        }
    };
    let technique = settings.message.map(|it| (it, shared));
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (door, received) = (door.clone(), received.clone());
            // The task ends when the agent goes, or is refused. Missing answers are counted.
            tokio::spawn(async move {
                let login = door.map(|door| door.party()).transpose()?;
                let line = Line::begin(stream, End::Answering, login, technique).await?;
                answer(line, &received).await
            });
        }
    });
    Ok(Here {
        address,
        shared,
        authority,
    })
}

async fn answer(mut line: Line, received: &Received) -> Result<(), DriverError> {
    let mut content = Vec::new();
    loop {
        content.clear();
        content.extend_from_slice(line.take().await?);
        line.send(&content).await?;
        received.answered.fetch_add(1, Ordering::Relaxed);
    }
}

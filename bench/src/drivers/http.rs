//! Agents of Sealbus on two platforms, each a process with its gateway, over FIPA's message transport for HTTP or IIOP. JADE
//! may take the place of either side.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealbus_bench_driver::{Kind, Prepare, Role, Shape};
use sealbus_bus::{Bus, BusConfig};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_gateways::{Gateway, GatewayConfig, GatewayRule, IiopConfig, KnownPlatform};
use sealbus_seal::PlatformName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::drivers::sealbus::{Speaker, Writing, answer};
use crate::drivers::stage::{DriverError, Prepared, Received, System, failed};

/// The platform of the agents that ask, and the platform of those that answer.
const SENDERS: &str = "senders";
const RECEIVERS: &str = "receivers";

#[derive(Deserialize)]
struct Settings {
    /// How messages are encoded: `string`, `xml`, `bitefficient`.
    encoding: String,
    /// How envelopes are encoded over HTTP: `xml`, `bitefficient`.
    envelope: Option<String>,
    /// Over IIOP in place of HTTP.
    #[serde(default)]
    iiop: bool,
}

/// A platform as the other side knows it.
#[derive(Serialize, Deserialize)]
struct Platform {
    platform: String,
    /// The address of its gateway.
    address: String,
}

/// The agents of a platform.
pub(crate) struct Agents {
    gateway: Arc<Gateway>,
    /// The gateway's own mailbox, and the agents that answer.
    running: Vec<tokio::task::JoinHandle<()>>,
}

impl System for Agents {
    type Sender = Speaker;

    async fn prepare(
        order: &Prepare,
        received: Arc<Received>,
    ) -> Result<Prepared<Self>, DriverError> {
        let scenario = &order.scenario;
        if (scenario.kind, scenario.shape) != (Kind::RoundTrip, Shape::OneToOne) {
            return Err(failed(
                "between platforms couples of agents do round trips only",
            ));
        }
        let settings: Settings = serde_json::from_value(order.system.clone()).map_err(failed)?;
        let (here, there) = match order.role {
            Role::Receive => (RECEIVERS, SENDERS),
            Role::Send => (SENDERS, RECEIVERS),
            Role::Both => return Err(failed("two platforms are two processes")),
        };
        let platform = PlatformName::new(here).map_err(failed)?;
        let bus = Bus::new(BusConfig::new(platform), tokio::runtime::Handle::current());
        let name = format!("gateway@{here}");
        let (outbox, mut mailbox) = bus.attach(&name, None, None).map_err(failed)?;
        let at = usize::from(settings.iiop);
        let gateway = Gateway::open(config(there, settings), Arc::new(outbox))
            .await
            .map_err(failed)?;
        let gateway = Arc::new(gateway);
        let reader = gateway.clone();
        let mut running = vec![tokio::spawn(async move {
            while let Some(received) = mailbox.recv().await {
                reader.notice(received).await;
            }
        })];
        let mut senders = Vec::new();
        if order.role == Role::Receive {
            for number in 0..scenario.receivers {
                let name = format!("receiver-{number}@{here}");
                let (outbox, mailbox) = bus.attach(&name, None, None).map_err(failed)?;
                let answering = answer(mailbox, received.clone(), outbox, Writing::Text);
                running.push(tokio::spawn(answering));
            }
        } else {
            let there: Platform = serde_json::from_value(order.there.clone()).map_err(failed)?;
            for number in 0..scenario.senders {
                let name = format!("sender-{number}@{here}");
                let (outbox, mailbox) = bus.attach(&name, None, None).map_err(failed)?;
                let receiver = format!("receiver-{number}@{}", there.platform);
                let receiver = Aid::new(receiver).map_err(failed)?;
                senders.push(Speaker {
                    outbox,
                    mailbox,
                    sample: AclMessage::new(Performative::Inform)
                        .with_sender(Aid::new(&name).map_err(failed)?)
                        .with_receiver(receiver.with_address(&there.address)),
                    last: None,
                    writing: Writing::Text,
                    channel: None,
                });
            }
        }
        let address = gateway.addresses().get(at).cloned();
        let here = Platform {
            platform: here.to_owned(),
            address: address.ok_or_else(|| failed("the gateway has no address"))?,
        };
        Ok(Prepared {
            here: serde_json::to_value(here).map_err(failed)?,
            system: Self { gateway, running },
            senders,
            client: format!("Sealbus {}", env!("CARGO_PKG_VERSION")),
        })
    }

    /// Nothing to do: the asking side names the address for answers.
    fn meet(&mut self, _there: &Value) -> Result<(), DriverError> {
        Ok(())
    }

    async fn leave(self) {
        for task in &self.running {
            task.abort();
        }
        drop(self.gateway);
    }
}

/// The default configuration, but open to the other platform and with the measured encoding.
fn config(there: &str, settings: Settings) -> GatewayConfig {
    let known = KnownPlatform {
        encoding: Some(settings.encoding),
        envelope: settings.envelope,
        ..KnownPlatform::default()
    };
    let rule = GatewayRule {
        platform: there.to_owned(),
        to: vec!["*".to_owned()],
        // Both platforms are on this machine.
        from: vec!["127.0.0.1".to_owned()],
        certificate: None,
        register: false,
    };
    GatewayConfig {
        platforms: BTreeMap::from([(there.to_owned(), known)]),
        allow: vec![rule],
        iiop: settings.iiop.then(IiopConfig::default),
        ..GatewayConfig::default()
    }
}

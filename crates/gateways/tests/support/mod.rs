//! A platform of one process with a gateway.

#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{Bus, BusConfig, Mailbox, MailboxLimits, Outbox, ReceivedMessage};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_gateways::{Gateway, GatewayConfig, GatewayRule, IiopConfig};
use sealbus_seal::PlatformName;
use tokio::runtime::Handle;

/// No test waits longer than this. A smaller value would make no test faster.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Platform {
    pub(crate) name: String,
    pub(crate) bus: Bus,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) address: String,
    notices: tokio::task::JoinHandle<()>,
}

impl Drop for Platform {
    fn drop(&mut self) {
        self.notices.abort();
    }
}

/// All platforms of these tests are on this machine.
pub(crate) fn allow(platform: &str, to: &str) -> GatewayRule {
    GatewayRule {
        platform: platform.to_owned(),
        to: vec![to.to_owned()],
        from: vec!["127.0.0.1".to_owned()],
        certificate: None,
        register: false,
    }
}

/// Everybody may write to everybody.
pub(crate) fn open_to_all() -> GatewayConfig {
    GatewayConfig {
        allow: vec![allow("*", "*")],
        ..GatewayConfig::default()
    }
}

impl Platform {
    pub(crate) async fn new(name: &str, config: GatewayConfig) -> Self {
        let bus = Bus::new(
            BusConfig::new(PlatformName::new(name).unwrap()),
            Handle::current(),
        );
        let (outbox, mut mailbox) = bus.attach(&format!("gateway@{name}"), None, None).unwrap();
        let gateway = Gateway::open(config, Arc::new(outbox)).await.unwrap();
        let gateway = Arc::new(gateway);
        let reader = gateway.clone();
        let notices = tokio::spawn(async move {
            while let Some(received) = mailbox.recv().await {
                assert!(reader.notice(received).await);
            }
        });
        Self {
            name: name.to_owned(),
            address: gateway.addresses()[0].clone(),
            bus,
            gateway,
            notices,
        }
    }

    pub(crate) fn agent(&self, local: &str) -> (Outbox, Mailbox) {
        let limits = MailboxLimits::default();
        self.bus
            .attach(&format!("{local}@{}", self.name), None, Some(limits))
            .unwrap()
    }

    /// The identifier of an agent of this platform, as others know it.
    pub(crate) fn aid(&self, local: &str) -> Aid {
        Aid::new(format!("{local}@{}", self.name))
            .unwrap()
            .with_address(&self.address)
    }
}

pub(crate) fn inform(receiver: Aid, content: &str) -> AclMessage {
    AclMessage::new(Performative::Inform)
        .with_receiver(receiver)
        .with_conversation_id("talk")
        .with_reply_with("tag")
        .with_content(content)
}

pub(crate) async fn receive(mailbox: &mut Mailbox) -> ReceivedMessage {
    tokio::time::timeout(PATIENCE, mailbox.recv())
        .await
        .expect("a message is due")
        .expect("the mailbox is open")
}

pub(crate) async fn content(mailbox: &mut Mailbox) -> String {
    let received = receive(mailbox).await;
    let message = received.message();
    message.content_text().unwrap().into_owned()
}

/// Opens IIOP beside HTTP.
pub(crate) fn with_iiop(config: GatewayConfig) -> GatewayConfig {
    GatewayConfig {
        iiop: Some(IiopConfig::default()),
        ..config
    }
}

/// The reference by which others reach a platform.
pub(crate) fn ior(platform: &Platform) -> String {
    let addresses = platform.gateway.addresses();
    assert!(addresses[1].starts_with("IOR:") && addresses[2].starts_with("corbaloc::127.0.0.1:"));
    addresses[1].clone()
}

pub(crate) fn aid_at(platform: &Platform, local: &str, address: &str) -> Aid {
    let name = format!("{local}@{}", platform.name);
    Aid::new(name).unwrap().with_address(address)
}

pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

/// A platform with IIOP that everybody may write to.
pub(crate) async fn two() -> Platform {
    Platform::new("two", with_iiop(open_to_all())).await
}

//! Direct messages that are signed on a platform at `auth`.

use sealbus_bus::{Delivery, SendError};
use sealbus_fipa::Expression;
use sealbus_seal::SecurityLevel;

use super::check_elsewhere;
use super::support::proxy::Proxy;
use super::support::{Platform, inform, soon};

/// Signed messages among others, short and long, for two receivers, over connections that break.
#[tokio::test]
async fn signed_messages_keep_their_place_among_others() {
    const MESSAGES: u32 = 600;
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let proxy = Proxy::to(there.endpoint.local_address()).await;
    let (sender, _mailbox) = platform.agent(&here, "sender@factory");
    let names = ["first@factory", "second@factory"];
    let mut receivers = names.map(|name| platform.agent_behind(&there, name, proxy.address));
    let is_signed = |number: u32| number.is_multiple_of(3) || number % 50 > 40;
    let talk = async {
        for number in 0..MESSAGES {
            let length = if number % 20 < 2 { 200_000 } else { 10 };
            for name in names {
                let said = inform(name, format!("{number} {}", "x".repeat(length)));
                let delivery = match is_signed(number) {
                    true => Delivery::default().at_level(SecurityLevel::Signed),
                    false => Delivery::default(),
                };
                sender.send_with(said, delivery).await.unwrap();
            }
            if number % 100 == 60 {
                proxy.cut();
            }
        }
    };
    let listen = async {
        for number in 0..MESSAGES {
            for (name, (_, mailbox)) in names.iter().zip(&mut receivers) {
                let message = mailbox.recv().await.unwrap();
                let text = message.message().content_text().unwrap().into_owned();
                assert!(
                    text.starts_with(&format!("{number} ")),
                    "{number}: {text:.20}"
                );
                match is_signed(number) {
                    true => drop(check_elsewhere(&platform.authority, name, &message)),
                    false => assert_eq!(message.provenance().as_str(), "proved"),
                }
            }
        }
    };
    soon(async { tokio::join!(talk, listen) }).await;
    assert_eq!(there.bus.refusals().total(), 0);
}

#[tokio::test]
async fn a_level_that_a_message_cannot_have_is_refused_by_name() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let (sender, _mailbox) = platform.agent(&here, "sender@factory");
    for (level, why) in [
        (
            SecurityLevel::Tls,
            "level=tls would be weaker than level=auth",
        ),
        (SecurityLevel::Sealed, "mesh cannot give level=sealed"),
    ] {
        let delivery = Delivery::default().at_level(level);
        let sent = sender
            .send_with(inform("nobody@factory", 1), delivery)
            .await;
        let error = sent.unwrap_err();
        assert!(matches!(error, SendError::Level { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let top = Expression::Word("top".to_owned());
    let unknown = inform("nobody@factory", 1).with_user_defined("x-sealbus-level", top);
    let error = sender.send(unknown).await.unwrap_err();
    assert!(
        error.to_string().contains("unknown security level"),
        "{error}"
    );
}

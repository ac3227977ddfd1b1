//! Two processes that accept messages of different lengths.

use sealbus_bus::{Mailbox, Outbox};
use sealbus_fipa::Performative;
use sealbus_seal::SecurityLevel;

use crate::support::{Platform, inform, soon};

/// The text of the error with which a message is refused, or of the notice that it did not arrive.
async fn refused(sender: &Outbox, answers: &mut Mailbox, to: &str, content: &str) -> String {
    match sender.send(inform(to, content)).await {
        Err(error) => error.to_string(),
        Ok(_) => {
            let told = soon(answers.recv()).await.unwrap().into_message();
            assert_eq!(told.performative, Performative::Failure);
            told.content_text().unwrap().to_owned()
        }
    }
}

#[tokio::test]
async fn what_the_other_process_does_not_take_is_refused_and_holds_nothing_up() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform
        .process_with("node-2", |config| config.largest_message = 100_000)
        .await;
    let (alice, mut answers) = platform.agent(&here, "alice@factory");
    let (bob, mut mailbox) = platform.agent(&there, "bob@factory");
    let long = "x".repeat(200_000);
    // Before the other process has told its limit, and after.
    for number in 0..3 {
        let told = refused(&alice, &mut answers, "bob@factory", &long).await;
        assert!(told.contains("100000"), "{told}");
        let said = number.to_string();
        alice.send(inform("bob@factory", &said)).await.unwrap();
        let heard = soon(mailbox.recv()).await.unwrap().into_message();
        assert_eq!(heard.content_text(), Some(&*said));
    }
    // The other process does not send longer messages either.
    let told = refused(&bob, &mut mailbox, "alice@factory", &long).await;
    assert!(told.contains("100000"), "{told}");
    let refusals = |process: &crate::support::Process| process.bus.refusals().total();
    assert_eq!((refusals(&here), refusals(&there)), (0, 0));
}

//! Messages from agent to agent.

use std::collections::HashSet;

use bytes::Bytes;
use sealbus_fipa::{AclMessage, Aid, Performative, bitefficient};

use super::{Failure, Outcome, World, check, content, inform, name, next, number, soon, until};
use sealbus_bus::Outbox;
use sealbus_bus::RefusalReason;
use sealbus_bus::{Bus, Returned};
use sealbus_bus::{Mailbox, MailboxLimits};
use sealbus_bus::{Provenance, ReceivedMessage};
use sealbus_bus::{SendError, TrySendError, UndeliverableReason};

/// Sends `count` numbered messages, some of which go in pieces: by turns one after the other, and many at once.
async fn send_all(outbox: &Outbox, receiver: &str, count: u64) -> Outcome {
    let mut numbers = (0..count).peekable();
    while numbers.peek().is_some() {
        for number in numbers.by_ref().take(100) {
            let message = inform(receiver, content(number))?;
            soon("room for a message", outbox.send(message)).await??;
        }
        let row = numbers.by_ref().take(150);
        let row = row.map(|number| inform(receiver, content(number)));
        let row: Vec<AclMessage> = row.collect::<Result<_, _>>()?;
        soon("room for many messages", outbox.send_many(row)).await??;
    }
    Ok(())
}

/// Receives them, in order.
async fn receive_all(mailbox: &mut Mailbox, count: u64) -> Outcome {
    for expected in 0..count {
        let received = next(mailbox).await?;
        let found = number(&received)?;
        check(found == expected, || {
            format!("message {found} came where {expected} was due")
        })?;
        let length = received.message().content_text().unwrap_or_default().len();
        check(length == content(expected).len(), || {
            format!("message {expected} came with {length} bytes")
        })?;
    }
    Ok(())
}

pub(super) async fn order(world: &dyn World) -> Outcome {
    const MESSAGES: u64 = 2_000;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|local| name(world, local));
    let (from_alice, mut at_alice) = world.attach(0, &alice, None).await;
    let (from_bob, mut at_bob) = world.attach(1, &bob, None).await;
    let (from_carol, _at_carol) = world.attach(2, &carol, None).await;
    // In both directions, and from two at a time to one.
    let to_bob = async {
        let mut due = [0_u64; 2];
        for _ in 0..2 * MESSAGES {
            let received = next(&mut at_bob).await?;
            let found = number(&received)?;
            let is_alice = received
                .message()
                .sender()
                .is_some_and(|sender| *sender.name() == *alice);
            let due = &mut due[usize::from(is_alice)];
            check(found == *due, || {
                format!("message {found} came where {due} was due")
            })?;
            *due += 1;
        }
        Ok(())
    };
    let (one, two, three, four, five) = tokio::join!(
        send_all(&from_alice, &bob, MESSAGES),
        send_all(&from_carol, &bob, MESSAGES),
        to_bob,
        send_all(&from_bob, &alice, MESSAGES),
        receive_all(&mut at_alice, MESSAGES),
    );
    one.and(two).and(three).and(four).and(five)
}

pub(super) async fn receivers(world: &dyn World) -> Outcome {
    let sender = name(world, "sender");
    let (outbox, _own) = world.attach(0, &sender, None).await;
    let mut mailboxes = Vec::new();
    let mut message = AclMessage::new(Performative::Inform).with_sender(Aid::new(&*sender)?);
    for index in 0..6 {
        let receiver = name(world, &format!("receiver-{index}"));
        mailboxes.push(world.attach(index % 3, &receiver, None).await);
        message = message.with_receiver(Aid::new(receiver)?);
    }
    for number in 0..100 {
        let message = message.clone().with_content(content(number));
        soon("room for a message", outbox.send(message)).await??;
    }
    for (_, mailbox) in &mut mailboxes {
        receive_all(mailbox, 100).await?;
        check(mailbox.is_empty(), || "a message came twice".to_owned())?;
    }
    Ok(())
}

pub(super) async fn resume(world: &dyn World) -> Outcome {
    const MESSAGES: u64 = 3_000;
    let [alice, bob] = ["alice", "bob"].map(|local| name(world, local));
    let (from_alice, mut at_alice) = world.attach(0, &alice, None).await;
    let (from_bob, mut at_bob) = world.attach(1, &bob, None).await;
    let talking = async {
        let (one, two, three, four) = tokio::join!(
            send_all(&from_alice, &bob, MESSAGES),
            send_all(&from_bob, &alice, MESSAGES),
            receive_all(&mut at_bob, MESSAGES),
            receive_all(&mut at_alice, MESSAGES),
        );
        one.and(two).and(three).and(four)
    };
    super::while_breaking(world, talking).await
}

/// An agent that reads nothing, with a mailbox for a few hundred messages.
async fn lazy(world: &dyn World, process: usize, local: &str) -> (String, Outbox, Mailbox) {
    let limits = MailboxLimits {
        messages: 500,
        bytes: 200_000,
    };
    let lazy = name(world, local);
    let (outbox, mailbox) = world.attach(process, &lazy, Some(limits)).await;
    (lazy, outbox, mailbox)
}

/// Sends to an agent that does not read, until there is no room for good. Returns the number of messages taken.
async fn fill(outbox: &Outbox, receiver: &str) -> Result<u64, Failure> {
    let mut sent = 0;
    let mut refused_in_a_row = 0;
    while refused_in_a_row < 50 {
        let text = format!("{sent} {}", "x".repeat(300));
        match outbox.try_send(inform(receiver, text)?) {
            Ok(()) => {
                sent += 1;
                refused_in_a_row = 0;
            }
            Err(TrySendError::Full(_)) => {
                refused_in_a_row += 1;
                tokio::time::sleep(std::time::Duration::from_millis(4)).await;
            }
            Err(error) => return Err(error.into()),
        }
        // Bytes on the way count against limits, so the bound is wide. Without a bound the loop would never end.
        check(sent < 100_000, || {
            "100000 messages were accepted for an agent that reads none".to_owned()
        })?;
    }
    Ok(sent)
}

pub(super) async fn push_back(world: &dyn World) -> Outcome {
    let alice = name(world, "alice");
    let (from_alice, _at_alice) = world.attach(0, &alice, None).await;
    let (lazy, _from_lazy, mut at_lazy) = lazy(world, 1, "lazy").await;
    let sent = fill(&from_alice, &lazy).await?;
    // Once the agent reads, it gets all messages, and the waiting sender continues.
    let waiting = async {
        let last = inform(&lazy, sent)?;
        soon("room once it reads", from_alice.send(last)).await??;
        Ok(())
    };
    let reading = async {
        for expected in 0..=sent {
            let found = number(&next(&mut at_lazy).await?)?;
            check(found == expected, || {
                format!("message {found} came where {expected} was due")
            })?;
        }
        Ok(())
    };
    let (one, two) = tokio::join!(waiting, reading);
    one.and(two)
}

pub(super) async fn push_back_alone(world: &dyn World) -> Outcome {
    let [alice, busy] = ["alice", "busy"].map(|local| name(world, local));
    let (from_alice, _at_alice) = world.attach(0, &alice, None).await;
    let (lazy, _from_lazy, _at_lazy) = lazy(world, 1, "lazy").await;
    let (_from_busy, mut at_busy) = world.attach(1, &busy, None).await;
    fill(&from_alice, &lazy).await?;
    let (one, two) = tokio::join!(
        send_all(&from_alice, &busy, 1_000),
        receive_all(&mut at_busy, 1_000)
    );
    one.and(two)
}

pub(super) async fn crash(world: &dyn World) -> Outcome {
    const MESSAGES: u64 = 400;
    let [alice, bob] = ["alice", "bob"].map(|local| name(world, local));
    let (from_alice, mut at_alice) = world.attach(0, &alice, None).await;
    let (_from_bob, mut at_bob) = world.attach(1, &bob, None).await;
    let mut arrived = HashSet::new();
    for number in 0..MESSAGES {
        if number == MESSAGES / 2 {
            world.kill(1).await;
        }
        let message = inform(&bob, number)?.with_reply_with(number.to_string());
        soon("room for a message", from_alice.send(message)).await??;
        while let Some(received) = at_bob.try_recv() {
            arrived.insert(super::number(&received)?);
        }
    }
    let mut back = HashSet::new();
    soon("word of each message that did not arrive", async {
        while (0..MESSAGES).any(|number| !arrived.contains(&number) && !back.contains(&number)) {
            let received = tokio::select! {
                received = at_alice.recv() => received,
                () = tokio::time::sleep(std::time::Duration::from_millis(10)) => {
                    while let Some(received) = at_bob.try_recv() {
                        arrived.insert(super::number(&received)?);
                    }
                    continue;
                }
            };
            let Some(received) = received else {
                return Err(Failure::new("the sender's mailbox was closed"));
            };
            let (_, number) = failure(&received)?;
            back.insert(number);
        }
        Ok(())
    })
    .await?
}

pub(super) async fn unread(world: &dyn World) -> Outcome {
    const MESSAGES: u64 = 20;
    const READ: u64 = 5;
    let [alice, bob] = ["alice", "bob"].map(|local| name(world, local));
    let (from_alice, mut at_alice) = world.attach(0, &alice, None).await;
    let (from_bob, mut at_bob) = world.attach(1, &bob, None).await;
    for number in 0..MESSAGES {
        let message = inform(&bob, number)?.with_reply_with(number.to_string());
        soon("room for a message", from_alice.send(message)).await??;
    }
    until("the messages' arrival", || {
        (at_bob.len() as u64 == MESSAGES).then_some(())
    })
    .await?;
    for _ in 0..READ {
        next(&mut at_bob).await?;
    }
    // With this, the transport also tells what has arrived.
    soon("room for a message", from_bob.send(inform(&alice, 0)?)).await??;
    next(&mut at_alice).await?;
    world.kill(1).await;
    let mut back = HashSet::new();
    while (READ..MESSAGES).any(|number| !back.contains(&number)) {
        let (_, number) = failure(&next(&mut at_alice).await?)?;
        back.insert(number);
    }
    Ok(())
}

/// The text of a failure notice, and the number of its message, from `:in-reply-to`.
fn failure(received: &ReceivedMessage) -> Result<(String, u64), Failure> {
    let message = received.message();
    check(message.performative() == Performative::Failure, || {
        "a message that is not a failure notice".to_owned()
    })?;
    // Messages that an ended agent left at a broker come back through the platform's agent.
    let is_ams = message
        .sender()
        .is_some_and(|sender| sender.name().starts_with("ams@"));
    check(
        matches!(received.provenance(), Provenance::Platform)
            || is_ams && !matches!(received.provenance(), Provenance::Foreign(_)),
        || "a failure notice that is not the platform's own".to_owned(),
    )?;
    let about = message
        .in_reply_to()
        .and_then(|about| about.text()?.parse().ok())
        .ok_or_else(|| Failure::new("a failure notice that does not say of which message"))?;
    Ok((
        message.content_text().unwrap_or_default().into_owned(),
        about,
    ))
}

pub(super) async fn moving(world: &dyn World) -> Outcome {
    const MESSAGES: u64 = 3_000;
    let [alice, bob] = ["alice", "bob"].map(|local| name(world, local));
    let (from_alice, _at_alice) = world.attach(0, &alice, None).await;
    let (from_bob, at_bob) = world.attach(1, &bob, None).await;
    let receiving = async {
        let (mut outbox, mut mailbox) = (from_bob, at_bob);
        let mut place = 1;
        for expected in 0..MESSAGES {
            if expected % 500 == 200 {
                let to = if place == 1 { 2 } else { 1 };
                let unread = mailbox.drain();
                drop(outbox);
                (outbox, mailbox) = world.move_to(place, to, &bob, unread).await;
                place = to;
            }
            let found = number(&next(&mut mailbox).await?)?;
            check(found == expected, || {
                format!("message {found} came where {expected} was due")
            })?;
        }
        Ok(())
    };
    let (one, two) = tokio::join!(send_all(&from_alice, &bob, MESSAGES), receiving);
    one.and(two)
}

pub(super) async fn comes_back(world: &dyn World) -> Outcome {
    let [alice, bob] = ["alice", "bob"].map(|local| name(world, local));
    let nobody = name(world, "nobody");
    let (from_alice, mut at_alice) = world.attach(0, &alice, None).await;
    let (_from_bob, mut at_bob) = world.attach(1, &bob, None).await;
    let message = inform(&nobody, 1)?.with_reply_with("1");
    soon("an answer", from_alice.send(message)).await??;
    let (why, about) = failure(&next(&mut at_alice).await?)?;
    check(about == 1 && why.contains(&nobody), || {
        format!("the notice does not name {nobody}: {why}")
    })?;
    // Another agent leaves while messages to it are under way.
    let message = inform(&bob, 2)?;
    soon("room for a message", from_alice.send(message)).await??;
    next(&mut at_bob).await?;
    world.bus(1).detach(&bob);
    drop(at_bob);
    let message = inform(&bob, 3)?.with_reply_with("3");
    soon("room for a message", from_alice.send(message)).await??;
    let (why, about) = failure(&next(&mut at_alice).await?)?;
    check(about == 3 && why.contains(&bob), || {
        format!("the notice does not name {bob}: {why}")
    })
}

fn refusals(bus: &Bus, reason: RefusalReason) -> u64 {
    let counts = bus.refusals().counts();
    counts
        .iter()
        .find(|(found, _)| *found == reason)
        .map_or(0, |(_, count)| *count)
}

pub(super) async fn forged_sender(world: &dyn World) -> Outcome {
    let [alice, eve, bob] = ["alice", "eve", "bob"].map(|local| name(world, local));
    let (_from_alice, _at_alice) = world.attach(1, &alice, None).await;
    let (from_eve, _at_eve) = world.attach(0, &eve, None).await;
    let (_from_bob, mut at_bob) = world.attach(1, &bob, None).await;
    let forged = inform(&bob, 1)?.with_sender(Aid::new(&*alice)?);
    let sent = from_eve.send(forged.clone()).await;
    check(matches!(sent, Err(SendError::ForgedSender { .. })), || {
        format!("her own bus lets her: {sent:?}")
    })?;
    // Eve goes around the bus, as a program that speaks the protocol itself can.
    let mut payload = Vec::new();
    bitefficient::encode(&forged, &mut payload)?;
    let letter = Returned {
        sender: from_eve.agent().clone(),
        payload: Bytes::from(payload),
    };
    world.bus(0).returned(&bob, vec![letter], false, || {});
    let there = world.bus(1);
    until("the refusal", || {
        (refusals(there, RefusalReason::ForgedSender) > 0).then_some(())
    })
    .await?;
    let noted = there.refusals().last();
    let noted = noted
        .iter()
        .find(|noted| noted.reason == RefusalReason::ForgedSender)
        .ok_or_else(|| Failure::new("the refusal is counted and not noted"))?;
    check(noted.tried_by == alice || noted.tried_by == eve, || {
        format!("it is noted as tried by {}", noted.tried_by)
    })?;
    let eves = format!("agent/{}", "eve");
    let says_eve = |text: &str| text.contains(&eves) || text.contains(&*eve);
    check(
        noted.proved.as_deref().is_some_and(says_eve) || says_eve(&noted.explanation),
        || format!("it does not say that it was {eve}: {noted:?}"),
    )?;
    // An honest message after it arrives. The forged message never does.
    soon("room", from_eve.send(inform(&bob, 2)?)).await??;
    let found = number(&next(&mut at_bob).await?)?;
    check(found == 2, || "the forged message arrived".to_owned())
}

pub(super) async fn revoked_sender(world: &dyn World) -> Outcome {
    let [mallory, alice, bob] = ["mallory", "alice", "bob"].map(|local| name(world, local));
    let (from_mallory, _at_mallory) = world.attach(0, &mallory, None).await;
    let (from_alice, _at_alice) = world.attach(0, &alice, None).await;
    let (_from_bob, mut at_bob) = world.attach(1, &bob, None).await;
    soon("room", from_mallory.send(inform(&bob, 0)?)).await??;
    next(&mut at_bob).await?;
    world.revoke(&mallory).await;
    // The message is refused here or there. It must not arrive, and the refusal must be noted.
    let _ = from_mallory.send(inform(&bob, 1)?).await;
    let buses = [world.bus(0), world.bus(1)];
    until("the refusal", || {
        buses
            .iter()
            .any(|bus| refusals(bus, RefusalReason::Revoked) > 0)
            .then_some(())
    })
    .await?;
    let named = buses
        .iter()
        .flat_map(|bus| bus.refusals().last())
        .any(|noted| noted.reason == RefusalReason::Revoked && noted.tried_by == mallory);
    check(named, || "it is not noted who it was".to_owned())?;
    // Others on the same connections go on.
    soon("room", from_alice.send(inform(&bob, 2)?)).await??;
    let found = number(&next(&mut at_bob).await?)?;
    check(found == 2, || {
        format!("message {found} of a revoked agent arrived")
    })
}

pub(super) async fn size_limit(world: &dyn World) -> Outcome {
    let [alice, bob] = ["alice", "bob"].map(|local| name(world, local));
    let (from_alice, mut at_alice) = world.attach(0, &alice, None).await;
    let (_from_bob, mut at_bob) = world.attach(1, &bob, None).await;
    let limit = match world.bus(0).transport() {
        Some(transport) => transport.capabilities().largest_message,
        // Nothing is encoded, so nothing limits it but memory.
        None => 64 << 20,
    };
    let of_length = |content: usize| -> Result<AclMessage, Failure> {
        Ok(inform(&bob, "x".repeat(content))?
            .with_sender(Aid::new(&*alice)?)
            .with_reply_with("7"))
    };
    let mut encoded = Vec::new();
    bitefficient::encode(&of_length(limit / 2)?, &mut encoded)?;
    let rest = limit - (encoded.len() - limit / 2);
    // The first message also opens the way, which judges a larger message.
    soon(
        "room for the largest message",
        from_alice.send(of_length(rest)?),
    )
    .await??;
    let received = next(&mut at_bob).await?;
    let length = received.message().content_text().unwrap_or_default().len();
    check(length == rest, || {
        format!("{length} bytes of {rest} arrived")
    })?;
    if world.bus(0).transport().is_none() {
        return Ok(());
    }
    let said = match soon("an answer", from_alice.send(of_length(rest + 1)?)).await? {
        Err(SendError::Impossible {
            reason: UndeliverableReason::TooLarge { size, limit },
            ..
        }) => format!("{size} {limit}"),
        Err(error) => return Err(error.into()),
        // Accepted on the way to where it is judged.
        Ok(()) => failure(&next(&mut at_alice).await?)?.0,
    };
    check(said.contains(&limit.to_string()), || {
        format!("the limit of {limit} bytes is not named: {said}")
    })?;
    soon("room", from_alice.send(inform(&bob, 5)?)).await??;
    let found = number(&next(&mut at_bob).await?)?;
    check(found == 5, || "the next message did not arrive".to_owned())
}

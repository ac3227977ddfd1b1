//! Agents on channels: events, messages, questions to everyone, filters and hooks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealbus::acl::Expression;
use sealbus::channel::{ChannelError, ChannelEvent, Mechanism, PublishError, SubscribeError};
use sealbus::{AclMessage, Agent, AgentResult, Context, Performative, agent, run};

/// A limit against endless waits.
const LONG: Duration = Duration::from_secs(120);

type Heard = Arc<Mutex<Vec<String>>>;

/// Listens with its hooks, and answers questions about tea.
struct Shop {
    heard: Heard,
    price: Option<&'static str>,
}

impl Agent for Shop {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let cheap = context
            .subscribe("/offers/**")?
            .filter("properties.price < 10");
        context.listen(cheap)?;
        let questions = context.subscribe("/wanted/tea")?.only_requests();
        context.listen(questions)?;
        let ready = context.channel("/ready")?;
        ready
            .send("buyer", AclMessage::new(Performative::Inform))
            .await?;
        Ok(())
    }

    async fn on_event(&mut self, context: &mut Context, event: ChannelEvent) -> AgentResult {
        let line = format!("{}: {event}: {}", context.name(), event.text()?);
        if let Ok(mut heard) = self.heard.lock() {
            heard.push(line);
        }
        if matches!(event.mechanism(), Mechanism::Message { .. }) {
            context
                .reply(&event, Performative::Confirm, "noted")
                .await?;
        }
        Ok(())
    }

    async fn on_question(&mut self, context: &mut Context, question: ChannelEvent) -> AgentResult {
        match self.price {
            Some(price) => {
                context
                    .answer(&question, Performative::Propose, price)
                    .await?;
                let again = context.answer(&question, Performative::Propose, "1").await;
                assert_eq!(again, Err(PublishError::NotAsked));
            }
            None => context.decline(&question),
        }
        Ok(())
    }
}

struct Buyer;

fn offer(text: &str, price: i64) -> AclMessage {
    let mut message = AclMessage::new(Performative::Inform).with_content(text);
    message.user_defined = vec![("X-price".to_owned(), Expression::from(price))];
    message
}

impl Agent for Buyer {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let mut ready = context.subscribe("/ready")?.open()?;
        for name in ["shop-1", "shop-2", "shop-3"] {
            let shop = Shop {
                heard: HEARD.clone(),
                price: (name != "shop-3").then_some("9 EUR"),
            };
            context.spawn(name, shop).await?;
            assert!(tokio::time::timeout(LONG, ready.next()).await?.is_some());
        }

        let offers = context.channel("sealbus:priority=7:///offers/tea/")?;
        assert_eq!(offers.qos().priority.get(), 7);
        assert_eq!(offers.publish(offer("too dear", 12)).await?.here, 0);
        assert_eq!(offers.publish(offer("cheap", 7)).await?.here, 3);
        offers.send("shop-2", offer("for you", 8)).await?;
        let nobody = offers.send("nobody", offer("hello?", 8)).await;
        assert!(matches!(nobody, Err(PublishError::NotOnChannel { .. })));
        let noted = context.receive_within(Performative::Confirm, LONG).await?;
        assert!(noted.sender_name().starts_with("shop-2@"));

        let wanted = context.channel("/wanted/tea")?;
        let call = AclMessage::new(Performative::Cfp).with_content("10 kg");
        let answers = wanted.request(call, LONG).await?.all().await;
        let mut names: Vec<_> = answers
            .replies
            .iter()
            .map(|reply| reply.sender_name())
            .collect();
        names.sort_unstable();
        assert!(names[0].starts_with("shop-1@") && names[1].starts_with("shop-2@"));
        assert!(answers.missing[0].starts_with("shop-3@"));
        assert!(answers.replies[0].provenance().is_trusted());

        let wrong = context
            .subscribe("/offers/**")?
            .filter("properties.price <")
            .open();
        assert!(matches!(wrong, Err(SubscribeError::Filter(error)) if error.column == 19));
        assert!(matches!(
            context.channel("/offers/*"),
            Err(ChannelError::Path(_))
        ));
        let durable = context.channel("cia:level=sealed://a@de/offers/");
        assert!(matches!(durable, Err(ChannelError::Unavailable(_))));
        context.stop_all();
        Ok(())
    }
}

static HEARD: std::sync::LazyLock<Heard> = std::sync::LazyLock::new(Heard::default);

#[test]
fn agents_talk_on_channels() -> Result<(), Box<dyn std::error::Error>> {
    run([agent("buyer", Buyer)])?;
    let mut heard = HEARD.lock().map_err(|_| "poisoned")?.clone();
    heard.sort();
    let expected = [
        "shop-1: event on /offers/tea: inform from buyer@home: cheap",
        "shop-2: event on /offers/tea: inform from buyer@home: cheap",
        "shop-2: message on /offers/tea: inform from buyer@home: for you",
        "shop-3: event on /offers/tea: inform from buyer@home: cheap",
    ];
    assert_eq!(heard, expected);
    Ok(())
}

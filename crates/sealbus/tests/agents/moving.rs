//! Agents that move: their hooks on a real platform, with an injected wish to move them.
// Longer than 500 lines: its tests share one move, made by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sealbus::channel::{Channel, Replay};
use sealbus::process::AgentHandle;
use sealbus::{
    AclMessage, Agent, AgentResult, Context, Message, Performative, Platform, RunError, Voice,
    agent,
};
use sealbus_control::attachment::{AttachmentAnswer, AttachmentRequest};
use sealbus_control::host::{Command, Host, Membership};
use sealbus_control::{Fault, FrozenAgent};
use sealbus_master::embedded::EmbeddedPlatform;
use sealbus_process::attachment::part_of;
use sealbus_seal::PlatformName;
use tokio::sync::{mpsc, oneshot};

/// The host of an embedded platform. The test decides what the node says and hands over.
struct Moving {
    host: Arc<dyn Host>,
    membership: Membership,
    inheritance: Vec<FrozenAgent>,
    commands: Mutex<Option<mpsc::Receiver<Command>>>,
}

impl Moving {
    fn new(
        platform: &EmbeddedPlatform,
        inheritance: Vec<FrozenAgent>,
    ) -> (Arc<Moving>, mpsc::Sender<Command>) {
        let (tell, commands) = mpsc::channel(4);
        let host = platform.host();
        let mut membership = host.membership().clone();
        membership.inherits = !inheritance.is_empty();
        (
            Arc::new(Moving {
                host,
                membership,
                inheritance,
                commands: Mutex::new(Some(commands)),
            }),
            tell,
        )
    }
}

impl Host for Moving {
    fn membership(&self) -> &Membership {
        &self.membership
    }
    fn answer(&self, request: AttachmentRequest) -> BoxFuture<'_, Result<AttachmentAnswer, Fault>> {
        if let AttachmentRequest::Inherit { index } = request {
            let bytes = serde_json::to_vec(&self.inheritance).unwrap();
            let part = part_of(&bytes, index).unwrap();
            return Box::pin(async { Ok(part.into()) });
        }
        self.host.answer(request)
    }
    fn commands(&self) -> Option<mpsc::Receiver<Command>> {
        self.commands.lock().unwrap().take()
    }
}

/// Adds up the numbers it receives, and reports its sum. After the first few, it waits until the wish to move comes.
struct Adder {
    sum: u64,
    taken: u64,
    restored: bool,
    movable: bool,
}

impl Adder {
    fn new(movable: bool) -> Adder {
        Adder {
            sum: 0,
            taken: 0,
            restored: false,
            movable,
        }
    }
}

impl Agent for Adder {
    async fn setup(&mut self, _: &mut Context) -> AgentResult {
        assert!(!self.restored);
        Ok(())
    }

    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        match message.performative {
            Performative::QueryRef => {
                context
                    .reply(&message, Performative::Inform, self.sum.to_string())
                    .await?;
            }
            _ => {
                if !self.restored && self.taken == FEW {
                    // Messages pile up meanwhile.
                    context.handle().wishes().wished().await;
                }
                self.taken += 1;
                self.sum += message.text()?.parse::<u64>()?;
            }
        }
        Ok(())
    }

    async fn save(&mut self, _: &mut Context) -> AgentResult<Vec<u8>> {
        if !self.movable {
            return Err("it holds a lock".into());
        }
        Ok(self.sum.to_be_bytes().to_vec())
    }

    async fn restore(&mut self, context: &mut Context, state: Vec<u8>) -> AgentResult {
        self.restored = true;
        self.sum = u64::from_be_bytes(state.as_slice().try_into()?);
        let moved = AclMessage::new(Performative::Confirm).with_receiver(context.peer("asker")?);
        context.send(moved.with_content(context.name())).await?;
        Ok(())
    }
}

const NUMBERS: std::ops::RangeInclusive<u64> = 1..=50;
/// The numbers that an agent takes before it waits for the wish to move.
const FEW: u64 = 10;

/// Adds up the numbers in handlers beside its hooks. All but the first few take until the wish to move comes.
struct Crew {
    sum: Arc<Mutex<u64>>,
    under_way: Arc<AtomicU64>,
}

impl Crew {
    fn new() -> Crew {
        Crew {
            sum: Arc::default(),
            under_way: Arc::default(),
        }
    }

    /// Begins. Once it is restored, no number waits for a wish.
    fn work(&self, context: &mut Context, is_restored: bool) {
        let (sum, under_way) = (self.sum.clone(), self.under_way.clone());
        let wishes = context.handle().wishes();
        context.on(Performative::Inform, 4, move |_, message| {
            let (sum, under_way) = (sum.clone(), under_way.clone());
            let wishes = wishes.clone();
            async move {
                under_way.fetch_add(1, Ordering::SeqCst);
                let number: u64 = message.text()?.parse()?;
                if !is_restored && number > FEW {
                    wishes.wished().await;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                *sum.lock().unwrap() += number;
                under_way.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        });
        let sum = self.sum.clone();
        context.on(
            Performative::QueryRef,
            1,
            move |voice: Voice, question: Message| {
                let sum = sum.lock().unwrap().to_string();
                async move {
                    voice.reply(&question, Performative::Inform, sum).await?;
                    Ok(())
                }
            },
        );
    }
}

impl Agent for Crew {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        self.work(context, false);
        Ok(())
    }

    async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
        panic!("{message} is for a handler");
    }

    async fn save(&mut self, _: &mut Context) -> AgentResult<Vec<u8>> {
        assert_eq!(
            self.under_way.load(Ordering::SeqCst),
            0,
            "a handler is at work"
        );
        Ok(self.sum.lock().unwrap().to_be_bytes().to_vec())
    }

    async fn restore(&mut self, context: &mut Context, state: Vec<u8>) -> AgentResult {
        *self.sum.lock().unwrap() = u64::from_be_bytes(state.as_slice().try_into()?);
        self.work(context, true);
        Ok(())
    }
}

/// Runs an agent named `adder` on `platform`, and sends it the numbers from an agent that then leaves.
async fn with_numbers(
    platform: Platform,
    adder: impl Agent,
) -> tokio::task::JoinHandle<Result<(), RunError>> {
    let process = platform.process().clone();
    let asker = process.agent("asker").await.unwrap();
    let adder_name = process.peer("adder").unwrap();
    let running = tokio::spawn(async move { platform.run([agent("adder", adder)]).await });
    while process.bus().agent(&adder_name.name).is_none() {
        tokio::task::yield_now().await;
    }
    for number in NUMBERS {
        let message = AclMessage::new(Performative::Inform)
            .with_receiver(adder_name.clone())
            .with_content(number.to_string());
        asker.send(message).await.unwrap();
    }
    running
}

async fn freeze(tell: &mpsc::Sender<Command>) -> Result<Vec<FrozenAgent>, String> {
    let (answer, answered) = oneshot::channel();
    tell.send(Command::Freeze { answer }).await.unwrap();
    answered.await.unwrap()
}

async fn embedded() -> EmbeddedPlatform {
    EmbeddedPlatform::start(PlatformName::new("home").unwrap())
        .await
        .unwrap()
}

/// Asks the adder for its sum.
async fn sum(context: &mut Context) -> AgentResult<u64> {
    let question = AclMessage::new(Performative::QueryRef).with_receiver(context.peer("adder")?);
    let answer = context.request(question, Duration::from_secs(30)).await?;
    Ok(answer.text()?.parse()?)
}

#[tokio::test]
async fn an_agent_goes_on_elsewhere_with_state_and_mailbox() {
    // When the wish to move comes, the adder has read only some of the numbers.
    let here = embedded().await;
    let (host, tell) = Moving::new(&here, Vec::new());
    let platform = Platform::open(host, Some(here.bus())).await.unwrap();
    let running = with_numbers(platform, Adder::new(true)).await;
    let frozen = freeze(&tell).await.unwrap();
    assert_eq!(frozen.len(), 1);
    assert!(!frozen[0].mailbox.is_empty());
    let so_far = u64::from_be_bytes(frozen[0].state.0.as_slice().try_into().unwrap());
    assert!(so_far < NUMBERS.sum::<u64>());
    tell.send(Command::Stop {
        grace: Duration::from_secs(5),
        reason: "moved".to_owned(),
    })
    .await
    .unwrap();
    running.await.unwrap().unwrap();

    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            assert_eq!(
                context.receive(Performative::Confirm).await?.text()?,
                "adder"
            );
            assert_eq!(sum(context).await?, NUMBERS.sum::<u64>());
            context.stop_all();
            Ok(())
        }
    }
    let there = embedded().await;
    let (host, _tell) = Moving::new(&there, frozen);
    let platform = Platform::open(host, Some(there.bus())).await.unwrap();
    platform
        .run([agent("asker", Asker), agent("adder", Adder::new(true))])
        .await
        .unwrap();
}

/// Handlers that are at work end before the state is saved. Each of the other messages goes along, to one handler.
#[tokio::test]
async fn handlers_take_every_message_once_over_a_move() {
    let here = embedded().await;
    let (host, tell) = Moving::new(&here, Vec::new());
    let platform = Platform::open(host, Some(here.bus())).await.unwrap();
    let running = with_numbers(platform, Crew::new()).await;
    let frozen = freeze(&tell).await.unwrap();
    let so_far = u64::from_be_bytes(frozen[0].state.0.as_slice().try_into().unwrap());
    assert!(so_far < NUMBERS.sum::<u64>());
    tell.send(Command::Stop {
        grace: Duration::from_secs(5),
        reason: "moved".to_owned(),
    })
    .await
    .unwrap();
    running.await.unwrap().unwrap();

    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            while sum(context).await? != NUMBERS.sum::<u64>() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            context.stop_all();
            Ok(())
        }
    }
    let there = embedded().await;
    let (host, _tell) = Moving::new(&there, frozen);
    let platform = Platform::open(host, Some(there.bus())).await.unwrap();
    platform
        .run([agent("asker", Asker), agent("adder", Crew::new())])
        .await
        .unwrap();
}

#[tokio::test]
async fn an_agent_that_cannot_be_saved_goes_on_where_it_is() {
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            assert_eq!(sum(context).await?, NUMBERS.sum::<u64>());
            context.stop_all();
            Ok(())
        }
    }
    let here = embedded().await;
    let (host, tell) = Moving::new(&here, Vec::new());
    let platform = Platform::open(host, Some(here.bus())).await.unwrap();
    let process = platform.process().clone();
    let running = with_numbers(platform, Adder::new(false)).await;
    let reason = freeze(&tell).await.unwrap_err();
    assert_eq!(reason, "adder cannot be moved: it holds a lock");
    assert_eq!(process.end(), None);
    let (host, _tell) = Moving::new(&here, Vec::new());
    let beside = Platform::open(host, Some(here.bus())).await.unwrap();
    beside.run([agent("asker", Asker)]).await.unwrap();
    process.stop("the test is over");
    running.await.unwrap().unwrap();
}

/// Reads a durable subscription in a task beside its hooks. Its state is the texts that the task has read.
struct Reader {
    read: Arc<Mutex<Vec<String>>>,
    /// The events that were marked as repetitions.
    again: Arc<Mutex<Vec<String>>>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Reader {
    fn new() -> Reader {
        Reader {
            read: Arc::default(),
            again: Arc::default(),
            task: None,
        }
    }

    fn listen(&mut self, context: &Context) -> AgentResult {
        let mut subscription = context
            .subscribe("/numbers")?
            .durable("all")
            .since(Replay::Last(u64::MAX))
            .open()?;
        let (read, again) = (self.read.clone(), self.again.clone());
        self.task = Some(tokio::spawn(async move {
            while let Some(event) = subscription.next().await {
                let text = event.text().unwrap().to_owned();
                if event.may_be_again() {
                    again.lock().unwrap().push(text.clone());
                }
                read.lock().unwrap().push(text);
            }
        }));
        Ok(())
    }
}

impl Agent for Reader {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        self.listen(context)
    }

    async fn save(&mut self, _: &mut Context) -> AgentResult<Vec<u8>> {
        Ok(self.read.lock().unwrap().join(" ").into_bytes())
    }

    async fn restore(&mut self, context: &mut Context, state: Vec<u8>) -> AgentResult {
        let state = String::from_utf8(state)?;
        let read = state.split_whitespace().map(str::to_owned);
        *self.read.lock().unwrap() = read.collect();
        self.listen(context)
    }
}

async fn publish(writer: &AgentHandle, numbers: std::ops::Range<u32>) {
    let channel = Channel::open(
        writer.outbox().clone(),
        "home",
        "sealbus:persistent,ack=disk:///numbers/",
    )
    .unwrap();
    for number in numbers {
        let event = AclMessage::new(Performative::Inform).with_content(number.to_string());
        channel.publish(event).await.unwrap();
    }
}

async fn until_read(read: &Mutex<Vec<String>>, last: u32) {
    let last = last.to_string();
    while !read.lock().unwrap().contains(&last) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn texts(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn a_task_reads_nothing_of_a_durable_subscription_once_its_agent_is_saved() {
    let home = embedded().await;
    let (host, _tell) = Moving::new(&home, Vec::new());
    let beside = Platform::open(host, Some(home.bus())).await.unwrap();
    let writer = beside.process().agent("writer").await.unwrap();
    let (host, tell) = Moving::new(&home, Vec::new());
    let platform = Platform::open(host, Some(home.bus())).await.unwrap();
    let reader = Reader::new();
    let read = reader.read.clone();
    let running = tokio::spawn(async move { platform.run([agent("reader", reader)]).await });
    publish(&writer, 0..10).await;
    until_read(&read, 9).await;
    // Events keep coming while the agent is moved.
    let frozen = freeze(&tell).await.unwrap();
    publish(&writer, 10..20).await;
    tell.send(Command::Stop {
        grace: Duration::from_secs(5),
        reason: "moved".to_owned(),
    })
    .await
    .unwrap();
    running.await.unwrap().unwrap();
    let saved = String::from_utf8(frozen[0].state.0.clone()).unwrap();
    assert_eq!(read.lock().unwrap().join(" "), saved);

    let (host, _tell) = Moving::new(&home, frozen);
    let platform = Platform::open(host, Some(home.bus())).await.unwrap();
    let process = platform.process().clone();
    let reader = Reader::new();
    let (read, again) = (reader.read.clone(), reader.again.clone());
    let running = tokio::spawn(async move { platform.run([agent("reader", reader)]).await });
    until_read(&read, 19).await;
    assert_eq!(*read.lock().unwrap(), texts(0..20));
    // The node marks the events that it had given out before. None of them is in the carried state.
    assert!(
        again
            .lock()
            .unwrap()
            .iter()
            .all(|text| !saved.split(' ').any(|it| it == text))
    );
    process.stop("the test is over");
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn subscriptions_go_on_after_a_move_that_did_not_come_about() {
    let home = embedded().await;
    let (host, _tell) = Moving::new(&home, Vec::new());
    let beside = Platform::open(host, Some(home.bus())).await.unwrap();
    let writer = beside.process().agent("writer").await.unwrap();
    let (host, tell) = Moving::new(&home, Vec::new());
    let platform = Platform::open(host, Some(home.bus())).await.unwrap();
    let process = platform.process().clone();
    let reader = Reader::new();
    let (read, again) = (reader.read.clone(), reader.again.clone());
    let running = tokio::spawn(async move { platform.run([agent("reader", reader)]).await });
    publish(&writer, 0..5).await;
    until_read(&read, 4).await;
    freeze(&tell).await.unwrap();
    publish(&writer, 5..10).await;
    tell.send(Command::Thaw).await.unwrap();
    until_read(&read, 9).await;
    publish(&writer, 10..15).await;
    until_read(&read, 14).await;
    assert_eq!(*read.lock().unwrap(), texts(0..15));
    assert!(again.lock().unwrap().is_empty());
    process.stop("the test is over");
    running.await.unwrap().unwrap();
}

/// Begins a conversation, and reads it in a task once it may.
struct Talker {
    may_read: Arc<tokio::sync::Notify>,
    read: Arc<Mutex<Vec<String>>>,
}

impl Agent for Talker {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let hello = AclMessage::new(Performative::Request)
            .with_receiver(context.peer("writer")?)
            .with_conversation_id("numbers");
        let talk = context.converse(hello).await?;
        let (may_read, read) = (self.may_read.clone(), self.read.clone());
        tokio::spawn(async move {
            may_read.notified().await;
            while let Ok(message) = talk.receive().await {
                read.lock()
                    .unwrap()
                    .push(message.text().unwrap().to_owned());
            }
        });
        Ok(())
    }

    async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
        panic!("{message} belongs to the conversation");
    }
}

#[tokio::test]
async fn a_conversation_goes_on_after_a_move_that_did_not_come_about() {
    let home = embedded().await;
    let (host, _tell) = Moving::new(&home, Vec::new());
    let beside = Platform::open(host, Some(home.bus())).await.unwrap();
    let mut writer = beside.process().agent("writer").await.unwrap();
    let (host, tell) = Moving::new(&home, Vec::new());
    let platform = Platform::open(host, Some(home.bus())).await.unwrap();
    let process = platform.process().clone();
    let talker = Talker {
        may_read: Arc::default(),
        read: Arc::default(),
    };
    let (may_read, read) = (talker.may_read.clone(), talker.read.clone());
    let running = tokio::spawn(async move { platform.run([agent("talker", talker)]).await });
    let hello = writer.receive().await.unwrap();
    let reply = hello.message().create_reply(Performative::Inform);
    let say = async |numbers: std::ops::Range<u32>| {
        for number in numbers {
            let reply = reply.clone().with_content(number.to_string());
            writer.send(reply).await.unwrap();
        }
    };
    say(0..5).await;
    freeze(&tell).await.unwrap();
    say(5..10).await;
    tell.send(Command::Thaw).await.unwrap();
    may_read.notify_one();
    until_read(&read, 9).await;
    say(10..15).await;
    until_read(&read, 14).await;
    assert_eq!(*read.lock().unwrap(), texts(0..15));
    process.stop("the test is over");
    running.await.unwrap().unwrap();
}

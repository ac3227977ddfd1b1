//! A request of our agents as a task of the neighbour, followed to its end.

use std::sync::Arc;
use std::time::Duration;

use sealbus::acl::AclMessageRef;
use sealbus::body::{Body, BodyError, WrittenBody};
use sealbus::tool::Parts;
use sealbus::{
    AclMessage, AgentResult, Failure, Message, NotUnderstood, Performative, Refuse, Voice,
    new_conversation_id,
};
use serde_json::{Value, json};

use super::answer::{AnswerError, Part, Told, body};
use super::asker::Asker;
use super::card::Card;
use super::error::RemoteError;
use super::remote::{KnownNeighbour, Remote};
use super::stream::AnswerStream;
use super::task::{End, Following, News};
use crate::acl::{self, ACL};
use crate::extensions::{DELEGATION, chain_data};
use crate::lines;

/// The parameter with which messages tell who the neighbour is, and by what proof.
pub(super) const NEIGHBOUR_PARAMETER: &str = "X-Sealbus-Neighbour";
/// How long one who asked may think about a question.
pub(super) const THINKING: Duration = Duration::from_secs(3_600);
/// A task that tells nothing new for so long is given up.
const SILENCE: Duration = Duration::from_secs(3_600);
/// How often a broken stream is taken up again, and the first pause before that. Each pause is twice as long as the last.
const MOST_BREAKS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(250);
/// Pauses between two questions about a task that has no stream.
const SHORTEST_POLL: Duration = Duration::from_millis(100);
const LONGEST_POLL: Duration = Duration::from_secs(5);
/// Most bytes of parts that are kept for one who takes none.
const MOST_KEPT: usize = 8 << 20;

/// A part for one who asked.
pub(super) struct Given(WrittenBody);

impl Body for Given {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        Ok(self.0.clone())
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        let message = message.to_owned();
        let language = message.language.as_ref().and_then(|it| it.as_str());
        Ok(Self(WrittenBody {
            language: language.map(str::to_owned),
            content: message.content.unwrap_or_else(|| String::new().into()),
            ontology: None,
        }))
    }
}

/// How often in a row a task broke off before anything was told of it.
#[derive(Default)]
struct Breaks(u32);

impl Breaks {
    /// The pause before the task is followed again. None if nothing broke, or too often.
    fn pause<T>(&mut self, told: &Result<Option<T>, RemoteError>) -> Option<Duration> {
        match told {
            Ok(Some(_)) => self.0 = 0,
            Err(error) if error.is_break() && self.0 < MOST_BREAKS => {
                let pause = PAUSE * 2_u32.pow(self.0);
                self.0 += 1;
                return Some(pause);
            }
            _ => {}
        }
        None
    }
}

/// The neighbour's word to a request, as an error of the agent's handler.
fn failed(error: &RemoteError) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        RemoteError::Fault(fault) if fault.is_about_content => {
            NotUnderstood::new(error.to_string()).into()
        }
        _ => Failure::new(error.to_string()).into(),
    }
}

/// `Message` of A2A with what an agent of ours says.
fn message(said: &Message, task: Option<&str>, context: &str, card: &Card, asker: &Asker) -> Value {
    let mut message = json!({
        "messageId": new_conversation_id(), "role": "ROLE_USER", "parts": [acl::part(said)],
        "metadata": {"sealbus/performative": said.performative.to_string()},
    });
    if card.extensions.contains(&DELEGATION) {
        message["metadata"][DELEGATION] = chain_data(asker.chain());
    }
    if card.extensions.contains(&ACL) {
        message["metadata"][ACL] = acl::write(said, said.provenance(), card.speaks_acl);
    }
    if !card.extensions.is_empty() {
        message["extensions"] = json!(card.extensions);
    }
    if let Some(task) = task {
        message["taskId"] = task.into();
    }
    if !context.is_empty() {
        message["contextId"] = context.into();
    }
    message
}

/// A task of the neighbour. If it is dropped before its end, the neighbour is told to stop.
pub(super) struct NeighbourTask {
    remote: Arc<Remote>,
    known: Arc<KnownNeighbour>,
    asker: Arc<Asker>,
    following: Following,
    stream: Option<AnswerStream>,
    /// It is to be asked for its state before it is followed again.
    is_polled: bool,
}

impl NeighbourTask {
    /// Sends the first message.
    pub(super) async fn open(
        remote: &Arc<Remote>,
        voice: &Voice,
        said: &Message,
    ) -> AgentResult<Self> {
        let known = remote.known().map_err(Failure::new)?;
        let mut task = Self {
            remote: remote.clone(),
            known,
            asker: Arc::new(Asker::of(voice, said)),
            following: Following::default(),
            stream: None,
            is_polled: false,
        };
        task.say(said).await?;
        Ok(task)
    }

    /// The neighbour's address, and the proof of it.
    pub(super) fn proof(&self) -> String {
        let KnownNeighbour { card, proof } = &*self.known;
        format!("A2A {}; {proof}", card.interface.url)
    }

    /// Sends a message of the task, or after its end one of its context.
    pub(super) async fn say(&mut self, said: &Message) -> AgentResult {
        let task = self.following.id().filter(|_| !self.following.has_ended());
        let (card, context) = (&self.known.card, self.following.context());
        let message = message(said, task, context, card, &self.asker);
        if self.following.has_ended() {
            self.following = Following::default();
        }
        let sent = self.remote.send(&self.known, message, &self.asker).await;
        self.stream = Some(sent.map_err(|error| failed(&error))?);
        Ok(())
    }

    /// The next news, at least one.
    pub(super) async fn news(&mut self) -> AgentResult<Vec<News>> {
        let news = tokio::time::timeout(SILENCE, self.next_news()).await;
        match news {
            Ok(Ok(news)) => Ok(news),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(Failure::new(format!("it said nothing for {SILENCE:?}")).into()),
        }
    }

    async fn next_news(&mut self) -> Result<Vec<News>, RemoteError> {
        let (mut breaks, mut poll) = (Breaks::default(), SHORTEST_POLL);
        loop {
            let told = self.next_told(&mut poll).await;
            if self.following.id().is_some()
                && let Some(pause) = breaks.pause(&told)
            {
                self.stream = None;
                tokio::time::sleep(pause).await;
                continue;
            }
            if let Some(told) = told? {
                let news = self.following.take(told)?;
                if !news.is_empty() {
                    return Ok(news);
                }
            }
        }
    }

    /// The next that is told. A task whose stream has ended, or that never had one, is followed again, and asked for its state
    /// in between: a stream that ends at once is no reason to begin another without end.
    async fn next_told(&mut self, poll: &mut Duration) -> Result<Option<Told>, RemoteError> {
        if let Some(stream) = &mut self.stream {
            let told = stream.next().await?;
            if told.is_none() {
                self.stream = None;
            }
            return Ok(told);
        }
        let Some(task) = self.following.id() else {
            let empty = "it ended before anything was said".to_owned();
            return Err(AnswerError::Unreadable(empty).into());
        };
        if self.known.card.streams && !std::mem::replace(&mut self.is_polled, true) {
            match self.remote.subscribe(&self.known, task, &self.asker).await {
                Ok(stream) => {
                    self.stream = Some(stream);
                    return Ok(None);
                }
                // A task that has ended has no stream.
                Err(RemoteError::Fault(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let told = self.remote.get(&self.known, task, &self.asker).await?;
        tokio::time::sleep(*poll).await;
        *poll = (*poll * 2).min(LONGEST_POLL);
        self.is_polled = false;
        Ok(Some(told))
    }
}

impl Drop for NeighbourTask {
    fn drop(&mut self) {
        if self.following.has_ended() {
            return;
        }
        if let (Some(task), Ok(runtime)) = (
            self.following.id().map(str::to_owned),
            tokio::runtime::Handle::try_current(),
        ) {
            let (remote, known) = (self.remote.clone(), self.known.clone());
            let asker = self.asker.clone();
            runtime.spawn(async move {
                if let Err(error) = remote.cancel(&known, &task, &asker).await
                    && let Some(left_out) = lines::admit(remote.host())
                {
                    tracing::info!(%error, left_out, "a neighbour did not stop a task");
                }
            });
        }
    }
}

/// Serves a request.
pub(super) async fn serve(
    remote: Arc<Remote>,
    voice: Voice,
    request: Message,
    parts: Parts<Given>,
) -> AgentResult<Option<WrittenBody>> {
    let work = async {
        let mut task = NeighbourTask::open(&remote, &voice, &request).await?;
        parts.note(NEIGHBOUR_PARAMETER, task.proof());
        work(&mut task, &voice, &request, &parts).await
    };
    match time_left(&request) {
        None => work.await,
        Some(left) => match tokio::time::timeout(left, work).await {
            Ok(done) => done,
            Err(_) => Err(Failure::new("it had not answered when the time was up").into()),
        },
    }
}

/// The time until a message has to be answered.
fn time_left(message: &AclMessage) -> Option<Duration> {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis();
    let now = i64::try_from(now).ok()?;
    let left = message.reply_by.as_ref()?.unix_ms(now).ok()? - now;
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

async fn work(
    task: &mut NeighbourTask,
    voice: &Voice,
    request: &Message,
    parts: &Parts<Given>,
) -> AgentResult<Option<WrittenBody>> {
    let mut kept = KeptParts::default();
    loop {
        for news in task.news().await? {
            match news {
                News::Begun => parts.begin().await?,
                News::Part(part) if parts.are_taken() => parts.give(&Given(part.body())).await?,
                News::Part(part) => kept.add(part)?,
                News::Progress(text) => parts.progress(0.0, text).await?,
                News::Asked(text) => {
                    let answer = ask(task, voice, request, text).await?;
                    task.say(&answer).await?;
                }
                News::Ended(End::Completed(said)) => return Ok(kept.result(said)),
                News::Ended(end) => return Err(end_error(end)),
            }
        }
    }
}

/// Puts a question of the neighbour to the one who asked.
async fn ask(
    task: &NeighbourTask,
    voice: &Voice,
    request: &Message,
    text: String,
) -> AgentResult<Message> {
    let mut question = request
        .create_reply(Performative::QueryRef)
        .with_user_defined(NEIGHBOUR_PARAMETER, task.proof());
    WrittenBody::from(text).put_into(&mut question);
    let unanswered = |why: String| Failure::new(format!("it asked something back, and {why}"));
    let answer = voice.request(question, THINKING).await;
    let answer = answer.map_err(|error| unanswered(error.to_string()))?;
    match answer.performative {
        Performative::Refuse | Performative::Failure | Performative::NotUnderstood => {
            let who = answer.sender_name();
            Err(unanswered(format!("{who} said {}", answer.performative)).into())
        }
        _ => Ok(answer),
    }
}

pub(super) fn end_error(end: End) -> Box<dyn std::error::Error + Send + Sync> {
    let or = |text: String, otherwise: &str| {
        if text.is_empty() {
            otherwise.to_owned()
        } else {
            text
        }
    };
    match end {
        End::Rejected(why) => Refuse::new(or(why, "no reason given")).into(),
        End::Failed(why) => Failure::new(or(why, "no reason given")).into(),
        End::Canceled(why) => Failure::new(format!(
            "it cancelled the task: {}",
            or(why, "no reason given")
        ))
        .into(),
        End::AuthRequired(why) => Failure::new(format!(
            "it wants a login: {}",
            or(why, "it did not say which")
        ))
        .into(),
        End::Completed(_) => Failure::new("it has ended").into(),
    }
}

/// The parts for one who takes none.
#[derive(Default)]
struct KeptParts {
    parts: Vec<Part>,
    bytes: usize,
}

impl KeptParts {
    fn add(&mut self, part: Part) -> AgentResult {
        self.bytes += part.bytes();
        if self.bytes > MOST_KEPT {
            let why = "its result has more than 8 MiB: ask for it in parts";
            return Err(Failure::new(why).into());
        }
        self.parts.push(part);
        Ok(())
    }

    /// The result of a task that ended with these words, which count if no part came.
    fn result(self, said: Vec<Part>) -> Option<WrittenBody> {
        body(if self.parts.is_empty() {
            said
        } else {
            self.parts
        })
    }
}

/// The result of a call for proposals, or of the order after it.
enum WorkOutcome {
    /// The neighbour asks, and goes on when it is answered.
    Asks(WrittenBody),
    Done(WrittenBody),
}

async fn outcome(task: &mut NeighbourTask) -> AgentResult<WorkOutcome> {
    let mut kept = KeptParts::default();
    loop {
        for news in task.news().await? {
            match news {
                News::Begun | News::Progress(_) => {}
                News::Part(part) => kept.add(part)?,
                News::Asked(text) => {
                    let said = body(kept.parts).unwrap_or_else(|| text.into());
                    return Ok(WorkOutcome::Asks(said));
                }
                News::Ended(End::Completed(said)) => {
                    let result = kept.result(said);
                    let result = result.unwrap_or_else(|| String::new().into());
                    return Ok(WorkOutcome::Done(result));
                }
                News::Ended(end) => return Err(end_error(end)),
            }
        }
    }
}

/// Takes part in a contract net: the task's result, or its question, is the proposal; the order is the next message.
pub(super) async fn bid(remote: Arc<Remote>, voice: Voice, call: Message) -> AgentResult {
    let mut talk = voice.participate(&call)?;
    let mut task = match NeighbourTask::open(&remote, &voice, &call).await {
        Ok(task) => task,
        Err(error) => return Ok(talk.answer(Performative::Refuse, error.to_string()).await?),
    };
    let proof = task.proof();
    let said = |performative, body: WrittenBody| {
        let mut message =
            AclMessage::new(performative).with_user_defined(NEIGHBOUR_PARAMETER, proof.as_str());
        body.put_into(&mut message);
        message
    };
    let offered = tokio::select! {
        offered = outcome(&mut task) => offered,
        // Told to stop, or too late.
        _ = talk.next() => return Ok(()),
    };
    let (WorkOutcome::Asks(offer) | WorkOutcome::Done(offer)) = match offered {
        Ok(offered) => offered,
        Err(error) => {
            let refusal = said(Performative::Refuse, error.to_string().into());
            return Ok(talk.send(refusal).await?);
        }
    };
    talk.send(said(Performative::Propose, offer)).await?;
    let Some(decision) = talk.next().await? else {
        return Ok(());
    };
    if decision.performative != Performative::AcceptProposal {
        return Ok(());
    }
    let ordered = async {
        task.say(&decision).await?;
        outcome(&mut task).await
    };
    let done = tokio::select! {
        done = ordered => done,
        cancel = talk.next() => {
            if cancel?.is_some() {
                talk.answer_cancel(Performative::Inform, "").await?;
            }
            return Ok(());
        }
    };
    let last = match done {
        Ok(WorkOutcome::Done(result)) => said(Performative::Inform, result),
        Ok(WorkOutcome::Asks(_)) => {
            let why = "it asked something back after the order";
            said(Performative::Failure, why.into())
        }
        Err(error) => said(Performative::Failure, error.to_string().into()),
    };
    Ok(talk.send(last).await?)
}

#[cfg(test)]
mod tests {
    use sealbus_web::WebError;

    use super::*;

    #[test]
    fn a_silent_task_that_is_still_there_is_not_given_up() {
        let slow = || Err::<Option<()>, RemoteError>(WebError::Slow(PAUSE).into());
        let mut breaks = Breaks::default();
        // Each time the stream is silent, and the task still at work when it is asked for.
        for _ in 0..100 {
            assert_eq!(breaks.pause(&slow()), Some(PAUSE));
            assert_eq!(breaks.pause(&Ok(None::<()>)), None);
            assert_eq!(breaks.pause(&slow()), Some(PAUSE * 2));
            assert_eq!(breaks.pause(&Ok(Some(()))), None);
        }
        let pauses = std::iter::from_fn(|| breaks.pause(&slow()));
        assert_eq!(pauses.count(), MOST_BREAKS as usize);
        let other = Err::<Option<()>, RemoteError>(RemoteError::Flood);
        assert_eq!(Breaks::default().pause(&other), None);
    }
}

//! The work of a task: a conversation with the agent, followed to its end. A cancelled task sends `cancel` to the
//! agent.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealbus::acl::Expression;
use sealbus::protocol::ProtocolError;
use sealbus::tool::Step;
use sealbus::trace::TraceContext;
use sealbus::{AclMessage, LEAVING_PARAMETER, Message, Performative, Voice};
use sealbus_callers::said::Said;
use sealbus_callers::schema::Language;
use sealbus_callers::{about, shown};
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::card::media_type;
use crate::catalogue::{Exposed, PROTOCOL, Skill};
use crate::input::{Input, choose};
use crate::log::{Change, Log, State};
use crate::tasks::{Task, Tasks};
use crate::wire::LONGEST_TEXT;

/// A task ends if its agent says nothing for this time, or if its caller leaves a question unanswered for this time.
const SILENCE: Duration = Duration::from_secs(3_600);

/// How long an agent may be away that does not get a message, or was told to stop.
const RETURN: Duration = Duration::from_secs(60);
/// How long an agent may be away after the gateway has started.
const START: Duration = Duration::from_secs(600);
/// How often an agent is asked.
const MOST_ATTEMPTS: u32 = 8;

/// A task and the parts of its work.
pub(crate) struct Work {
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) task: Arc<Task>,
    /// The caller's answers to the agent's questions.
    pub(crate) answers: mpsc::Receiver<String>,
}

/// The wish of a caller.
pub(crate) enum Wish {
    /// A skill, with its input.
    Skill(Skill, Input),
    /// A conversation, which begins with this message. The caller takes whole messages, or their acts alone.
    Talk(Box<AclMessage>, bool),
}

impl Work {
    /// Asks the agent of a new task.
    pub(crate) fn begin(
        tasks: &Arc<Tasks>,
        task: &Arc<Task>,
        agent: Arc<Exposed>,
        wish: Wish,
        trace: Option<TraceContext>,
    ) {
        task.put_to_work(|answers| {
            // Boxed, because each future around it would hold it twice: there may be thousands.
            let work = Box::pin(Self::new(tasks, task, answers).run(agent, wish));
            async move {
                match trace {
                    Some(trace) => trace.carry(work).await,
                    None => work.await,
                }
            }
        });
    }

    /// Asks the agent once more, because it or the gateway has started anew.
    pub(crate) fn again(tasks: &Arc<Tasks>, task: &Arc<Task>, agent: Arc<Exposed>) {
        let attempt = task.read(Log::attempt);
        if attempt >= MOST_ATTEMPTS {
            let why = format!("the agent or the gateway ended {attempt} times during the work");
            tasks.enter(task, State::Failed, Some(&why));
            return;
        }
        if task.opening.is_talk {
            let why = "the agent or the gateway began anew: begin another conversation";
            tasks.enter(task, State::Failed, Some(why));
            return;
        }
        let chosen = task.opening.request().and_then(|request| {
            let (skill, input) = choose(&agent, &request)?;
            Ok((skill.clone(), input))
        });
        let (skill, input) = match chosen {
            Ok(chosen) => chosen,
            Err(fault) => {
                tasks.enter(task, State::Failed, Some(&fault.message()));
                return;
            }
        };
        tasks.change(task, &Change::Again);
        task.put_to_work(|answers| {
            let work = Self::new(tasks, task, answers);
            async move {
                work.end(&agent, attempt).await;
                Box::pin(work.run(agent, Wish::Skill(skill, input))).await;
            }
        });
    }

    /// Waits for the agent of a task of an earlier run of the gateway.
    pub(crate) fn wait(tasks: &Arc<Tasks>, task: &Arc<Task>) {
        task.put_to_work(|answers| {
            let work = Self::new(tasks, task, answers);
            async move { work.wait_for_return(START, "the agent is away").await }
        });
    }

    fn new(tasks: &Arc<Tasks>, task: &Arc<Task>, answers: mpsc::Receiver<String>) -> Self {
        let (tasks, task) = (tasks.clone(), task.clone());
        Self {
            tasks,
            task,
            answers,
        }
    }

    /// Ends the conversation of an earlier attempt: an agent that is still at work there stops, and what it says is
    /// ignored.
    async fn end(&self, agent: &Exposed, attempt: u32) {
        let cancel = AclMessage::new(Performative::Cancel)
            .with_receiver(agent.aid.clone())
            .with_protocol(PROTOCOL)
            .with_conversation_id(self.task.conversation(attempt));
        if let Err(error) = self.tasks.caller.voice.converse(cancel).await {
            tracing::debug!(%error, "an earlier attempt was not cancelled");
        }
    }

    /// The task fails unless the agent is there again in time. Then other work takes the place of this one.
    async fn wait_for_return(&self, time: Duration, why: &str) {
        tokio::select! {
            () = self.task.until(State::is_terminal) => {}
            () = tokio::time::sleep(time) => self.enter(State::Failed, Some(why)),
        }
    }

    /// Asks the agent, and follows its messages until the task ends.
    async fn run(mut self, agent: Arc<Exposed>, wish: Wish) {
        let (task, tasks) = (self.task.clone(), self.tasks.clone());
        let chain = task.opening.chain(tasks.caller.voice.platform());
        let work = chain.carry(async {
            match wish {
                Wish::Skill(skill, input) => Box::pin(self.ask(&agent, &skill, input)).await,
                Wish::Talk(opening, is_whole) => {
                    Box::pin(self.talk(&agent, *opening, is_whole, SILENCE)).await
                }
            }
        });
        let ended = tokio::select! {
            biased;
            // Dropping the work tells the agent.
            () = task.until(State::is_terminal) => return,
            ended = work => ended,
        };
        match ended {
            Ok(()) => {}
            // The gateway is told to stop, and the task goes on when it starts again. Or the caller was revoked.
            Err(ProtocolError::Receive(_)) => tokio::select! {
                () = task.until(State::is_terminal) => {}
                () = tasks.caller.revoked() => {
                    tasks.enter(&task, State::Failed, Some("the caller was revoked"));
                }
            },
            Err(ProtocolError::Undeliverable(_)) => {
                self.wait_for_return(RETURN, "the agent is away").await;
            }
            Err(error) => {
                let (state, text) = failure(&error);
                if is_farewell(&error) {
                    return self.wait_for_return(RETURN, &text).await;
                }
                tasks.enter(&task, state, Some(&text));
            }
        }
    }

    pub(crate) fn enter(&self, state: State, text: Option<&str>) {
        let text = text.map(|text| shown(text, LONGEST_TEXT));
        let text = text.as_deref().filter(|text| !text.is_empty());
        self.tasks.enter(&self.task, state, text);
    }

    pub(crate) fn add(&self, part: &Value, is_whole: bool) {
        if let Ok(part) = to_raw_value(part) {
            self.tasks
                .change(&self.task, &Change::Part { part, is_whole });
        }
    }

    async fn ask(
        &mut self,
        agent: &Exposed,
        skill: &Skill,
        input: Input,
    ) -> Result<(), ProtocolError> {
        let voice = self.tasks.caller.voice.clone();
        let asking = sealbus_callers::ask(&voice, &agent.aid, input.body, input.language);
        let mut asking = match asking {
            Ok(asking) => asking.timeout(SILENCE),
            Err(error) => {
                self.enter(State::Rejected, Some(&error.to_string()));
                return Ok(());
            }
        };
        if let Some(ontology) = &skill.ontology {
            asking = asking.tool(ontology.clone());
        }
        for (name, value) in self.task.names() {
            asking = asking.parameter(name, Expression::String(value));
        }
        let conversation = self.task.conversation(self.task.read(Log::attempt));
        let mut answer = asking.conversation(conversation).stream::<Said>().await?;
        let mut has_parts = false;
        while let Some(step) = answer.step().await? {
            match step {
                Step::Agreed => self.has_begun(),
                Step::Part(part) => {
                    self.has_begun();
                    has_parts = true;
                    self.add(&part_of(part, skill.says), false);
                }
                Step::Progress(progress) => {
                    let text = format!("{:.0} %: {}", progress.done * 100.0, progress.text);
                    self.enter(State::Working, Some(&text));
                }
                Step::Asked(question) => self.put(&voice, &question).await?,
                _ => {}
            }
        }
        if let Some(reply) = answer.reply() {
            let said = Said::in_message(reply);
            if let (Some(MESSAGE), Ok(text)) = (said.ontology(), reply.text()) {
                let (text, about) = (text.to_owned(), about(reply));
                self.tasks.change(&self.task, &Change::Say { text, about });
                return Ok(());
            }
            if !has_parts && reply.content.is_some() {
                let part = part_of(said, skill.says);
                self.add(&part, true);
            }
            let about = about(reply);
            self.tasks.change(&self.task, &Change::Complete { about });
        }
        Ok(())
    }

    /// The agent has begun.
    pub(crate) fn has_begun(&self) {
        if self.task.state() == State::Submitted {
            self.enter(State::Working, None);
        }
    }

    /// Passes a question of the agent to the caller, and the caller's answer to the agent.
    async fn put(&mut self, voice: &Voice, question: &Message) -> Result<(), ProtocolError> {
        // An answer without a question is ignored.
        while self.answers.try_recv().is_ok() {}
        let text = words(question, State::InputRequired);
        self.enter(State::InputRequired, Some(text));
        let heard = tokio::time::timeout(SILENCE, self.answers.recv()).await;
        let Ok(Some(heard)) = heard else {
            self.enter(State::Failed, Some("nobody answered the agent's question"));
            return Ok(());
        };
        Ok(voice.reply(question, Performative::Inform, heard).await?)
    }
}

/// Whether the agent says no more than that it is told to stop. The platform may start it again.
fn is_farewell(error: &ProtocolError) -> bool {
    matches!(error, ProtocolError::TurnedDown { reply } if reply.user_defined_value(LEAVING_PARAMETER).is_some())
}

/// The state of a task whose agent ended the conversation.
fn failure(error: &ProtocolError) -> (State, String) {
    let (state, text) = match error {
        ProtocolError::TurnedDown { reply } => {
            let state = match reply.performative {
                Performative::Refuse | Performative::NotUnderstood => State::Rejected,
                _ => State::Failed,
            };
            (state, words(reply, state).to_owned())
        }
        other => (State::Failed, other.to_string()),
    };
    (state, shown(&text, LONGEST_TEXT))
}

/// The words of an agent with which its task enters a state, or others if it has none.
pub(crate) fn words(message: &Message, state: State) -> &str {
    let said = message.text().ok().filter(|text| !text.is_empty());
    said.unwrap_or(match state {
        State::InputRequired => "The agent asks.",
        _ => "no reason given",
    })
}

/// The ontology of a text that is the answer itself, and no result of a task.
const MESSAGE: &str = "a2a-message";
/// The ontology of a message whose content is a part of A2A, in JSON.
const PART: &str = "a2a-part";

/// The content of an agent's message, as a part.
fn part_of(said: Said, language: Language) -> Value {
    let is_part = said.ontology() == Some(PART);
    match (language, said.value(language)) {
        (_, Value::Object(part)) if is_part && is_whole(&part) => part.into(),
        (Language::Bytes, Value::String(bytes)) => {
            json!({"raw": bytes, "mediaType": media_type(language)})
        }
        (_, Value::String(text)) => {
            json!({"text": text, "mediaType": media_type(Language::Text)})
        }
        (_, value) => json!({"data": value, "mediaType": media_type(Language::Json)}),
    }
}

/// Whether an object is a part: one content, and texts about it.
fn is_whole(part: &Map<String, Value>) -> bool {
    let contents = ["text", "raw", "url", "data"];
    let is_right = |(name, value): (&String, &Value)| match name.as_str() {
        "raw" => value.as_str().is_some_and(|it| STANDARD.decode(it).is_ok()),
        "data" => true,
        "text" | "url" | "filename" | "mediaType" => value.is_string(),
        "metadata" => value.is_object(),
        _ => false,
    };
    contents.iter().filter(|it| part.contains_key(**it)).count() == 1 && part.iter().all(is_right)
}

#[cfg(test)]
mod tests {
    use sealbus::Provenance;
    use sealbus::process::ReceivedMessage;

    use super::*;

    #[test]
    fn an_agent_without_words_asks_or_gives_no_reason() {
        let say = |act: Performative, text: &str| {
            let message = AclMessage::new(act).with_content(text.to_owned());
            Message::new(ReceivedMessage::shared(message.into(), Provenance::Claimed))
        };
        let refused = say(Performative::Refuse, "");
        assert_eq!(words(&refused, State::Rejected), "no reason given");
        let asked = say(Performative::QueryRef, "");
        assert_eq!(words(&asked, State::InputRequired), "The agent asks.");
        let failed = say(Performative::Failure, "no tea");
        assert_eq!(words(&failed, State::Failed), "no tea");
    }

    #[test]
    fn a_part_of_an_agent_has_one_content() {
        let is_part = |value: Value| is_whole(value.as_object().unwrap());
        assert!(is_part(
            json!({"url": "https://a.example/b", "filename": "b", "mediaType": "text/plain"})
        ));
        assert!(is_part(json!({"raw": "YQ==", "metadata": {}})));
        assert!(is_part(json!({"data": null})));
        for wrong in [
            json!({}),
            json!({"text": "a", "url": "b"}),
            json!({"raw": "no base64"}),
            json!({"text": 1}),
            json!({"text": "a", "unknown": 1}),
        ] {
            assert!(!is_part(wrong.clone()), "{wrong}");
        }
    }
}

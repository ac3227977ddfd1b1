//! The work of a task: a conversation with the agent, followed to its end. A cancelled task sends `cancel` to the
//! agent.

use std::sync::Arc;
use std::time::Duration;

use sealbus::protocol::ProtocolError;
use sealbus::tool::Step;
use sealbus::{Message, Performative, Voice};
use sealbus_callers::said::Said;
use sealbus_callers::schema::Language;
use sealbus_callers::{about, shown};
use serde_json::{Value, json};

use crate::card::media_type;
use crate::catalogue::{Exposed, Skill};
use crate::input::Input;
use crate::log::State;
use crate::tasks::{Hearing, Task, Tasks};

/// A task ends if its agent says nothing for this time, or if its caller leaves a question unanswered for this time.
const SILENCE: Duration = Duration::from_secs(3_600);
/// Longest text of a state, in bytes.
const LONGEST_TEXT: usize = 4_096;

/// A task and the parts of its work.
pub(crate) struct Work {
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) task: Arc<Task>,
    pub(crate) hearing: Hearing,
}

impl Work {
    /// Asks the agent, and follows its messages until the task ends.
    pub(crate) async fn run(mut self, agent: Arc<Exposed>, skill: Skill, input: Input) {
        let (task, tasks) = (self.task.clone(), self.tasks.clone());
        let work = self.ask(&agent, &skill, input);
        let ended = tokio::select! {
            biased;
            // Dropping the work tells the agent.
            () = task.until(State::is_terminal) => return,
            ended = work => ended,
        };
        if let Err(error) = ended {
            let (state, text) = failure(&error);
            tasks.enter(&task, state, Some(&text));
        }
    }

    fn enter(&self, state: State, text: Option<&str>) {
        let text = text.map(|text| shown(text, LONGEST_TEXT));
        let text = text.as_deref().filter(|text| !text.is_empty());
        self.tasks.enter(&self.task, state, text);
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
        let mut answer = asking.stream::<Said>().await?;
        let mut has_parts = false;
        while let Some(step) = answer.step().await? {
            match step {
                Step::Agreed => self.begin(),
                Step::Part(part) => {
                    self.begin();
                    has_parts = true;
                    let part = part_of(part.value(skill.says), skill.says);
                    self.tasks.add(&self.task, &part, false);
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
            let said = Said::in_message(reply).value(skill.says);
            if !has_parts && !said.is_null() {
                let part = part_of(said, skill.says);
                self.tasks.add(&self.task, &part, true);
            }
            self.tasks.complete(&self.task, about(reply));
        }
        Ok(())
    }

    /// The agent has begun.
    fn begin(&self) {
        if self.task.state() == State::Submitted {
            self.enter(State::Working, None);
        }
    }

    /// Passes a question of the agent to the caller, and the caller's answer to the agent.
    async fn put(&mut self, voice: &Voice, question: &Message) -> Result<(), ProtocolError> {
        // An answer without a question is ignored.
        while self.hearing.answers.try_recv().is_ok() {}
        let text = question.text().unwrap_or_default();
        let text = if text.is_empty() {
            "The agent asks."
        } else {
            text
        };
        self.enter(State::InputRequired, Some(text));
        let heard = tokio::time::timeout(SILENCE, self.hearing.answers.recv()).await;
        let Ok(Some(heard)) = heard else {
            self.enter(State::Failed, Some("nobody answered the agent's question"));
            return Ok(());
        };
        Ok(voice.reply(question, Performative::Inform, heard).await?)
    }
}

/// The state of a task whose agent ended the conversation.
fn failure(error: &ProtocolError) -> (State, String) {
    let (state, text) = match error {
        ProtocolError::TurnedDown { reply } => {
            let state = match reply.performative {
                Performative::Refuse | Performative::NotUnderstood => State::Rejected,
                _ => State::Failed,
            };
            let text = reply.text().unwrap_or_default();
            let text = if text.is_empty() {
                "no reason given"
            } else {
                text
            };
            (state, text.to_owned())
        }
        other => (State::Failed, other.to_string()),
    };
    (state, shown(&text, LONGEST_TEXT))
}

/// The content of an agent's message, as a part.
fn part_of(value: Value, language: Language) -> Value {
    let media_type = media_type(language);
    match (language, value) {
        (Language::Bytes, Value::String(bytes)) => json!({"raw": bytes, "mediaType": media_type}),
        (_, Value::String(text)) => {
            json!({"text": text, "mediaType": crate::card::media_type(Language::Text)})
        }
        (_, value) => json!({"data": value, "mediaType": "application/json"}),
    }
}

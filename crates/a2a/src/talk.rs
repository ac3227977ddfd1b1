//! A conversation of FIPA agents in a task: each message of the agent is a part of the result, with the message whole in its metadata,
//! and each message of the task is one to the agent.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealbus::acl::Expression;
use sealbus::body::JSON;
use sealbus::protocol::ProtocolError;
use sealbus::{AclMessage, Content, Message, Performative, ReceiveError, Undelivered};
use sealbus_callers::about;
use sealbus_callers::schema::Language;
use serde_json::{Map, Value, json};

use crate::Fault;
use crate::acl::{ACL, AclData, addressed, part, read, says, state_after, write};
use crate::catalogue::Exposed;
use crate::input::Input;
use crate::log::{Change, State};
use crate::wire;
use crate::work::{Work, words};

/// The message to the agent that a message of A2A is. One that names no act is an `inform`, as an answer is.
pub(crate) fn said(message: &wire::Message) -> Result<AclMessage, Fault> {
    let data = read(message.metadata.as_ref()).map_err(|error| {
        Fault::member(format!("message.metadata[\"{ACL}\"]"), error.to_string())
    })?;
    let performative = match data {
        Some(AclData {
            whole: Some(whole), ..
        }) => return Ok(whole),
        Some(AclData { performative, .. }) => performative,
        None => Performative::Inform,
    };
    let Input { language, body } = Input::of(&message.parts)?;
    let message = AclMessage::new(performative).with_reply_with(message.message_id.as_str());
    Ok(match (language, body) {
        (Language::Text, Value::String(text)) => message.with_content(text),
        (Language::Bytes, Value::String(bytes)) => {
            // It was decoded before.
            let bytes = STANDARD.decode(bytes).unwrap_or_default();
            message.with_content(Content::Bytes(bytes))
        }
        (_, body) => message.with_language(JSON).with_content(body.to_string()),
    })
}

impl Work {
    /// Begins a conversation with the agent, and follows it to its end. `is_whole`: the caller takes whole messages.
    pub(crate) async fn talk(
        &mut self,
        agent: &Exposed,
        opening: AclMessage,
        is_whole: bool,
        silence: Duration,
    ) -> Result<(), ProtocolError> {
        let mut opening = addressed(opening, agent.aid.clone());
        for (name, value) in self.task.names() {
            let parameter = (name.to_owned(), Expression::String(value));
            opening.user_defined.push(parameter);
        }
        let wants_no_answer = says(&opening.performative);
        let talk = match self.tasks.caller.voice.converse(opening).await {
            Ok(talk) => talk,
            Err(error) => {
                self.enter(State::Rejected, Some(&error.to_string()));
                return Ok(());
            }
        };
        if wants_no_answer {
            self.complete(Map::new());
            return Ok(());
        }
        let (mut is_stopped, mut tag) = (false, None);
        loop {
            tokio::select! {
                said = talk.receive_within(silence) => {
                    let said = match said {
                        Ok(said) => said,
                        Err(ReceiveError::Timeout { .. }) => {
                            self.enter(State::Failed, Some("the agent says nothing"));
                            return Ok(());
                        }
                        Err(error) => return Err(error.into()),
                    };
                    tag.clone_from(&said.reply_with);
                    if self.tell(&said, is_whole, is_stopped) {
                        return Ok(());
                    }
                }
                Some(heard) = self.answers.recv() => {
                    let Some(mut message) = to_agent(&heard) else { continue };
                    if message.in_reply_to.is_none() {
                        message.in_reply_to.clone_from(&tag);
                    }
                    let act = message.performative.clone();
                    is_stopped |= act == Performative::Cancel;
                    if let Err(error) = talk.send(addressed(message, agent.aid.clone())).await {
                        self.enter(State::Failed, Some(&error.to_string()));
                        return Ok(());
                    }
                    if act == Performative::RejectProposal {
                        self.complete(Map::new());
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Tells the caller what the agent said. True if the conversation has ended by it.
    fn tell(&self, said: &Message, is_whole: bool, is_stopped: bool) -> bool {
        if let Some(lost) = Undelivered::read(said) {
            let why = format!("a message did not reach {}: {}", lost.receiver, lost.reason);
            self.enter(State::Failed, Some(&why));
            return true;
        }
        let mut part = part(said);
        part["metadata"] = json!({ ACL: write(said, said.provenance(), is_whole) });
        self.add(&part, false);
        let state = state_after(&said.view(), is_stopped);
        match state {
            State::Working => self.has_begun(),
            State::Completed => self.complete(about(said)),
            state => self.enter(state, Some(words(said, state))),
        }
        state.is_terminal()
    }

    fn complete(&self, about: Map<String, Value>) {
        self.tasks.change(&self.task, &Change::Complete { about });
    }
}

/// A message of the caller, which was checked when it came.
fn to_agent(heard: &str) -> Option<AclMessage> {
    said(&serde_json::from_str(heard).ok()?).ok()
}

//! A conversation with an agent of others that speaks ACL: each message goes through whole, in both directions.

use std::sync::Arc;
use std::time::Duration;

use sealbus::acl::Expression;
use sealbus::process::Conversations;
use sealbus::{
    AgentResult, Failure, Message, Performative, Undelivered, Voice, new_conversation_id,
};
use tokio::time::timeout;

use super::remote::Remote;
use super::task::{End, News};
use super::work::{NEIGHBOUR_PARAMETER, NeighbourTask, THINKING, end_error};
use crate::acl::{addressed, says, state_after};

/// Follows a conversation, which begins with a message of one of our agents, to its end.
pub(super) async fn talk(
    remote: Arc<Remote>,
    voice: Voice,
    conversations: Conversations,
    opening: Message,
) -> AgentResult {
    let asker = opening.sender.clone();
    let asker = asker.ok_or_else(|| Failure::new("nobody sent it"))?;
    let id = opening
        .conversation_id
        .as_ref()
        .and_then(Expression::as_str);
    let id = id.map_or_else(new_conversation_id, str::to_owned);
    let mine = conversations.open_with(&id, &asker.name)?;
    let mut task = NeighbourTask::open(&remote, &voice, &opening).await?;
    let (mut is_asked, mut is_stopped, mut is_over) = (false, false, says(&opening.performative));
    loop {
        let patience = if is_asked { THINKING } else { Duration::MAX };
        tokio::select! {
            news = task.news(), if !is_asked => for news in news? {
                match news {
                    News::Part(part) => {
                        let mut said = addressed(part.acl(), asker.clone())
                            .with_user_defined(NEIGHBOUR_PARAMETER, task.proof());
                        said.conversation_id = Some(id.as_str().into());
                        if let Some(tag) = said.reply_with.as_ref().and_then(Expression::as_str) {
                            mine.expect_reply_to(tag);
                        }
                        is_over |= state_after(&said.view(), is_stopped).is_terminal();
                        voice.send(said).await?;
                    }
                    News::Asked(_) => is_asked = true,
                    News::Begun | News::Progress(_) => {}
                    News::Ended(End::Completed(_)) => return Ok(()),
                    // The agent itself has said why.
                    News::Ended(_) if is_over => return Ok(()),
                    News::Ended(end) => return Err(end_error(end)),
                }
            },
            said = timeout(patience, mine.receive_matching(|_| true)) => {
                let said = said.map_err(|_| Failure::new("it was asked something, and said nothing for an hour"))?;
                // The agent here leaves.
                let Some(said) = said else { return Ok(()) };
                let said = Message::new(said);
                // Nobody is there to hear more, and the task is cancelled.
                if Undelivered::read(&said).is_some() {
                    return Ok(());
                }
                is_stopped |= said.performative == Performative::Cancel;
                is_over |= said.performative == Performative::RejectProposal;
                task.say(&said).await?;
                is_asked = false;
            }
        }
    }
}

//! The node as a keeper of channels' logs: requests from its processes, other nodes and the Master.

use std::collections::BTreeMap;
use std::time::Duration;

use super::processes::RequestPlace;
use super::shared::Shared;
use sealbus_control::ask::Ask;
use sealbus_control::channel_log::{
    KeepOutcome, LogAnswer, LogPiece, LogQuestion, LogRequest, ask,
};
use sealbus_control::evidence::RecordedMessage;
use sealbus_control::names::MASTER;
use sealbus_control::node::ask_node;
use sealbus_control::rpc::Answer;
use sealbus_control::text::excerpt;
use sealbus_control::traffic::{LONGEST_NAME, is_named};
use sealbus_control::{AgentLocation, Fault, FaultCode};

/// How long another node may take to answer, in addition to the time for which it waits for events.
const ASKING: Duration = Duration::from_secs(5);
/// How long another node may take to say whether it knows a durable subscription.
const KNOWING: Duration = Duration::from_secs(2);
/// The most channels for which a request may state positions. A node keeps logs of no more.
const MOST_POSITIONS: usize = 16_384;
/// A filter that no event passes.
const NO_EVENT: &str = "false";

/// Whether the answer to a subscription waits until there are events. A subscription that begins does not wait.
pub(super) fn waits(question: &LogQuestion) -> bool {
    question.wait > 0 && question.positions.is_some()
}

/// Whether an answer advances a subscription. Damage that it knows already does not.
fn is_news(question: &LogQuestion, answer: &LogAnswer) -> bool {
    let LogAnswer::Read { pieces } = answer else {
        return true;
    };
    let positions = question.positions.as_ref();
    let is_further = |piece: &LogPiece| {
        let position = positions.and_then(|positions| positions.get(&piece.channel));
        position != Some(&piece.next) || !piece.events.is_empty()
    };
    pieces.iter().any(is_further)
}

/// The same question, for the events that are there now.
fn at_once(question: &LogQuestion) -> LogRequest {
    let question = LogQuestion {
        wait: 0,
        ..question.clone()
    };
    LogRequest::Read { question }
}

/// The question whether there are events. The answer contains none, and notes none as given.
fn whether_news(question: &LogQuestion) -> LogRequest {
    let question = LogQuestion {
        filter: NO_EVENT.to_owned(),
        durable: None,
        last_per: None,
        events: 1,
        bytes: 1,
        ..question.clone()
    };
    LogRequest::Read { question }
}

/// Refuses positions for more channels than there can be.
fn check_positions(request: &LogRequest) -> Result<(), Fault> {
    let count = match request {
        LogRequest::Read { question } => question.positions.as_ref().map_or(0, BTreeMap::len),
        LogRequest::Settle { cursors, .. } => cursors.len(),
        _ => 0,
    };
    if count <= MOST_POSITIONS {
        return Ok(());
    }
    let message = format!("a request states at most {MOST_POSITIONS} positions");
    Err(Fault::new(FaultCode::BadRequest, message))
}

/// The messages to record, of agents that `[evidence]` names; and the receiver of one that it does not name.
fn to_be_recorded(
    named: &[String],
    platform: &str,
    messages: Vec<RecordedMessage>,
) -> (Vec<RecordedMessage>, Option<String>) {
    let is_recorded = |message: &RecordedMessage| {
        let receiver = format!("{}@{platform}", message.receiver);
        is_named(named, &receiver)
    };
    let (recorded, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_recorded);
    let other = others.into_iter().next().map(|message| message.receiver);
    (recorded, other)
}

impl Shared {
    /// Answers a process's question for events that may still have to come. While it waits, the question leaves the
    /// process's places to other requests; the events are then read in such a place again. So there are no more answers
    /// with events in memory than places. `bytes`: the size of the request.
    pub(super) async fn await_events(
        &self,
        process: &str,
        node: &str,
        question: LogQuestion,
        bytes: usize,
        place: &mut RequestPlace,
        answer: &mut Answer,
    ) -> Result<LogAnswer, Fault> {
        let present = at_once(&question);
        let found = self.channel_log_of(process, node, present).await?;
        if is_news(&question, &found) {
            return Ok(found);
        }
        let _waiting = place.leave(bytes, node != self.name)?;
        // From here on, the place where it waits counts its bytes.
        answer.free_room();
        let whether = whether_news(&question);
        let found = self.channel_log_of(process, node, whether).await;
        place.come_back().await;
        let found = found?;
        if !is_news(&question, &found) {
            return Ok(found);
        }
        let present = at_once(&question);
        self.channel_log_of(process, node, present).await
    }

    /// Answers a request from a process.
    pub(super) async fn channel_log_of(
        &self,
        process: &str,
        node: &str,
        request: LogRequest,
    ) -> Result<LogAnswer, Fault> {
        check_positions(&request)?;
        let placement = self.processes.placement(process)?;
        let is_placed = |agent: &str| self.is_placed(&placement, agent);
        let stranger = match &request {
            LogRequest::Keep { events } => events
                .iter()
                .map(|event| &event.publisher)
                .find(|publisher| !is_placed(publisher)),
            LogRequest::Since { agent, .. }
            | LogRequest::Settle { agent, .. }
            | LogRequest::Judge { agent, .. } => Some(agent).filter(|agent| !is_placed(agent)),
            LogRequest::Read { question } => {
                Some(&question.agent).filter(|agent| !is_placed(agent))
            }
            LogRequest::Record { messages } => messages
                .iter()
                .map(|message| &message.receiver)
                .find(|receiver| !is_placed(receiver)),
            LogRequest::List | LogRequest::Evidence { .. } => {
                return Err(Fault::new(
                    FaultCode::NotPermitted,
                    "what is kept is told to operators: see `sealbus channel list`",
                ));
            }
        };
        if let Some(agent) = stranger {
            let agent = excerpt(agent, LONGEST_NAME);
            let message = format!("{agent} is not placed in the process {process}");
            self.log_refusal(process, &message);
            return Err(Fault::new(FaultCode::NotPlaced, message));
        }
        match request {
            LogRequest::Since { agent, durable } => self.durable_since(agent, durable).await,
            LogRequest::Keep { .. } | LogRequest::Record { .. } | LogRequest::Judge { .. }
                if node != self.name =>
            {
                Err(Fault::new(
                    FaultCode::BadRequest,
                    format!(
                        "what agents of {} publish or receive is kept and judged there",
                        self.name
                    ),
                ))
            }
            LogRequest::Record { messages } => self.record_of(process, messages).await,
            request if node == self.name => {
                let answer = self.own_channel_log(process, request).await?;
                if let LogAnswer::Kept { outcomes } = &answer {
                    for outcome in outcomes {
                        if let KeepOutcome::Refused { fault } = outcome {
                            self.note_full(&placement.group, None, fault);
                        }
                    }
                }
                Ok(answer)
            }
            request => {
                let waits = match &request {
                    LogRequest::Read { question } => Duration::from_millis(question.wait),
                    _ => Duration::ZERO,
                };
                self.other_channel_log(node, request, waits.min(ASKING) + ASKING)
                    .await
            }
        }
    }

    /// Records messages that a process's agents received. Messages of agents that `[evidence]` does not name are
    /// refused: they would push out the others, because all are in one stream.
    async fn record_of(
        &self,
        process: &str,
        messages: Vec<RecordedMessage>,
    ) -> Result<LogAnswer, Fault> {
        let named = {
            let replica = self.replica.lock();
            (replica.revision() > 0).then(|| replica.rules().evidence.agents.clone())
        };
        let named = named.ok_or_else(|| {
            let message = format!("{} does not know the platform's rules yet", self.name);
            Fault::new(FaultCode::Unavailable, message)
        })?;
        let platform = self.platform.read().name.clone();
        let (messages, other) = to_be_recorded(&named, &platform, messages);
        if !messages.is_empty() || other.is_none() {
            let recording = LogRequest::Record { messages };
            self.own_channel_log(process, recording).await?;
        }
        let Some(agent) = other else {
            return Ok(LogAnswer::Done);
        };
        let message = format!("what {agent} receives is not recorded");
        self.log_refusal(process, &message);
        Err(Fault::new(FaultCode::NotPermitted, message)
            .advise("`agents` in [evidence] of the manifest names those that are recorded"))
    }

    /// Answers a request from another node or the Master.
    pub(super) async fn channel_log_for(
        &self,
        from: &str,
        request: LogRequest,
    ) -> Result<LogAnswer, Fault> {
        check_positions(&request)?;
        let may_ask = match &request {
            LogRequest::List | LogRequest::Evidence { .. } => from == MASTER,
            LogRequest::Keep { .. } | LogRequest::Record { .. } | LogRequest::Judge { .. } => false,
            LogRequest::Since { agent, .. } | LogRequest::Settle { agent, .. } => {
                self.is_node(from).await? && self.speaks_for(from, agent).await?
            }
            LogRequest::Read { question } => {
                self.is_node(from).await? && self.speaks_for(from, &question.agent).await?
            }
        };
        if !may_ask {
            self.log_refusal(from, "it asks for a log of a channel and may not");
            return Err(Fault::new(
                FaultCode::NotPermitted,
                "only nodes read the logs of others, for agents of their own",
            ));
        }
        self.own_channel_log(from, request).await
    }

    /// Whether a node runs an agent, or was the last to run it, according to the Master.
    async fn speaks_for(&self, node: &str, agent: &str) -> Result<bool, Fault> {
        let ran = self
            .former
            .lock()
            .get(agent)
            .is_some_and(|former| former == node);
        let (mut known, is_covered) = {
            let replica = self.replica.lock();
            (replica.locate(agent), replica.covers(agent))
        };
        if !ran && !is_covered && known == AgentLocation::Unknown {
            known = self.locate_by_master(agent).await?;
        }
        // From now on the node knows this without the Master. A lying node leaves nothing behind here.
        if matches!(&known, AgentLocation::Process(contact) if contact.node == node) {
            self.follow(agent);
        }
        match known {
            _ if ran => Ok(true),
            AgentLocation::Process(contact) => Ok(contact.node == node),
            // The other node may know a place that this node has not been told of yet.
            AgentLocation::InTransit | AgentLocation::Unknown => {
                let unknown = format!("{} does not know where {agent} is", self.name);
                Err(Fault::new(FaultCode::Unavailable, unknown))
            }
        }
    }

    async fn own_channel_log(&self, asker: &str, request: LogRequest) -> Result<LogAnswer, Fault> {
        {
            let replica = self.replica.lock();
            if replica.revision() > 0 {
                self.channel_logs.obey(replica.rules());
            }
        }
        self.channel_logs.answer(asker, request).await
    }

    async fn other_channel_log(
        &self,
        node: &str,
        request: LogRequest,
        patience: Duration,
    ) -> Result<LogAnswer, Fault> {
        let asked = ask_node::ChannelLog { request };
        self.correspondent()?.ask(node, asked, patience).await
    }

    /// The time since which a durable subscription has existed, from any node that knows it.
    async fn durable_since(&self, agent: String, durable: String) -> Result<LogAnswer, Fault> {
        let nodes: Vec<String> = self.replica.lock().nodes().cloned().collect();
        let others: Vec<&String> = nodes.iter().filter(|node| **node != self.name).collect();
        let request = LogRequest::Since { agent, durable };
        let asked = others
            .iter()
            .map(|node| self.other_channel_log(node, request.clone(), KNOWING));
        let (own, others) = tokio::join!(
            self.own_channel_log(&self.name, request.clone()),
            futures_util::future::join_all(asked)
        );
        let others = others
            .into_iter()
            .filter_map(|other| ask::Since::take(other.ok()?).ok());
        let known = others.chain([ask::Since::take(own?)?]).flatten();
        Ok(known.min().into())
    }

    /// Whether an agent is a node's own agent.
    pub(super) async fn is_node(&self, agent: &str) -> Result<bool, Fault> {
        let location = self.locate_by_master(agent).await?;
        Ok(is_of_node(agent, &location))
    }

    /// Whether an agent is known here as a node's own agent.
    pub(super) fn is_known_node(&self, agent: &str) -> bool {
        is_of_node(agent, &self.known(agent))
    }
}

/// Whether the agent at this place is a node's own. Only a node's own agent has the name of the node where it is.
fn is_of_node(agent: &str, location: &AgentLocation) -> bool {
    matches!(location, AgentLocation::Process(contact) if contact.node == agent)
}

#[cfg(test)]
mod tests {
    use sealbus_control::Blob;
    use sealbus_control::channel_log::{LogStart, StoredEvent};

    use super::*;

    fn question(positions: &[(&str, u64)]) -> LogQuestion {
        let positions = positions.iter();
        let positions = positions.map(|(channel, next)| ((*channel).to_owned(), *next));
        LogQuestion {
            agent: "bob".to_owned(),
            pattern: "/offers/**".to_owned(),
            filter: "performative == 'inform'".to_owned(),
            durable: Some("mine".to_owned()),
            start: LogStart::Now,
            last_per: None,
            began: 1,
            resumes: false,
            positions: Some(positions.collect()),
            events: 100,
            bytes: 1000,
            wait: 4000,
        }
    }

    fn piece(channel: &str, next: u64) -> LogPiece {
        LogPiece {
            channel: channel.to_owned(),
            events: Vec::new(),
            next,
            has_more: false,
            missed: 0,
            filter_errors: 0,
            filter_problem: String::new(),
            damage: None,
        }
    }

    #[test]
    fn a_question_waits_until_something_brings_its_subscription_further() {
        let asked = question(&[("/offers/tea", 5)]);
        assert!(waits(&asked));
        let begins = LogQuestion {
            positions: None,
            ..asked.clone()
        };
        assert!(!waits(&begins));
        let LogRequest::Read { question: now } = at_once(&asked) else {
            panic!("it is a question")
        };
        assert!(!waits(&now));
        assert_eq!((&now.durable, now.events), (&asked.durable, asked.events));

        let is_news = |pieces: &[LogPiece]| {
            let pieces = pieces.to_vec();
            is_news(&asked, &LogAnswer::Read { pieces })
        };
        assert!(!is_news(&[]));
        let damaged = LogPiece {
            damage: Some("a bad block".to_owned()),
            ..piece("/offers/tea", 5)
        };
        assert!(!is_news(&[damaged]));
        // Events that do not pass its filter, events that do, and a new channel.
        assert!(is_news(&[piece("/offers/tea", 6)]));
        let event = StoredEvent {
            number: 5,
            time: None,
            frame: Blob(vec![1]),
            again: false,
            missed: 0,
        };
        let given = LogPiece {
            events: vec![event],
            ..piece("/offers/tea", 5)
        };
        assert!(is_news(&[given]));
        assert!(is_news(&[piece("/offers/tea", 5), piece("/offers/new", 1)]));
    }

    #[test]
    fn while_a_question_waits_no_event_is_given() {
        let asked = question(&[("/offers/tea", 5)]);
        let LogRequest::Read { question } = whether_news(&asked) else {
            panic!("it is a question")
        };
        assert!(waits(&question));
        assert_eq!(
            (question.filter.as_str(), &question.durable),
            ("false", &None)
        );
        assert_eq!(
            (&question.pattern, &question.positions),
            (&asked.pattern, &asked.positions)
        );
    }

    #[test]
    fn positions_of_more_channels_than_there_are_logs_are_refused() {
        let many = |count: usize| -> BTreeMap<String, u64> {
            let channels = 0..count;
            channels.map(|number| (number.to_string(), 1)).collect()
        };
        let read = |count| LogRequest::Read {
            question: LogQuestion {
                positions: Some(many(count)),
                ..question(&[])
            },
        };
        let settle = |count| LogRequest::Settle {
            agent: "bob".to_owned(),
            durable: "mine".to_owned(),
            cursors: many(count),
        };
        for request in [read(MOST_POSITIONS), settle(MOST_POSITIONS)] {
            assert!(check_positions(&request).is_ok());
        }
        for request in [read(MOST_POSITIONS + 1), settle(MOST_POSITIONS + 1)] {
            let fault = check_positions(&request).unwrap_err();
            assert_eq!(fault.code, FaultCode::BadRequest);
        }
    }

    #[test]
    fn what_evidence_does_not_name_is_not_recorded_and_holds_up_nothing() {
        let message = |receiver: &str| RecordedMessage {
            receiver: receiver.to_owned(),
            message: Blob(vec![1]),
            evidence: Blob(vec![2]),
        };
        let messages = ["seller-1", "mallory", "sink", "seller-2", "buyer"].map(message);
        let split = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|&name| name.to_owned()).collect();
            let (recorded, other) = to_be_recorded(&named, "factory", messages.to_vec());
            let recorded: Vec<String> = recorded.into_iter().map(|it| it.receiver).collect();
            (recorded.join(" "), other)
        };
        let other = Some("mallory".to_owned());
        let named = split(&["seller-*", "sink@factory", "buyer@elsewhere"]);
        assert_eq!(named, ("seller-1 sink seller-2".to_owned(), other));
        let first = Some("seller-1".to_owned());
        assert_eq!(split(&[]), (String::new(), first));
        assert_eq!(split(&["*"]).1, None);
    }
}

use sealbus_fipa::management::{DfAgentDescription, Exception, SearchConstraints};

use super::*;
use crate::client::{Answer, AnswerError, cancel, subscribe};

fn answer(performative: Performative, content: &str) -> AclMessage {
    AclMessage::new(performative)
        .with_sender(aid("df@plat9"))
        .with_content(content)
}

fn turned_down(performative: Performative, content: &str) -> String {
    match Answer::read(&answer(performative, content)) {
        Err(error) => error.to_string(),
        Ok(answer) => panic!("{answer:?}"),
    }
}

/// Answers of a live JADE 4.6.5, agent identifiers shortened.
#[test]
fn answers_of_a_live_jade_are_read() {
    use Performative::*;
    let action = "(action (agent-identifier :name df@plat9) (register x))";
    for (performative, content, shown) in [
        (
            Failure,
            format!("({action} already-registered)"),
            "already registered",
        ),
        (
            Failure,
            format!("({action} not-registered)"),
            "not registered",
        ),
        (
            Refuse,
            format!("({action} (missing-parameter df-agent-description name))"),
            "the slot 'name' of the df-agent-description is missing",
        ),
        (
            NotUnderstood,
            "(unrecognised-value content)".into(),
            "the value of the message parameter 'content' cannot be understood",
        ),
        (
            NotUnderstood,
            "((Unsupported-value \"language\"))".into(),
            "the value of the message parameter 'language' is not supported",
        ),
        (
            Failure,
            format!("({action} (internal-error \"no more\"))"),
            "no more",
        ),
        (
            Refuse,
            format!("({action} (too-busy today))"),
            "(too-busy today)",
        ),
    ] {
        let shown = format!("df@plat9 answered {}: {shown}", performative.as_str());
        assert_eq!(turned_down(performative, &content), shown);
    }
    let undelivered = "((action (agent-identifier :name ams@plat9) (ACLMessage)) (MTS-error \
                       (agent-identifier :name df@nowhere) (internal-error \"Agent not found\")))";
    assert_eq!(
        turned_down(Failure, undelivered),
        "the request did not reach df@nowhere: Agent not found"
    );
    assert!(turned_down(Inform, "no SL").contains("its content is no SL: byte 0"));
    assert!(matches!(
        Answer::read(&answer(Propose, "")),
        Err(AnswerError::Unreadable { .. })
    ));
    let done = answer(Inform, &format!("((done {action}))"));
    let done = Answer::read(&done).unwrap();
    assert!(done.is_done());
    assert_eq!(done.granted(), None);
    assert!(done.found(DfAgentDescription::from_term).is_err());
    assert_eq!(
        Answer::Agreed.found(DfAgentDescription::from_term),
        Err(Exception::UnexpectedAct("agree".into()))
    );
}

#[test]
fn requests_are_in_the_form_that_jade_reads() {
    let df = aid("df@plat9");
    let search = DfFunction::Search(DfAgentDescription::default(), SearchConstraints::default());
    let request = ask_df(&df, &search);
    assert_eq!(
        request.content_text(),
        // The DF of JADE demands the constraints even when there are none.
        Some(
            "((action (agent-identifier :name df@plat9) (search (df-agent-description) (search-constraints))))"
        )
    );
    assert_eq!(request.language, Some("fipa-sl0".into()));
    assert_eq!(request.protocol.as_deref(), Some("fipa-request"));
    let request = subscribe(
        &df,
        DfAgentDescription::default(),
        SearchConstraints::default(),
    )
    .with_conversation_id("c");
    assert_eq!(request.language, Some("fipa-sl".into()));
    assert_eq!(request.protocol.as_deref(), Some("fipa-subscribe"));
    let cancel = cancel(&request);
    assert_eq!(cancel.conversation_id, request.conversation_id);
    assert_eq!(
        cancel.content_text(),
        Some(
            "((action (agent-identifier :name df@plat9) (search (df-agent-description) (search-constraints))))"
        )
    );
}

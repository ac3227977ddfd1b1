//! Any content: AMS and DF write each object that they read from it, read it back, and match it with itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::Limits;
use sealbus_fipa::management::{
    AmsAgentDescription, AmsFunction, ApDescription, DfAgentDescription, DfFunction, Exception,
    results, subscription,
};
use sealbus_fipa::sl::{ActionExpression, Content, ContentExpression, Term};

fn act(term: &Term<'_>) {
    if let Ok(function) = DfFunction::from_term(term) {
        let written = function.to_term().to_bytes();
        let read = Term::parse(&written, &Limits::DEFAULT).map(|it| DfFunction::from_term(&it));
        assert_eq!(read, Ok(Ok(function.clone())));
        if let DfFunction::Register(it) | DfFunction::Search(it, _) = &function {
            assert!(it.matches(it));
            assert!(it.matches(&DfAgentDescription::default()));
        }
    }
    if let Ok(function) = AmsFunction::from_term(term) {
        let written = function.to_term().to_bytes();
        let read = Term::parse(&written, &Limits::DEFAULT).map(|it| AmsFunction::from_term(&it));
        assert_eq!(read, Ok(Ok(function)));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(content) = Content::parse(bytes, &Limits::DEFAULT) else {
        return;
    };
    let _ = results(&content, DfAgentDescription::from_term);
    let _ = results(&content, AmsAgentDescription::from_term);
    let _ = results(&content, ApDescription::from_term);
    let _ = subscription::entries(&content, DfAgentDescription::from_term);
    let _ = subscription::entries(&content, AmsAgentDescription::from_term);
    for expression in &content.expressions {
        match expression {
            ContentExpression::Action(ActionExpression::Action { act: term, .. }) => act(term),
            ContentExpression::Identifying(expression) => {
                if let Ok(ActionExpression::Action { act: term, .. }) =
                    subscription::action(expression)
                {
                    act(term);
                }
            }
            ContentExpression::Proposition(wff) => {
                if let Some(exception) = Exception::from_wff(wff) {
                    assert_eq!(Exception::from_wff(&exception.to_wff()), Some(exception));
                }
            }
            ContentExpression::Action(_) => {}
        }
    }
});

//! The extensions of A2A that this platform knows (specification, section 4.6). A client activates one by the header, and its data
//! stand in the metadata of a message under its URI.

use hyper::header::{HeaderMap, HeaderValue};
use sealbus::{Delegation, DelegationError};
use serde_json::{Map, Value, json};

use crate::acl::{ACL, WHOLE};

/// The header with the URIs of the extensions that a client activates.
pub(crate) const HEADER: &str = "a2a-extensions";

/// On whose behalf a message asks: `{"chain": ["boss@factory", "clerk@factory"]}`, the one that asked first in front.
pub(crate) const DELEGATION: &str = "https://github.com/sealbus/sealbus/a2a/delegation/v1";

/// The extensions known here.
pub(crate) const KNOWN: [&str; 2] = [DELEGATION, ACL];

/// The part of a card about the extensions.
pub(crate) fn declared() -> Value {
    json!([
        {"uri": DELEGATION, "description": "On whose behalf a message asks."},
        {
            "uri": ACL, "description": "The act of a message, and ACL messages whole.",
            "params": {"representations": [WHOLE]},
        },
    ])
}

/// The extensions that a request activates, of those known here.
pub(crate) fn active(headers: &HeaderMap) -> Vec<&'static str> {
    let is_listed = |uri: &&'static str| {
        let lists = headers.get_all(HEADER).iter();
        let mut lists = lists.filter_map(|it| it.to_str().ok());
        lists.any(|list| list.split(',').any(|it| it.trim() == *uri))
    };
    KNOWN.into_iter().filter(is_listed).collect()
}

/// The header that activates these extensions.
pub(crate) fn activating(uris: &[&str]) -> Option<HeaderValue> {
    (!uris.is_empty()).then(|| HeaderValue::from_str(&uris.join(",")).ok())?
}

/// The data of a message about its chain.
pub(crate) fn chain_data(chain: &Delegation) -> Value {
    json!({ "chain": chain.askers() })
}

/// Why a chain from outside is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// It has another form.
    #[error("it is {{\"chain\": [\"NAME@PLATFORM\", …]}}")]
    Form,
    /// It is no chain.
    #[error(transparent)]
    Chain(#[from] DelegationError),
    /// Only its own messages prove who an agent of the platform is.
    #[error("it names {0}, and agents of this platform speak for themselves")]
    OneOfOurs(String),
}

/// The chain that a message from outside tells.
///
/// # Errors
/// [`ChainError`].
pub fn read_chain(
    metadata: Option<&Map<String, Value>>,
    platform: &str,
) -> Result<Delegation, ChainError> {
    let Some(data) = metadata.and_then(|it| it.get(DELEGATION)) else {
        return Ok(Delegation::default());
    };
    let names = data.get("chain").and_then(Value::as_array);
    let names = names.ok_or(ChainError::Form)?.iter();
    let names: Option<Vec<&str>> = names.map(Value::as_str).collect();
    let chain = Delegation::new(names.ok_or(ChainError::Form)?)?;
    let is_ours = |name: &&String| {
        let home = name.rsplit_once('@').map(|(_, home)| home);
        home.is_none_or(|home| home.eq_ignore_ascii_case(platform))
    };
    match chain.askers().iter().find(is_ours) {
        Some(ours) => Err(ChainError::OneOfOurs(ours.clone())),
        None => Ok(chain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: Value) -> Result<Delegation, ChainError> {
        let metadata = json!({ DELEGATION: data });
        read_chain(metadata.as_object(), "factory")
    }

    #[test]
    fn a_chain_from_outside_names_others_alone() {
        let chain = read(json!({"chain": ["boss@market", "clerk@market"]})).unwrap();
        assert_eq!(chain.to_string(), "boss@market, clerk@market");
        assert_eq!(read(chain_data(&chain)), Ok(chain));
        assert!(read_chain(None, "factory").unwrap().is_empty());
        for name in ["boss@factory", "boss@Factory", "boss"] {
            let read = read(json!({"chain": ["clerk@market", name]}));
            assert_eq!(read, Err(ChainError::OneOfOurs(name.to_owned())));
        }
        for wrong in [
            json!({}),
            json!([]),
            json!({"chain": [1]}),
            json!({"chain": "a@b"}),
        ] {
            assert_eq!(read(wrong), Err(ChainError::Form));
        }
        let long: Vec<String> = (0..9).map(|it| format!("a{it}@market")).collect();
        assert!(matches!(
            read(json!({ "chain": long })),
            Err(ChainError::Chain(_))
        ));
        assert!(matches!(
            read(json!({"chain": ["a b@market"]})),
            Err(ChainError::Chain(_))
        ));
    }

    #[test]
    fn a_header_activates_what_it_lists() {
        let mut headers = HeaderMap::new();
        assert!(active(&headers).is_empty());
        headers.append(HEADER, activating(&["urn:x", "urn:y"]).unwrap());
        assert!(active(&headers).is_empty());
        headers.append(HEADER, activating(&["urn:x", DELEGATION]).unwrap());
        assert_eq!(active(&headers), [DELEGATION]);
        assert_eq!(activating(&[]), None);
    }
}

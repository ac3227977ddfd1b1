//! The content of a message to an agent: the skill that it means, and the body for the skill.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealbus_callers::schema::Language;
use serde_json::{Map, Value};

use crate::Fault;
use crate::catalogue::{Exposed, Skill, Takes};
use crate::wire::{Part, SendMessageRequest};

/// The member of the metadata that names a skill.
pub(crate) const SKILL: &str = "skill";

/// A body for an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Input {
    pub(crate) language: Language,
    /// Bytes are in base64.
    pub(crate) body: Value,
}

impl Input {
    fn new(language: Language, body: Value) -> Self {
        Self { language, body }
    }

    /// The body that the parts make together: their text, one value, or one file.
    pub(crate) fn of(parts: &[Part]) -> Result<Self, Fault> {
        let several = || {
            let problem = "they are texts, or one data part, or one raw part";
            Fault::member("message.parts", problem)
        };
        if let [
            Part {
                data: Some(data), ..
            },
        ] = parts
        {
            return Ok(Self::new(Language::Json, whole_numbers(data.clone())));
        }
        if let [Part { raw: Some(raw), .. }] = parts {
            let bytes = STANDARD.decode(raw);
            bytes.map_err(|_| Fault::member("message.parts[0].raw", "it is base64"))?;
            return Ok(Self::new(Language::Bytes, raw.as_str().into()));
        }
        if parts.iter().any(|part| part.url.is_some()) {
            let why = "The gateway fetches nothing: send the file itself, as a raw part";
            return Err(Fault::ContentTypeNotSupported(why.to_owned()));
        }
        let texts: Option<Vec<&str>> = parts.iter().map(|part| part.text.as_deref()).collect();
        let text = texts.ok_or_else(several)?.join("\n");
        Ok(Self::new(Language::Text, text.into()))
    }
}

/// A value whose whole numbers are integers. Clients built on protobuf have only floats, and write 3.0 for 3.
fn whole_numbers(value: Value) -> Value {
    /// Up to here every whole number is a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() <= EXACT {
                Value::from(float as i64)
            } else {
                Value::Number(number)
            }
        }
        Value::Array(values) => values.into_iter().map(whole_numbers).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members
                .map(|(name, value)| (name, whole_numbers(value)))
                .collect()
        }
        other => other,
    }
}

/// The skill that a message means, and the input for the skill.
pub(crate) fn choose<'a>(
    agent: &'a Exposed,
    request: &SendMessageRequest,
) -> Result<(&'a Skill, Input), Fault> {
    let said = Input::of(&request.message.parts)?;
    let named = [&request.metadata, &request.message.metadata];
    let named = named.into_iter().flatten().find_map(|it| it.get(SKILL));
    if let Some(name) = named {
        let skill = agent.skills.iter().find(|it| *name == it.name);
        let skill = skill.ok_or_else(|| {
            let problem = format!("it is one of {}", names(&agent.skills));
            Fault::member(format!("metadata.{SKILL}"), problem)
        })?;
        let input = fit(&skill.takes, &said).ok_or_else(|| unfit(std::slice::from_ref(skill)))?;
        return Ok((skill, input));
    }
    let mut fitting = agent.skills.iter().filter_map(|skill| {
        let input = fit(&skill.takes, &said)?;
        Some((skill, input))
    });
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(unfit(&agent.skills)),
        _ => {
            let problem = format!("it names one of {}", names(&agent.skills));
            Err(Fault::member(format!("metadata.{SKILL}"), problem))
        }
    }
}

fn names(skills: &[Skill]) -> String {
    let mut names: Vec<&str> = skills.iter().map(|it| it.name.as_str()).collect();
    names.truncate(16);
    names.join(", ")
}

fn unfit(skills: &[Skill]) -> Fault {
    let mut modes: Vec<&str> = skills.iter().flat_map(Skill::input_modes).collect();
    modes.sort_unstable();
    modes.dedup();
    let why = format!(
        "These parts do not fit: {} takes {}",
        names(skills),
        modes.join(", ")
    );
    Fault::ContentTypeNotSupported(why)
}

/// The input in the form that a skill takes. None if the skill takes no such input.
fn fit(takes: &Takes, said: &Input) -> Option<Input> {
    let Takes::Tool(language, schema) = takes else {
        return Some(said.clone());
    };
    let body = match (language, said.language) {
        (language, same) if *language == same => said.body.clone(),
        (Language::Text, Language::Json) if said.body.is_string() => said.body.clone(),
        (Language::Json, Language::Text) => from_text(said.body.as_str()?, schema)?,
        _ => return None,
    };
    Some(Input::new(*language, body))
}

/// A text for a tool that takes JSON: JSON itself, or the only text that the tool needs.
fn from_text(text: &str, schema: &Value) -> Option<Value> {
    let schema = resolve(schema, schema);
    let is_text = |of: &Value| of.get("type").and_then(Value::as_str) == Some("string");
    let needed = schema.get("required").and_then(Value::as_array);
    if let Ok(value) = serde_json::from_str::<Value>(text)
        && (value.is_object() || needed.is_none())
    {
        return Some(value);
    }
    if is_text(schema) {
        return Some(text.into());
    }
    let [name] = &needed?[..] else {
        return None;
    };
    let name = name.as_str()?;
    let member = schema.get("properties")?.get(name)?;
    is_text(member).then(|| Value::Object(Map::from_iter([(name.to_owned(), text.into())])))
}

/// The schema itself, or the schema that it names.
fn resolve<'a>(schema: &'a Value, whole: &'a Value) -> &'a Value {
    let name = schema.get("$ref").and_then(Value::as_str);
    let named = name.and_then(|name| name.strip_prefix("#/$defs/"));
    let named = named.and_then(|name| whole.get("$defs")?.get(name));
    named.unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use sealbus::Aid;
    use serde_json::json;

    use super::*;

    fn skill(name: &str, takes: Takes) -> Skill {
        Skill {
            name: name.to_owned(),
            about: String::new(),
            kind: String::new(),
            ontology: None,
            takes,
            says: Language::Json,
        }
    }

    fn agent(skills: Vec<Skill>) -> Exposed {
        Exposed {
            aid: Aid::new("a@home").unwrap(),
            local: "a".to_owned(),
            platform: "home".to_owned(),
            skills,
        }
    }

    fn send(parts: Value, skill: Option<&str>) -> SendMessageRequest {
        let metadata = skill.map_or(json!({}), |name| json!({ "skill": name }));
        let message =
            json!({"messageId": "m", "role": "ROLE_USER", "parts": parts, "metadata": metadata});
        serde_json::from_value(json!({ "message": message })).unwrap()
    }

    fn text() -> Takes {
        Takes::Tool(Language::Text, json!({"type": "string"}))
    }

    fn order() -> Takes {
        let order = json!({"type": "object", "required": ["leaves"],
            "properties": {"leaves": {"type": "string"}, "cups": {"type": "integer"}}});
        Takes::Tool(
            Language::Json,
            json!({"$ref": "#/$defs/Order", "$defs": {"Order": order}}),
        )
    }

    #[test]
    fn the_only_skill_that_fits_is_meant() {
        let agent = agent(vec![
            skill("echo", text()),
            skill("hash", Takes::Tool(Language::Bytes, json!({}))),
        ]);
        let chosen = |parts: Value, name: Option<&str>| {
            let request = send(parts, name);
            let (skill, input) = choose(&agent, &request)?;
            Ok::<_, Fault>((skill.name.clone(), input.body))
        };
        let echo = chosen(json!([{"text": "a"}, {"text": "b"}]), None);
        assert_eq!(echo, Ok(("echo".to_owned(), json!("a\nb"))));
        let hash = chosen(json!([{"raw": "AAE="}]), None);
        assert_eq!(hash, Ok(("hash".to_owned(), json!("AAE="))));
        for (parts, name) in [
            (json!([{"data": {"n": 1}}]), None),
            (json!([{"text": "a"}]), Some("hash")),
            (json!([{"url": "http://127.0.0.1/"}]), None),
        ] {
            let unfit = chosen(parts, name);
            assert!(
                matches!(unfit, Err(Fault::ContentTypeNotSupported(_))),
                "{unfit:?}"
            );
        }
        for (parts, name) in [
            (json!([{"text": "a"}]), Some("nothing")),
            (json!([{"text": "a"}, {"data": 1}]), None),
            (json!([{"raw": "!"}]), None),
        ] {
            let wrong = chosen(parts, name);
            assert!(matches!(wrong, Err(Fault::BadMember { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn whole_numbers_are_written_as_such() {
        let value = json!({"a": [3.0, -1.0, 0.5, 1e300, 7], "b": "3.0"});
        let read = json!({"a": [3, -1, 0.5, 1e300, 7], "b": "3.0"});
        assert_eq!(whole_numbers(value), read);
    }

    #[test]
    fn one_of_several_must_be_named() {
        let agent = agent(vec![skill("echo", text()), skill("trade", Takes::Anything)]);
        let request = send(json!([{"text": "a"}]), None);
        let Err(Fault::BadMember { field, problem }) = choose(&agent, &request) else {
            panic!("it is not clear");
        };
        assert_eq!(field, "metadata.skill");
        assert!(problem.contains("echo, trade"));
        let request = send(json!([{"text": "a"}]), Some("trade"));
        assert_eq!(choose(&agent, &request).unwrap().0.name, "trade");
    }

    #[test]
    fn a_text_is_json_or_the_only_text_that_is_needed() {
        let agent = agent(vec![skill("brew", order())]);
        for (said, body) in [
            ("oolong", json!({"leaves": "oolong"})),
            (
                r#"{"leaves": "oolong", "cups": 2}"#,
                json!({"leaves": "oolong", "cups": 2}),
            ),
            ("12", json!({"leaves": "12"})),
        ] {
            let request = send(json!([{"text": said}]), None);
            assert_eq!(choose(&agent, &request).unwrap().1.body, body);
        }
    }
}

//! JSON Schema of agents' tools for callers.

use serde_json::{Map, Value, json};

/// How a body fits into an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The body is an object.
    Object,
    /// The body is the only member of an object.
    Member,
}

/// The schema of a body that is an object, or of an object with the body as its member `member`. None if it is no schema
/// of values.
pub fn as_object(schema: Value, member: &str) -> Option<(Map<String, Value>, Shape)> {
    let Value::Object(mut schema) = schema else {
        return None;
    };
    let definitions = schema.remove("$defs");
    let named = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| reference.strip_prefix("#/$defs/"))
        .and_then(|name| definitions.as_ref()?.get(name)?.as_object());
    if let Some(named) = named {
        let mut whole = named.clone();
        schema.remove("$ref");
        whole.append(&mut schema);
        schema = whole;
    }
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    let (mut schema, shape) = if is_object {
        (schema, Shape::Object)
    } else {
        let mut properties = Map::new();
        properties.insert(member.to_owned(), Value::Object(schema));
        let wrapped = json!({"type": "object", "properties": properties, "required": [member]});
        let Value::Object(wrapped) = wrapped else {
            return None;
        };
        (wrapped, Shape::Member)
    };
    if let Some(definitions) = definitions {
        schema.insert("$defs".to_owned(), definitions);
    }
    Some((schema, shape))
}

/// The language of a body, by its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// JSON.
    Json,
    /// Text as it is.
    Text,
    /// Bytes, which stand in JSON in base64.
    Bytes,
}

impl Language {
    /// The language of bodies with this schema: a text is written as it is, everything else in JSON.
    pub fn of(schema: &Value) -> Self {
        match schema.get("type").and_then(Value::as_str) {
            Some("string") if schema.get("contentEncoding").is_some() => Self::Bytes,
            Some("string") if schema.get("format").is_none() => Self::Text,
            _ => Self::Json,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_stays_as_it_is() {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let (object, shape) = as_object(schema.clone(), "input").unwrap();
        assert_eq!((Value::Object(object), shape), (schema, Shape::Object));
    }

    #[test]
    fn a_named_object_stands_in_place_of_its_name() {
        let definitions = json!({"Prompt": {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}}, "N": {}});
        let schema = json!({"$ref": "#/$defs/Prompt", "$defs": definitions});
        let (object, shape) = as_object(schema, "input").unwrap();
        assert_eq!(shape, Shape::Object);
        assert_eq!(object["properties"]["n"]["$ref"], "#/$defs/N");
        assert_eq!(object["$defs"], definitions);
    }

    #[test]
    fn anything_else_becomes_a_member() {
        let schema = json!({"type": "array", "items": {"$ref": "#/$defs/N"}, "$defs": {"N": {}}});
        let (object, shape) = as_object(schema, "input").unwrap();
        assert_eq!(shape, Shape::Member);
        assert_eq!(object["properties"]["input"]["items"]["$ref"], "#/$defs/N");
        assert_eq!(object["$defs"], json!({"N": {}}));
        assert!(as_object(json!(true), "input").is_none());
        // A name that leads in a circle is no object.
        let circle = json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}});
        assert_eq!(as_object(circle, "input").unwrap().1, Shape::Member);
    }

    #[test]
    fn text_and_bytes_are_written_as_they_are() {
        assert_eq!(Language::of(&json!({"type": "string"})), Language::Text);
        let bytes = json!({"type": "string", "contentEncoding": "base64"});
        assert_eq!(Language::of(&bytes), Language::Bytes);
        assert_eq!(Language::of(&json!({"type": "integer"})), Language::Json);
        let date = json!({"type": "string", "format": "date"});
        assert_eq!(Language::of(&date), Language::Json);
    }
}

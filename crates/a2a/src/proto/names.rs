//! The names of members and values in ProtoJSON. A reader also takes a field's name in the `.proto` file, and the number of an
//! enumeration's value (protobuf.dev, ProtoJSON Format).

use serde_json::{Map, Value};

use super::schema::{Fields, Kind};

/// A message with the members that it has, by their first names. Other values stay as they are.
pub(super) fn known(fields: &Fields, value: Value) -> Value {
    let Value::Object(told) = value else {
        return value;
    };
    let mut read = Map::new();
    for (name, value) in told {
        let Some(field) = fields.iter().find(|field| is_name(field.name, &name)) else {
            continue;
        };
        let value = match (field.kind, value) {
            (Kind::Message(fields), Value::Array(list)) => {
                list.into_iter().map(|it| known(fields, it)).collect()
            }
            (Kind::Message(fields), value) => known(fields, value),
            (Kind::Choice(names), Value::Number(number)) => {
                let place = number.as_u64().and_then(|it| usize::try_from(it).ok());
                let name = place.and_then(|place| names.get(place));
                name.map_or(Value::Number(number), |name| (*name).into())
            }
            (_, value) => value,
        };
        read.insert(field.name.to_owned(), value);
    }
    read.into()
}

/// Whether a member is meant: `taskId`, which is `task_id` in the `.proto` file.
fn is_name(name: &str, told: &str) -> bool {
    if name == told {
        return true;
    }
    let mut told = told.chars();
    let is_same = name.chars().all(|letter| {
        if letter.is_ascii_uppercase() {
            told.next() == Some('_') && told.next() == Some(letter.to_ascii_lowercase())
        } else {
            told.next() == Some(letter)
        }
    });
    is_same && told.next().is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proto::schema::SEND;

    #[test]
    fn members_have_two_names_and_strangers_are_passed_over() {
        let told = json!({
            "message": {
                "message_id": "m", "role": 1, "unknown": 1, "contextId": "c",
                "parts": [{"data": {"task_id": 1}, "media_type": "application/json", "x": []}],
                "metadata": {"task_id": 2},
            },
            "configuration": {"return_immediately": true},
            "Message": {},
        });
        assert_eq!(
            known(SEND, told),
            json!({
                "message": {
                    "messageId": "m", "role": "ROLE_USER", "contextId": "c",
                    "parts": [{"data": {"task_id": 1}, "mediaType": "application/json"}],
                    "metadata": {"task_id": 2},
                },
                "configuration": {"returnImmediately": true},
            })
        );
        assert_eq!(known(SEND, json!({"message": 7})), json!({"message": 7}));
        assert!(
            !is_name("taskId", "task_idx") && !is_name("taskId", "task") && !is_name("id", "i_d")
        );
    }
}

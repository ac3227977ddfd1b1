//! Bodies in JSON.

use sealbus_fipa::{AclMessageRef, Content};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Body, BodyError, JSON, WrittenBody, json_content, place, shortened};

/// A body in JSON of any type that serde knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned> Body for Json<T> {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        let text = serde_json::to_string(&self.0).map_err(BodyError::whole)?;
        Ok(WrittenBody {
            content: Content::Text(text),
            language: Some(JSON.to_owned()),
            ontology: None,
        })
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        let content = json_content(message)?;
        let mut reader = serde_json::Deserializer::from_slice(&content);
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            misfit(&path, &error.into_inner())
        })?;
        reader.end().map_err(|error| misfit(".", &error))?;
        Ok(Self(value))
    }
}

fn misfit(path: &str, error: &serde_json::Error) -> BodyError {
    let text = error.to_string();
    // If a value does not fit, the error already has its place. If the text is not JSON, the line and column say more.
    let problem = match text.rfind(" at line ") {
        Some(end) if error.is_data() => shortened(&text[..end]),
        _ => shortened(&text),
    };
    BodyError::Misfit {
        place: place(path),
        problem,
    }
}

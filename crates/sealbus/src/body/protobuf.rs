//! Bodies that are protobuf messages.

use prost::{Message, Name};
use sealbus_fipa::{AclMessageRef, Content};

use super::{Body, BodyError, PROTOBUF, WrittenBody, check_ontology, content_in};

/// A body that is a protobuf message. The message's full name, such as `factory.v1.Task`, is the ontology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Protobuf<T>(pub T);

impl<T: Message + Name + Default> Body for Protobuf<T> {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        Ok(WrittenBody {
            content: Content::Bytes(self.0.encode_to_vec()),
            language: Some(PROTOBUF.to_owned()),
            ontology: Some(T::full_name()),
        })
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        let content = content_in(message, PROTOBUF)?;
        check_ontology(message, &T::full_name())?;
        T::decode(&*content).map(Self).map_err(BodyError::whole)
    }
}

//! Requests whose types name their answers.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Fault;

/// A request to another part of the platform. Its type names the type of its answer.
pub trait Ask: Into<Self::Requests> {
    /// The requests of its conversation, as they travel.
    type Requests: Serialize;
    /// The answers of its conversation, as they travel.
    type Answers: DeserializeOwned;
    /// The answer to this request.
    type Answer: TryFrom<Self::Answers, Error: Into<Fault>>;

    /// The answer to this request among the answers of its conversation.
    ///
    /// # Errors
    /// [`FaultCode::Internal`](crate::FaultCode::Internal) if the answer is of another kind.
    fn take(answer: Self::Answers) -> Result<Self::Answer, Fault> {
        answer.try_into().map_err(Into::into)
    }
}

/// Declares a conversation. The first block lists the requests, each with the type of its answer. It becomes an enum
/// for the wire, and a module with one [`Ask`] for each request. The second block lists the answers. They become an
/// enum with conversions from and to the types of its kinds; `()` stands for a kind without contents. The texts in
/// parentheses are the JSON members that name the kind.
macro_rules! conversation {
    (
        $(#[doc = $asked:literal])+
        pub enum $requests:ident in $asks:ident ($ask_tag:tt) { $(
            $(#[doc = $text:literal])+
            $ask:ident $({ $(
                $(#[doc = $field_text:literal])+
                $(#[serde $how:tt])?
                $field:ident: $type:ty,
            )+ })? -> $answer:ty;
        )+ }
        $(#[doc = $answered:literal])+
        pub enum $answers:ident ($answer_tag:tt) { $(
            $kind:ident $(($held:ty))? $({ $member:ident: $content:ty })?;
        )+ }
    ) => {
        $(#[doc = $asked])+
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(tag = $ask_tag, rename_all = "kebab-case")]
        pub enum $requests { $(
            $(#[doc = $text])+
            $ask $({ $(
                $(#[doc = $field_text])+
                $(#[serde $how])?
                $field: $type,
            )+ })?,
        )+ }

        $(#[doc = $asked])+
        #[doc = concat!("Each is an [`Ask`](crate::ask::Ask), and travels as one of [`", stringify!($requests), "`].")]
        pub mod $asks {
            #[allow(unused_imports, reason = "not all requests have contents")]
            use super::*;

            $(crate::ask::conversation!(@ask
                $(#[doc = $text])+
                $ask $({ $( $(#[doc = $field_text])+ pub $field: $type, )+ })?
            );)+
        }

        impl crate::ask::Ask for &$requests {
            type Requests = Self;
            type Answers = $answers;
            type Answer = $answers;
        }

        $(
            impl From<$asks::$ask> for $requests {
                fn from($asks::$ask $({ $($field),+ })?: $asks::$ask) -> Self {
                    Self::$ask $({ $($field),+ })?
                }
            }

            impl crate::ask::Ask for $asks::$ask {
                type Requests = $requests;
                type Answers = $answers;
                type Answer = $answer;
            }
        )+

        $(#[doc = $answered])+
        #[allow(missing_docs, reason = "the types of the kinds say what they are")]
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(tag = $answer_tag, rename_all = "kebab-case")]
        #[allow(clippy::large_enum_variant, reason = "an answer is read as soon as it is there")]
        pub enum $answers { $( $kind $(($held))? $({ $member: $content })?, )+ }

        $(crate::ask::conversation!(@answer $answers $kind $(($held))? $({ $member: $content })?);)+
    };

    (@ask $(#[doc = $text:literal])+ $ask:ident) => {
        $(#[doc = $text])+
        #[derive(Clone, Debug)]
        pub struct $ask;
    };
    (@ask $(#[doc = $text:literal])+ $ask:ident $fields:tt) => {
        $(#[doc = $text])+
        #[derive(Clone, Debug)]
        pub struct $ask $fields
    };

    (@answer $answers:ident $kind:ident) => {
        crate::ask::conversation!(@convert $answers, (), _held, [$answers::$kind], ());
    };
    (@answer $answers:ident $kind:ident ($type:ty)) => {
        crate::ask::conversation!(@convert $answers, $type, held, [$answers::$kind(held)], held);
    };
    (@answer $answers:ident $kind:ident { $held:ident: $type:ty }) => {
        crate::ask::conversation!(@convert $answers, $type, $held, [$answers::$kind { $held }], $held);
    };
    (@convert $answers:ident, $type:ty, $held:ident, [$($answer:tt)+], $taken:expr) => {
        impl From<$type> for $answers {
            fn from($held: $type) -> Self {
                $($answer)+
            }
        }

        impl TryFrom<$answers> for $type {
            type Error = crate::Fault;

            fn try_from(answer: $answers) -> Result<Self, crate::Fault> {
                match answer {
                    $($answer)+ => Ok($taken),
                    #[allow(unreachable_patterns, reason = "a conversation may have one kind of answer")]
                    _ => Err(crate::Fault::other_answer()),
                }
            }
        }
    };
}

pub(crate) use conversation;

//! Taking what was asked for out of an answer.

/// Gives an enum of answers a method for each kind of answer, which takes out what such an answer holds. One fault stands
/// for all answers to another question.
macro_rules! answers {
    ($answers:ident: $($kind:ident = $answer:pat => $held:expr, $what:ty;)+) => {
        impl $answers {
            $(
                #[doc = concat!("Takes out what an answer of the kind `", stringify!($kind), "` holds.")]
                ///
                /// # Errors
                /// [`FaultCode::Internal`](crate::FaultCode::Internal) if it is of another kind.
                pub fn $kind(self) -> Result<$what, crate::Fault> {
                    match self {
                        $answer => Ok($held),
                        #[allow(unreachable_patterns, reason = "a conversation may have one kind of answer")]
                        _ => Err(crate::Fault::other_answer()),
                    }
                }
            )+
        }
    };
}

pub(crate) use answers;

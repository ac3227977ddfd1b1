//! Extraction of the expected result from an answer.

/// Gives an enum of answers a method for each kind of answer, which takes out the contents of such an answer. One fault
/// stands for every answer to another question.
macro_rules! answers {
    ($answers:ident: $($kind:ident = $answer:pat => $held:expr, $what:ty;)+) => {
        impl $answers {
            $(
                #[doc = concat!("Takes out what an answer of the kind `", stringify!($kind), "` holds.")]
                ///
                /// # Errors
                /// [`FaultCode::Internal`](crate::FaultCode::Internal) if the answer is of another kind.
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

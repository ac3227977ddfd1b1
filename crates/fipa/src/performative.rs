//! The communicative act that a message performs (FIPA00037).

use alloc::boxed::Box;
use core::fmt;

macro_rules! performatives {
    ($($variant:ident $code:literal $name:literal $meaning:literal),* $(,)?) => {
        /// The communicative act of a message (FIPA00037): the 22 acts of the standard and any
        /// user-defined one.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum Performative {
            $(#[doc = $meaning] $variant,)*
            /// A user-defined act: any word that is not one of the standard names.
            ///
            /// Make such an act with [`Performative::from`], which knows the standard names.
            Other(Box<str>),
        }

        impl Performative {
            /// The 22 acts of the standard, in the order of their bit-efficient codes.
            pub const STANDARD: [Self; 22] = [$(Self::$variant),*];

            /// The name in lower case, as the standard writes it; a user-defined act as it was given.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(name) => name,
                }
            }

            /// The code of the bit-efficient encoding (FIPA00069), 0 for a user-defined act.
            pub fn code(&self) -> u8 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Other(_) => 0,
                }
            }

            /// The act with this bit-efficient code, 1 to 22.
            pub fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The standard act with this name, in any letter case.
            pub fn standard(name: &[u8]) -> Option<Self> {
                // The longest name has 16 letters.
                let mut lower = [0u8; 16];
                let lower = lower.get_mut(..name.len())?;
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                $(if lower == $name.as_bytes() { return Some(Self::$variant); })*
                None
            }

            /// The meaning of the act, in one line.
            pub fn meaning(&self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                    Self::Other(_) => "A user-defined act.",
                }
            }
        }
    };
}

performatives! {
    AcceptProposal 0x01 "accept-proposal" "I take your earlier offer under these conditions.",
    Agree 0x02 "agree" "I will do it, perhaps once a condition holds.",
    Cancel 0x03 "cancel" "I no longer want you to do the action.",
    Cfp 0x04 "cfp" "Call for proposals: who will do this, at which terms?",
    Confirm 0x05 "confirm" "It is true; I think you were unsure.",
    Disconfirm 0x06 "disconfirm" "It is false; I think you believed it or were unsure.",
    Failure 0x07 "failure" "I tried the action but it did not work.",
    Inform 0x08 "inform" "This proposition is true.",
    InformIf 0x09 "inform-if" "Macro act: tell whether a proposition is true.",
    InformRef 0x0a "inform-ref" "Macro act: tell the object that matches a description.",
    NotUnderstood 0x0b "not-understood" "I saw your act but could not understand it.",
    Propagate 0x0c "propagate" "Treat the embedded message as sent to you, and pass this on.",
    Propose 0x0d "propose" "I offer to do the action under these conditions.",
    Proxy 0x0e "proxy" "Send the embedded message to the agents that match this description.",
    QueryIf 0x0f "query-if" "Is this true?",
    QueryRef 0x10 "query-ref" "Which objects match this expression?",
    Refuse 0x11 "refuse" "I will not do it, because of this.",
    RejectProposal 0x12 "reject-proposal" "I do not take your offer, because of this.",
    Request 0x13 "request" "Please do this action.",
    RequestWhen 0x14 "request-when" "Do the action once, when the proposition becomes true.",
    RequestWhenever 0x15 "request-whenever" "Do the action each time the proposition becomes true.",
    Subscribe 0x16 "subscribe" "Tell me the value of this reference, and again whenever it changes.",
}

impl From<&str> for Performative {
    /// The standard act of this name in any letter case, otherwise a user-defined act.
    fn from(name: &str) -> Self {
        Self::standard(name.as_bytes()).unwrap_or_else(|| Self::Other(name.into()))
    }
}

impl fmt::Display for Performative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

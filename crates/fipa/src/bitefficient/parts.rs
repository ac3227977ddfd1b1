//! A message in two parts: the parameters that lead it to its receivers and to its conversation, and the rest. A sealed
//! message shows the first part and hides the second, so that neither is carried twice.

use alloc::vec::Vec;

use super::encode::{
    TextForm, Written, write_act, write_agents, write_content, write_length, write_optional,
    write_others,
};
use super::token::Bracket;
use crate::parameter::Parameter;
use crate::{AclMessage, EncodeError};

/// The bytes before the act.
const BEGINNING: [u8; 2] = [0xfa, 0x10];
/// The end mark.
const END: u8 = 0x01;

/// Appends the sender, the receivers, `:conversation-id` and `:reply-with` to `leading`, and everything else to `rest`: the
/// act, the other parameters, the content and the end mark. [`join_parts`] makes one message of them.
///
/// # Errors
/// As [`encode`](super::encode). Both may then hold a part of the message.
pub fn encode_parts(
    message: &AclMessage,
    leading: &mut Vec<u8>,
    rest: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let mut write = || -> Written {
        write_agents(message, leading)?;
        write_optional(Parameter::ConversationId, &message.conversation_id, leading)?;
        write_optional(Parameter::ReplyWith, &message.reply_with, leading)?;
        write_act(&message.performative, rest)?;
        write_others::<false>(message, rest)?;
        if let Some(content) = &message.content {
            write_content(content, TextForm::default(), rest)
                .map_err(|error| error.inside("content"))?;
        }
        rest.push(END);
        Ok(())
    };
    write().map_err(|error| *error)
}

/// The pieces that are the encoding of a message, one behind the other: `leading` goes behind the act, with which `rest`
/// begins. `None`: `rest` does not begin with an act.
pub fn join_parts<'a>(leading: &'a [u8], rest: &'a [u8]) -> Option<[&'a [u8]; 4]> {
    let (act, after) = rest.split_at_checked(act_length(rest)?)?;
    Some([&BEGINNING, act, leading, after])
}

/// As [`join_parts`], in place: `bytes` has room for the beginning and for `leading` before `rest`.
///
/// # Errors
/// The unchanged bytes, if there is no such room, or if the bytes behind it do not begin with an act.
pub fn join_in_place(leading: &[u8], mut bytes: Vec<u8>) -> Result<Vec<u8>, Vec<u8>> {
    let room = room_before_rest(leading);
    let Some(length) = bytes.get(room..).and_then(act_length) else {
        return Err(bytes);
    };
    bytes.copy_within(room..room + length, BEGINNING.len());
    bytes[..BEGINNING.len()].copy_from_slice(&BEGINNING);
    bytes[BEGINNING.len() + length..room + length].copy_from_slice(leading);
    Ok(bytes)
}

/// The room that [`join_in_place`] needs before the rest.
pub fn room_before_rest(leading: &[u8]) -> usize {
    BEGINNING.len() + leading.len()
}

/// The length of the act at the beginning of a rest.
fn act_length(rest: &[u8]) -> Option<usize> {
    match rest {
        [0x00, 0x10, name @ ..] => Some(memchr::memchr(0, name)? + 3),
        [0x01..=0x16, ..] => Some(1),
        _ => None,
    }
}

/// Ends a message with content of this length: appends everything before the content. The content and one byte 01 follow.
///
/// # Errors
/// If the content is longer than 4 GiB.
pub fn begin_content(length: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.push(Parameter::Content as u8);
    write_length(Bracket::None, length, out).map_err(|error| *error.inside("content"))
}

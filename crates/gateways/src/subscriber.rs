//! Where a subscriber of the DF wrote from. The gateway notes it in the subscriber's identifier. The DF keeps the
//! identifier with the subscription, and names it in each notice. Thus no notice goes to a place that the subscriber only
//! claims, also after the gateway has forgotten who wrote. Free of I/O.

use std::net::IpAddr;

use sealbus_bus::{ORIGIN_PARAMETER, is_foreign};
use sealbus_fipa::{AclMessage, Aid, Expression, Performative};
use sealbus_seal::PlatformName;

/// The local name of the directory that takes subscriptions from outside.
const DIRECTORY: &str = "df";

/// Notes that the sender of a message from outside wrote from `address`, if it subscribes at the DF. `receivers`: the
/// names of the receivers here. A note of the sender's own does not count.
pub(crate) fn note(message: &mut AclMessage, receivers: &[String], address: IpAddr) {
    let is_directory = |name: &String| {
        name.rsplit_once('@')
            .is_some_and(|(local, _)| local == DIRECTORY)
    };
    let subscribes =
        message.performative == Performative::Subscribe && receivers.iter().any(is_directory);
    let Some(sender) = &mut message.sender else {
        return;
    };
    forget(sender);
    if subscribes {
        let address = Expression::String(address.to_canonical().to_string());
        let note = (ORIGIN_PARAMETER.to_owned(), address);
        sender.user_defined.push(note);
    }
}

/// Removes the note from an identifier.
pub(crate) fn forget(aid: &mut Aid) {
    aid.user_defined
        .retain(|(name, _)| !name.eq_ignore_ascii_case(ORIGIN_PARAMETER));
}

/// Where `receiver` wrote from, if the message is of the DF of `platform` and its identifier has the note. A request does
/// not count: the DFs that our DF asks have stated their identifiers themselves, when they registered.
pub(crate) fn noted(
    message: &AclMessage,
    receiver: &str,
    platform: &PlatformName,
) -> Option<IpAddr> {
    let sender = message.sender.as_ref()?;
    if message.performative == Performative::Request
        || sender.local_name() != DIRECTORY
        || is_foreign(&sender.name, platform)
    {
        return None;
    }
    let subscriber = message.receivers.iter().find(|it| it.name == receiver)?;
    let mut parameters = subscriber.user_defined.iter();
    let (_, address) = parameters.find(|(name, _)| name.eq_ignore_ascii_case(ORIGIN_PARAMETER))?;
    address.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aid(name: &str) -> Aid {
        Aid::new(name).unwrap()
    }

    /// A message from outside, whose sender claims to have written from elsewhere.
    fn from_outside(performative: Performative, receiver: &str) -> AclMessage {
        let mut sender = aid("x@far");
        let forged = (
            ORIGIN_PARAMETER.to_lowercase(),
            Expression::from("203.0.113.9"),
        );
        sender.user_defined.push(forged);
        let mut message = AclMessage::new(performative).with_sender(sender);
        note(
            &mut message,
            &[receiver.to_owned()],
            "198.51.100.7".parse().unwrap(),
        );
        message
    }

    #[test]
    fn the_directory_learns_where_its_subscriber_wrote_from() {
        let platform = PlatformName::new("one").unwrap();
        let place = |subscribe: AclMessage, answerer: &str| {
            let answer = AclMessage::new(Performative::Inform)
                .with_sender(aid(answerer))
                .with_receiver(subscribe.sender.unwrap());
            noted(&answer, "x@far", &platform)
        };
        let subscribe = || from_outside(Performative::Subscribe, "df@one");
        let wrote_from: Option<IpAddr> = "198.51.100.7".parse().ok();
        assert_eq!(place(subscribe(), "df@one"), wrote_from);
        // Only the DF is believed, and only subscribers need the note.
        assert_eq!(place(subscribe(), "alice@one"), None);
        assert_eq!(place(subscribe(), "df@two"), None);
        let request = from_outside(Performative::Request, "df@one");
        assert_eq!(place(request, "df@one"), None);
        let other = from_outside(Performative::Subscribe, "alice@one");
        assert_eq!(place(other, "df@one"), None);
    }

    #[test]
    fn a_df_that_registers_here_does_not_say_where_it_wrote_from() {
        let platform = PlatformName::new("one").unwrap();
        let mut registered = aid("df@far");
        let forged = (ORIGIN_PARAMETER.to_owned(), Expression::from("203.0.113.9"));
        registered.user_defined.push(forged);
        let question = AclMessage::new(Performative::Request)
            .with_sender(aid("df@one"))
            .with_receiver(registered);
        assert_eq!(noted(&question, "df@far", &platform), None);
    }
}

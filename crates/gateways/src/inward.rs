//! The checks of a message from outside before its delivery. Free of I/O.

use std::sync::Arc;

use sealbus_bus::{Delegation, ForeignOrigin, ORIGIN_PARAMETER, is_foreign};
use sealbus_fipa::envelope::Received;
use sealbus_fipa::{AclMessage, Aid, Limits};
use sealbus_seal::PlatformName;

use crate::book::MOST_ADDRESSES;
use crate::counters::Turned;
use crate::policy::{Admission, GatewayPolicy, MessageOrigin};
use crate::subscriber;
use crate::transmission::Transmission;

/// The longest name of a sender, in bytes.
const LONGEST_SENDER: usize = 500;

/// A message that may be delivered.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) message: Arc<AclMessage>,
    /// Names of agents of this platform, each once.
    pub(crate) receivers: Vec<String>,
    /// The id that tells this message apart from others of the same platform, if it has an id.
    pub(crate) id: Option<String>,
    /// Whether the rules that admit the message name the network or the certificate of its platform.
    pub(crate) is_located: bool,
}

/// Why a message is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TurnedAway {
    pub(crate) what: Turned,
    /// The sender, as far as the message says.
    pub(crate) sender: String,
    /// The intended receiver.
    pub(crate) receiver: Option<String>,
    pub(crate) explanation: String,
}

impl TurnedAway {
    /// A request that was refused before its sender was known.
    pub(crate) fn before_its_sender_is_known(what: Turned, explanation: String) -> Self {
        Self {
            what,
            sender: "a client".to_owned(),
            receiver: None,
            explanation,
        }
    }
}

/// Judges a message that came from `origin`. `own` holds the gateway's addresses.
pub(crate) fn judge(
    transmission: Transmission,
    origin: &MessageOrigin,
    platform: &PlatformName,
    own: &[String],
    policy: &GatewayPolicy,
) -> Result<Accepted, Box<TurnedAway>> {
    let Transmission {
        envelope,
        mut message,
        ..
    } = transmission;
    let mut sender = message.sender.as_ref().map(|it| it.name.clone());
    let turn = |what, sender: &Option<String>, receiver: Option<&str>, explanation: String| {
        Box::new(TurnedAway {
            what,
            sender: sender.clone().unwrap_or_else(|| origin.address.to_string()),
            receiver: receiver.map(str::to_owned),
            explanation,
        })
    };
    if let Some(stamp) = envelope.stamps().find(|stamp| own.contains(&stamp.by)) {
        let explanation = format!(
            "the message was here before: its envelope has a stamp of {}",
            stamp.by
        );
        return Err(turn(Turned::Loop, &sender, None, explanation));
    }
    let current = envelope.into_current();
    // The envelope fills in parameters that the message leaves out, as in JADE.
    match (&mut message.sender, &current.from) {
        (Some(said), Some(from)) if said.addresses.is_empty() && said.name == from.name => {
            said.addresses.clone_from(&from.addresses);
        }
        (none @ None, Some(from)) => {
            sender = Some(from.name.clone());
            *none = Some(from.clone());
        }
        _ => {}
    }
    let Some(said) = &mut message.sender else {
        let explanation = "neither message nor envelope names a sender".to_owned();
        return Err(turn(Turned::Malformed, &sender, None, explanation));
    };
    said.addresses.truncate(MOST_ADDRESSES);
    let home = match said.name.rsplit_once('@') {
        Some((_, home)) if said.name.len() <= LONGEST_SENDER && Aid::new(&said.name).is_ok() => {
            home.to_owned()
        }
        _ => {
            let name = said.name.escape_debug().take(200).collect::<String>();
            let explanation =
                format!("the sender's name '{name}' is not of the form agent@platform");
            return Err(turn(Turned::Malformed, &None, None, explanation));
        }
    };
    if !is_foreign(&said.name, platform) {
        let explanation = format!(
            "{} claims to be of this platform, but came from {}",
            said.name, origin.address
        );
        return Err(turn(Turned::ForgedSender, &sender, None, explanation));
    }
    if let Some(from) = &current.from
        && from
            .platform()
            .is_none_or(|platform| !platform.eq_ignore_ascii_case(&home))
    {
        let explanation = format!(
            "the message says that {} wrote it, the envelope says {}",
            said.name,
            from.name.escape_debug().take(200).collect::<String>()
        );
        return Err(turn(Turned::ForgedSender, &sender, None, explanation));
    }
    let is_intended = !current.intended_receivers.is_empty();
    let named = if is_intended {
        current.intended_receivers
    } else {
        current.to
    };
    let receivers =
        receivers(&named, is_intended, platform).map_err(|(receiver, explanation)| {
            turn(Turned::Relay, &sender, Some(&receiver), explanation)
        })?;
    let mut admitted = Admission {
        may_register: true,
        is_located: true,
    };
    let answered = answered(&mut message.reply_to, &home, platform).map_err(|other| {
        let explanation = format!(
            "answers are to go to {}, which is of neither platform, and nothing is passed on to others here",
            other.escape_debug()
        );
        turn(Turned::Relay, &sender, Some(&other), explanation)
    })?;
    // An agent that answers writes to other agents here. The sender must be permitted to write to those agents itself.
    for receiver in receivers.iter().chain(&answered) {
        let local = receiver.rsplit_once('@').map_or("", |(local, _)| local);
        match policy.admit(&home, origin, local) {
            Some(admission) => {
                admitted.may_register &= admission.may_register;
                admitted.is_located &= admission.is_located;
            }
            None => {
                let local = local.chars().take(200).collect::<String>();
                let explanation = format!(
                    "the gateway does not let platform {home} ({}) write to {local}: sealbus gateway allow {home} --to {local}",
                    origin.address
                );
                return Err(turn(
                    Turned::NotPermitted,
                    &sender,
                    Some(receiver),
                    explanation,
                ));
            }
        }
    }
    let chain = Delegation::from_sender(&message.view(), sender.as_deref().unwrap_or_default())
        .map_err(|error| turn(Turned::NotPermitted, &sender, None, error.to_string()))?;
    let ours = chain.askers().iter().find(|it| !is_foreign(it, platform));
    if let Some(ours) = ours {
        let explanation = format!(
            "it says to be on behalf of {ours}, and agents of this platform speak for themselves"
        );
        return Err(turn(Turned::NotPermitted, &sender, None, explanation));
    }
    let id = current
        .received
        .as_ref()
        .and_then(|stamp| stamp_id(&home, stamp));
    message
        .user_defined
        .retain(|(name, _)| !name.eq_ignore_ascii_case(ORIGIN_PARAMETER));
    let known = ForeignOrigin {
        address: origin.address.to_string(),
        certificate: origin.certificate.clone(),
        may_register: admitted.may_register,
    };
    message
        .user_defined
        .push((ORIGIN_PARAMETER.to_owned(), known.to_expression()));
    subscriber::note(&mut message, &receivers, origin.address);
    Ok(Accepted {
        message: Arc::new(message),
        receivers,
        id,
        is_located: admitted.is_located,
    })
}

/// The agents of this platform that are to get answers, by their names here. The name of an agent that belongs neither
/// here nor to the sender's `home` is an error.
fn answered(
    reply_to: &mut [Aid],
    home: &str,
    platform: &PlatformName,
) -> Result<Vec<String>, String> {
    let mut ours = Vec::new();
    for aid in reply_to {
        aid.addresses.truncate(MOST_ADDRESSES);
        match aid.name.rsplit_once('@') {
            Some((local, there)) if there.eq_ignore_ascii_case(platform.as_str()) => {
                ours.push(format!("{local}@{platform}"));
            }
            Some((_, there)) if there.eq_ignore_ascii_case(home) => {}
            _ => return Err(aid.name.chars().take(200).collect()),
        }
    }
    Ok(ours)
}

/// The receivers of ours, by the names they have here.
fn receivers(
    named: &[Aid],
    is_intended: bool,
    platform: &PlatformName,
) -> Result<Vec<String>, (String, String)> {
    let mut ours = Vec::new();
    let mut other = None;
    if named.len() > Limits::DEFAULT.agents {
        let explanation = format!(
            "the envelope names {} receivers, and the limit is {}",
            named.len(),
            Limits::DEFAULT.agents
        );
        return Err((named[0].name.chars().take(200).collect(), explanation));
    }
    for aid in named {
        match aid.name.rsplit_once('@') {
            Some((local, home)) if home.eq_ignore_ascii_case(platform.as_str()) => {
                let name = format!("{local}@{platform}");
                if !ours.contains(&name) {
                    ours.push(name);
                }
            }
            _ => other = Some(aid.name.chars().take(200).collect::<String>()),
        }
    }
    match other {
        // Receivers in `to` that are elsewhere get their own copies. Intended receivers must all be here.
        Some(other) if is_intended || ours.is_empty() => {
            let explanation = format!(
                "{} is not an agent of {platform}, and nothing is passed on to other platforms here",
                other.escape_debug()
            );
            Err((other, explanation))
        }
        _ => Ok(ours),
    }
}

fn stamp_id(home: &str, stamp: &Received) -> Option<String> {
    let id = stamp.id.as_ref().filter(|id| !id.is_empty())?;
    (id.len() <= 200 && stamp.by.len() <= 1000).then(|| format!("{home} {} {id}", stamp.by))
}

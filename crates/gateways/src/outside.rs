//! The form of a message for other platforms: every agent of this platform has the gateway's address.

use sealbus_bus::{ORIGIN_PARAMETER, is_foreign};
use sealbus_fipa::management::ONTOLOGY;
use sealbus_fipa::sl::{
    ActionExpression, Arguments, Content, ContentExpression, FunctionalTerm, IdentifyingExpression,
    Parameter, Profile, Term, Wff,
};
use sealbus_fipa::{AclMessage, Aid, Expression, Limits};
use sealbus_seal::PlatformName;

use crate::address::{Address, Transport};
use crate::http::HttpAddress;
use crate::iiop::OwnObject;
use crate::subscriber;

/// The addresses by which other platforms reach the gateway.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) http: String,
    pub(crate) iiop: Option<OwnObject>,
    /// Every form of every address.
    pub(crate) all: Vec<String>,
    /// The same addresses as ways.
    pub(crate) ways: Vec<Address>,
}

impl Own {
    pub(crate) fn new(http: HttpAddress, iiop: Option<OwnObject>) -> Self {
        let object = iiop.iter();
        let texts = object
            .clone()
            .flat_map(|it| [it.ior.clone(), it.corbaloc.clone()]);
        let ways = object.map(|it| Address::Iiop(it.profile.clone()));
        Self {
            all: std::iter::once(http.to_string()).chain(texts).collect(),
            ways: std::iter::once(Address::Http(http.clone()))
                .chain(ways)
                .collect(),
            http: http.to_string(),
            iiop,
        }
    }

    /// The addresses that an agent of this platform has in a message over `transport`: first that of the same transport,
    /// since other platforms try them in order.
    fn of_agents(&self, transport: Transport) -> Vec<String> {
        let mut addresses = vec![self.http.clone()];
        addresses.extend(self.iiop.iter().map(|it| it.ior.clone()));
        if transport == Transport::Iiop {
            addresses.reverse();
        }
        addresses
    }
}

/// Gives the platform's agents their addresses in a message over `transport`.
pub(crate) struct Outside<'a> {
    pub(crate) platform: &'a PlatformName,
    pub(crate) own: &'a Own,
    pub(crate) transport: Transport,
}

impl Outside<'_> {
    fn is_ours(&self, name: &str) -> bool {
        name.contains('@') && !is_foreign(name, self.platform)
    }

    pub(crate) fn aid(&self, aid: &mut Aid) {
        subscriber::forget(aid);
        if self.is_ours(&aid.name) {
            aid.addresses = self.own.of_agents(self.transport);
            aid.resolvers.clear();
        }
    }

    /// Rewrites the agents in the message's parameters, and in content about agent management: the requests to AMS and
    /// DF, and their answers (FIPA00023).
    pub(crate) fn message(&self, message: &mut AclMessage) {
        message
            .user_defined
            .retain(|(name, _)| !name.eq_ignore_ascii_case(ORIGIN_PARAMETER));
        let senders = message.sender.iter_mut();
        for aid in senders
            .chain(&mut message.receivers)
            .chain(&mut message.reply_to)
        {
            self.aid(aid);
        }
        let says = |parameter: &Option<Expression>, is: fn(&str) -> bool| {
            parameter
                .as_ref()
                .and_then(Expression::as_str)
                .is_some_and(is)
        };
        let is_management = says(&message.ontology, |it| it.eq_ignore_ascii_case(ONTOLOGY))
            && says(&message.language, |it| it.parse::<Profile>().is_ok());
        if !is_management {
            return;
        }
        let rewritten = message.content_bytes().and_then(|content| {
            let mut content = Content::parse(content, &Limits::DEFAULT).ok()?;
            content
                .expressions
                .iter_mut()
                .for_each(|it| self.expression(it));
            Some(content.to_string())
        });
        if let Some(rewritten) = rewritten {
            message.content = Some(rewritten.into());
        }
    }

    fn expression(&self, expression: &mut ContentExpression<'_>) {
        match expression {
            ContentExpression::Identifying(it) => self.identifying(it),
            ContentExpression::Action(it) => self.action(it),
            ContentExpression::Proposition(it) => self.formula(it),
        }
    }

    fn identifying(&self, it: &mut IdentifyingExpression<'_>) {
        self.term(&mut it.term);
        self.formula(&mut it.condition);
    }

    fn action(&self, action: &mut ActionExpression<'_>) {
        match action {
            ActionExpression::Action { agent, act } => {
                self.term(agent);
                self.term(act);
            }
            ActionExpression::Choice(both) | ActionExpression::Sequence(both) => {
                self.action(&mut both.0);
                self.action(&mut both.1);
            }
        }
    }

    fn formula(&self, formula: &mut Wff<'_>) {
        match formula {
            Wff::True | Wff::False | Wff::Symbol(_) => {}
            Wff::Predicate(it) => self.function(it),
            Wff::Equals(both) | Wff::Result(both) => {
                self.term(&mut both.0);
                self.term(&mut both.1);
            }
            Wff::Not(it) | Wff::Quantified(_, _, it) => self.formula(it),
            Wff::Connective(_, both) => {
                self.formula(&mut both.0);
                self.formula(&mut both.1);
            }
            Wff::Modal(_, both) => {
                self.term(&mut both.0);
                self.formula(&mut both.1);
            }
            Wff::Feasible(both) | Wff::Done(both) => {
                self.action(&mut both.0);
                both.1.iter_mut().for_each(|it| self.formula(it));
            }
        }
    }

    fn term(&self, term: &mut Term<'_>) {
        match term {
            Term::Function(it) => self.function(it),
            Term::Sequence(terms) | Term::Set(terms) => {
                terms.iter_mut().for_each(|it| self.term(it));
            }
            Term::Action(it) => self.action(it),
            Term::Identifying(it) => self.identifying(it),
            _ => {}
        }
    }

    fn function(&self, function: &mut FunctionalTerm<'_>) {
        match &mut function.arguments {
            Arguments::Positional(terms) => terms.iter_mut().for_each(|it| self.term(it)),
            Arguments::Named(parameters) => {
                for parameter in parameters.iter_mut() {
                    self.term(&mut parameter.value);
                }
            }
        }
        let Arguments::Named(parameters) = &mut function.arguments else {
            return;
        };
        let named = |parameters: &[Parameter<'_>], is: fn(&Outside<'_>, &str) -> bool| {
            parameters.iter().any(|it| {
                it.name.eq_ignore_ascii_case("name")
                    && it.value.as_text().is_some_and(|name| is(self, name))
            })
        };
        let addresses = || {
            let all = self.own.of_agents(self.transport).into_iter();
            Term::Sequence(all.map(Term::text).collect())
        };
        if function.symbol.eq_ignore_ascii_case("agent-identifier")
            && named(parameters, |this, name| this.is_ours(name))
        {
            parameters.retain(|it| {
                let is = |slot: &str| it.name.eq_ignore_ascii_case(slot);
                !(is("addresses") || is("resolvers"))
            });
            let after_name = parameters
                .iter()
                .position(|it| it.name.eq_ignore_ascii_case("name"))
                .map_or(0, |at| at + 1);
            parameters.insert(after_name, Parameter::new("addresses", addresses()));
        } else if function.symbol.eq_ignore_ascii_case("ap-description")
            && named(parameters, |this, name| {
                name.trim_matches('"')
                    .eq_ignore_ascii_case(this.platform.as_str())
            })
        {
            parameters.retain(|it| !it.name.eq_ignore_ascii_case("ap-services"));
            parameters.push(Parameter::new("ap-services", self.services()));
        }
    }

    /// A service for each transport (FIPA00023, ap-service).
    fn services<'t>(&self) -> Term<'t> {
        let service = |transport: Transport, addresses: Vec<String>| {
            let addresses = addresses.into_iter().map(Term::text).collect();
            Term::frame(
                "ap-service",
                vec![
                    Parameter::new("name", Term::text(transport.name())),
                    Parameter::new("type", Term::text(transport.name())),
                    Parameter::new("addresses", Term::Sequence(addresses)),
                ],
            )
        };
        let http = service(Transport::Http, vec![self.own.http.clone()]);
        let iiop = self.own.iiop.iter().map(|it| {
            let addresses = vec![it.ior.clone(), it.corbaloc.clone()];
            service(Transport::Iiop, addresses)
        });
        Term::Set(std::iter::once(http).chain(iiop).collect())
    }

    /// The description of the platform, which answers a GET request.
    pub(crate) fn description(&self) -> String {
        let name = Parameter::new("name", Term::text(self.platform.as_str()));
        let services = Parameter::new("ap-services", self.services());
        Term::frame("ap-description", vec![name, services]).to_string()
    }
}

#[cfg(test)]
mod tests {
    use sealbus_fipa::Performative;

    use super::*;

    fn outside(mut message: AclMessage) -> AclMessage {
        let platform = PlatformName::new("factory").unwrap();
        Outside {
            platform: &platform,
            own: &Own::new("http://h:7778/acc".parse().unwrap(), None),
            transport: Transport::Http,
        }
        .message(&mut message);
        message
    }

    #[test]
    fn agents_of_ours_get_the_address_wherever_they_stand() {
        let aid = |name: &str| Aid::new(name).unwrap().with_address("http://old:1/acc");
        let content = "((result (action (agent-identifier :name df@factory) (search)) (sequence \
            (df-agent-description :name (agent-identifier :name seller@factory :addresses (sequence x)) \
            :services (set (service-description :name s :type t))) \
            (df-agent-description :name (agent-identifier :name a@plat1 :addresses (sequence http://p:1/acc))))))";
        let mut message = AclMessage::new(Performative::Inform)
            .with_sender(aid("df@factory"))
            .with_receiver(aid("a@plat1"))
            .with_receiver(aid("b@Factory"))
            .with_language("FIPA-SL0")
            .with_ontology("FIPA-Agent-Management")
            .with_content(content);
        message.user_defined.push((
            ORIGIN_PARAMETER.to_lowercase(),
            Expression::Word("x".to_owned()),
        ));
        let message = outside(message);
        assert_eq!(message.sender.unwrap().addresses, ["http://h:7778/acc"]);
        assert_eq!(message.receivers[0].addresses, ["http://old:1/acc"]);
        assert_eq!(message.receivers[1].addresses, ["http://h:7778/acc"]);
        assert!(message.user_defined.is_empty());
        let content = match message.content.unwrap() {
            sealbus_fipa::Content::Text(text) => text,
            sealbus_fipa::Content::Bytes(_) => unreachable!(),
        };
        for expected in [
            ":name df@factory :addresses (sequence http://h:7778/acc)",
            ":name seller@factory :addresses (sequence http://h:7778/acc)",
            ":name a@plat1 :addresses (sequence http://p:1/acc)",
        ] {
            assert!(content.contains(expected), "{content}");
        }
    }

    #[test]
    fn other_contents_are_left_as_they_are() {
        let content = "((p (agent-identifier :name df@factory)))";
        let message = AclMessage::new(Performative::Inform)
            .with_language("fipa-sl")
            .with_ontology("planets")
            .with_content(content);
        assert_eq!(outside(message).content_text(), Some(content));
    }
}

//! Offering services and finding them, on an embedded platform with its real AMS and DF.

use sealbus::directory::{
    AgentState, AmsAgentDescription, DfAgentDescription, DirectoryError, SearchConstraints,
    ServiceDescription,
};
use sealbus::{Agent, AgentResult, Context, RequestError, agent, run_agents};

fn names(entries: &[DfAgentDescription]) -> Vec<&str> {
    let mut names: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry.name.as_ref())
        .map(|name| name.local_name())
        .collect();
    names.sort_unstable();
    names
}

/// Offers a service until it is stopped, then removes its entry.
struct Shop(&'static str);

impl Agent for Shop {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        context
            .df()
            .register([ServiceDescription::new("shop", self.0)])
            .await?;
        Ok(())
    }

    async fn on_message(&mut self, context: &mut Context, _: sealbus::Message) -> AgentResult {
        context.stop();
        Ok(())
    }

    async fn teardown(&mut self, context: &mut Context) -> AgentResult {
        context.df().deregister().await?;
        Ok(())
    }
}

#[tokio::test]
async fn services_are_registered_found_changed_and_taken_back() {
    struct Buyer;
    impl Agent for Buyer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            // The notices of a subscription: the present entries, new ones, and those that went.
            let shops = context.df().subscribe("bookshop").await?;
            let mut known = Vec::new();
            while known.len() < 2 {
                known.extend(shops.next().await?);
            }
            assert_eq!(names(&known), ["anna", "bert"]);
            assert_eq!(
                names(&context.df().search("bookshop").await?),
                ["anna", "bert"]
            );
            assert_eq!(
                names(
                    &context
                        .df()
                        .search(ServiceDescription::of_type("grocer"))
                        .await?
                ),
                ["carl"]
            );
            let one = context
                .df()
                .search_with("bookshop", SearchConstraints::at_most(1))
                .await?;
            assert_eq!(one.len(), 1);
            assert!(context.df().search("smithy").await?.is_empty());

            let close = sealbus::AclMessage::new(sealbus::Performative::Inform)
                .with_receiver(context.peer("anna")?);
            context.send(close).await?;
            let gone = shops.next().await?;
            assert_eq!(names(&gone), ["anna"]);
            assert!(gone[0].services.is_empty());
            assert_eq!(names(&context.df().search("bookshop").await?), ["bert"]);
            shops.cancel().await?;

            // Registering again replaces the entry, and deregistering twice is no error.
            context
                .df()
                .register([ServiceDescription::new("mine", "smithy")])
                .await?;
            context
                .df()
                .register([ServiceDescription::new("mine", "mill")])
                .await?;
            assert!(context.df().search("smithy").await?.is_empty());
            assert_eq!(names(&context.df().search("mill").await?), ["buyer"]);
            context.df().deregister().await?;
            context.df().deregister().await?;
            assert!(context.df().search("mill").await?.is_empty());
            let error = context
                .df()
                .modify(DfAgentDescription::default())
                .await
                .unwrap_err();
            assert!(
                matches!(&error, DirectoryError::Refused { agent, .. } if agent == "buyer@home"),
                "{error}"
            );

            let elsewhere = context.peer("df@elsewhere")?;
            let error = context.df().at(elsewhere).search("mill").await.unwrap_err();
            assert!(
                matches!(
                    error,
                    DirectoryError::Request(RequestError::Undeliverable { .. })
                ),
                "{error}"
            );
            context.stop_all();
            Ok(())
        }
    }
    run_agents([
        agent("anna", Shop("bookshop")),
        agent("bert", Shop("bookshop")),
        agent("carl", Shop("grocer")),
        agent("buyer", Buyer),
    ])
    .await
    .unwrap();
}

#[tokio::test]
async fn the_white_pages_know_every_agent() {
    struct Curious;
    impl Agent for Curious {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let own = context.aid().clone();
            let entry = context.ams().find(&own).await?.unwrap();
            assert_eq!(entry.state, Some(AgentState::Active));
            assert_eq!(
                entry.name.map(|name| name.name).as_deref(),
                Some("curious@home")
            );
            let everybody = context.ams().search(AmsAgentDescription::default()).await?;
            assert!(everybody.iter().any(|entry| {
                entry
                    .name
                    .as_ref()
                    .is_some_and(|name| name.local_name() == "df")
            }));
            let nobody = context.peer("nobody")?;
            assert!(context.ams().find(&nobody).await?.is_none());
            let platform = context.ams().description().await?;
            assert_eq!(platform.len(), 1);
            context.stop();
            Ok(())
        }
    }
    run_agents([agent("curious", Curious)]).await.unwrap();
}

#[tokio::test]
async fn an_agent_is_told_which_agents_come_and_go() {
    struct Watcher;
    impl Agent for Watcher {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let template = AmsAgentDescription {
                state: Some(AgentState::Active),
                ..AmsAgentDescription::default()
            };
            let news = context.ams().subscribe(template).await?;
            let mut known = Vec::new();
            while !known.contains(&"watcher".to_owned()) {
                known.extend(told(&news.next().await?));
            }
            let anna = context.spawn("anna", Shop("bookshop")).await?;
            while !known.contains(&"anna".to_owned()) {
                known.extend(told(&news.next().await?));
            }
            let close = sealbus::AclMessage::new(sealbus::Performative::Inform).with_receiver(anna);
            context.send(close).await?;
            while !known.contains(&"anna has gone".to_owned()) {
                known.extend(told(&news.next().await?));
            }
            assert!(news.try_next().is_none());
            news.cancel().await?;
            context.stop_all();
            Ok(())
        }
    }
    fn told(news: &[AmsAgentDescription]) -> Vec<String> {
        let name = |agent: &AmsAgentDescription| {
            let name = agent.name.as_ref().unwrap().local_name().to_owned();
            match agent.state {
                Some(_) => name,
                None => format!("{name} has gone"),
            }
        };
        news.iter().map(name).collect()
    }
    run_agents([agent("watcher", Watcher)]).await.unwrap();
}

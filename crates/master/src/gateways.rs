//! The Master's view of the gateways: the operators' rules, kept in the store, and the gateways' state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::GATEWAY;
use sealbus_gateways::{GatewayPolicy, GatewayRule};
use tokio::sync::Mutex;

use sealbus_control::admin::GatewayState;
use sealbus_control::correspondence::Correspondent;
use sealbus_control::mcp::ask_mcp;
use sealbus_control::neighbours::ask_neighbours;
use sealbus_control::node::ask_gateway;
use sealbus_control::{Fault, FaultCode, Rules};
use sealbus_management::LoadError;
use sealbus_manifest::neighbours::NeighbourEntry;
use sealbus_manifest::{A2A_AGENT, GATEWAY_VARIABLE, MCP_AGENT, NEIGHBOURS_AGENT};
use sealbus_store::{Batch, Store};

use crate::desk::{Desk, DeskHandle};
use crate::registry::GroupOrigin;

/// The key of the rules' row.
const RULES_ROW: &str = "gateway/rules";
/// How long the gateway may take to answer, and to obey new rules.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How often the Master checks whether the gateway obeys them.
const LOOK: Duration = Duration::from_millis(20);

/// The operators' rules for the gateway.
pub(crate) struct GatewayRules {
    store: Arc<dyn Store>,
    rules: Mutex<GatewayPolicy>,
}

impl GatewayRules {
    /// Reads the rules from the store.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) async fn load(store: Arc<dyn Store>) -> Result<Self, LoadError> {
        let rules = match store.get(RULES_ROW).await? {
            Some(row) => serde_json::from_slice(&row.value).map_err(|error| LoadError::Row {
                key: RULES_ROW.to_owned(),
                detail: error.to_string(),
            })?,
            None => GatewayPolicy::default(),
        };
        Ok(Self {
            store,
            rules: Mutex::new(rules),
        })
    }

    /// The rules.
    pub(crate) async fn get(&self) -> GatewayPolicy {
        self.rules.lock().await.clone()
    }

    /// Adds a rule. An equal rule is replaced.
    ///
    /// # Errors
    /// If the rule is not valid, or the store fails.
    pub(crate) async fn allow(&self, rule: GatewayRule) -> Result<GatewayPolicy, Fault> {
        self.change(move |policy| {
            policy.rules.retain(|known| *known != rule);
            policy.rules.push(rule);
            Ok(())
        })
        .await
    }

    /// Takes back all rules for a platform.
    ///
    /// # Errors
    /// If there is none, or the store fails.
    pub(crate) async fn deny(&self, platform: &str) -> Result<GatewayPolicy, Fault> {
        self.change(move |policy| {
            let before = policy.rules.len();
            policy
                .rules
                .retain(|rule| !rule.platform.eq_ignore_ascii_case(platform));
            if policy.rules.len() == before {
                let message = format!("no operator has allowed {platform} anything");
                return Err(Fault::new(FaultCode::Unknown, message)
                    .advise("rules of the manifest are changed in the manifest"));
            }
            Ok(())
        })
        .await
    }

    /// Has the directory tell the rules to all processes, also to the gateway's. They go over the control plane, which is
    /// proved at every level.
    ///
    /// # Errors
    /// If the Master is ending.
    pub(crate) async fn put_in_force(&self, desk: &DeskHandle) -> Result<(), Fault> {
        // While they are locked, no later ones overtake these.
        let rules = self.rules.lock().await;
        let gateway = rules.clone();
        let putting = move |desk: &mut Desk, _| {
            let rules = desk.state.directory().rules().clone();
            desk.state.set_rules(Rules { gateway, ..rules });
            Ok(())
        };
        desk.run(putting).await
    }

    async fn change(
        &self,
        change: impl FnOnce(&mut GatewayPolicy) -> Result<(), Fault>,
    ) -> Result<GatewayPolicy, Fault> {
        let mut rules = self.rules.lock().await;
        let mut changed = rules.clone();
        change(&mut changed)?;
        changed
            .check()
            .map_err(|error| Fault::new(FaultCode::BadRequest, error.to_string()))?;
        let mut batch = Batch::new();
        let row = serde_json::to_vec(&changed)
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
        batch.put(RULES_ROW, row);
        self.store
            .commit(batch)
            .await
            .map_err(|error| Fault::new(FaultCode::Storage, error.to_string()))?;
        rules.clone_from(&changed);
        Ok(changed)
    }
}

/// Waits until the gateway obeys these rules of the operators, if it runs.
pub(crate) async fn until_obeyed(operator: &Correspondent, rules: &GatewayPolicy) {
    let obeying = async {
        while let Ok(status) = operator
            .ask(GATEWAY, ask_gateway::Status, ANSWER_TIME)
            .await
            && status.operators != *rules
        {
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(ANSWER_TIME, obeying).await.is_err() {
        tracing::info!("the gateway does not obey its new rules yet");
    }
}

/// The addresses of the gateway to FIPA platforms; none if it does not answer.
pub(crate) async fn addresses(operator: &Correspondent) -> Option<Vec<String>> {
    let asked = operator.ask(GATEWAY, ask_gateway::Status, ANSWER_TIME);
    let status = asked.await.inspect_err(silent).ok()?;
    Some(status.addresses)
}

/// Which of the manifest's gateways there are, by their agents' names. Without such a gateway its name is free for any agent.
pub(crate) fn known(desk: &Desk) -> BTreeSet<&'static str> {
    let is_gateway = |name: &&str| {
        let group = desk.state.group_of(name);
        group.is_some_and(|(_, group)| group.origin.is_gateway())
    };
    let names = [MCP_AGENT, A2A_AGENT, NEIGHBOURS_AGENT].into_iter();
    names.filter(is_gateway).collect()
}

/// Checks that an agent stands for a neighbour whose entry in the manifest names this audience of tokens. Such an agent may have
/// tokens for the agents that ask it.
pub(crate) fn check_stand_in(desk: &Desk, agent: &str, audience: &str) -> Result<(), Fault> {
    let environment = match desk.state.group_of(agent).map(|(_, group)| &group.origin) {
        Some(GroupOrigin::Program { environment, .. }) => environment.get(GATEWAY_VARIABLE),
        _ => None,
    };
    let entries = environment
        .and_then(|it| serde_json::from_str::<BTreeMap<String, NeighbourEntry>>(it).ok());
    let entry = entries.and_then(|mut entries| entries.remove(agent));
    match entry.and_then(|entry| entry.token_audience) {
        Some(wanted) if wanted == audience => Ok(()),
        _ => {
            let message = format!(
                "{agent} gets no workload token of another agent for {audience}: no neighbour of this name has that token-audience"
            );
            Err(Fault::new(FaultCode::NotPermitted, message))
        }
    }
}

/// The gateways' own reports, with these rules of the operators.
pub(crate) async fn state(
    operator: &Correspondent,
    rules: GatewayPolicy,
    known: BTreeSet<&'static str>,
) -> GatewayState {
    let known = &known;
    let callers = async |name: &'static str| {
        let asked = operator.ask(name, ask_mcp::Status, ANSWER_TIME);
        let asked = known.contains(name).then_some(asked)?;
        asked.await.inspect_err(silent).ok()
    };
    let neighbours = async {
        let asked = operator.ask(NEIGHBOURS_AGENT, ask_neighbours::Status, ANSWER_TIME);
        let asked = known.contains(NEIGHBOURS_AGENT).then_some(asked)?;
        asked.await.inspect_err(silent).ok()
    };
    let fipa = operator.ask(GATEWAY, ask_gateway::Status, ANSWER_TIME);
    let (status, mcp, a2a, neighbours) =
        tokio::join!(fipa, callers(MCP_AGENT), callers(A2A_AGENT), neighbours);
    GatewayState {
        status: status.inspect_err(silent).ok(),
        rules,
        mcp,
        a2a,
        neighbours,
    }
}

fn silent(error: &Fault) {
    tracing::info!(%error, "a gateway does not answer");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sealbus_store::MemoryStore;
    use serde_json::json;

    use super::*;

    fn rule(platform: &str) -> GatewayRule {
        serde_json::from_value(json!({ "platform": platform, "to": ["greeter"] })).unwrap()
    }

    #[tokio::test]
    async fn a_change_of_rules_that_the_store_does_not_keep_is_not_in_force() {
        let store = Arc::new(MemoryStore::new());
        let rules = GatewayRules::load(store.clone()).await.unwrap();
        let before = rules.allow(rule("plat1")).await.unwrap();
        store.set_full(true);
        let refused = [rules.allow(rule("plat2")).await, rules.deny("plat1").await];
        for refused in refused {
            assert_eq!(refused.unwrap_err().code, FaultCode::Storage);
        }
        assert_eq!(rules.get().await, before);
        let kept = GatewayRules::load(store).await.unwrap();
        assert_eq!(kept.get().await, before);
    }
}

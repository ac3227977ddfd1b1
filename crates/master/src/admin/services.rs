//! Messages and entries of the yellow pages, in the operators' name.

use sealbus_fipa::Aid;
use sealbus_fipa::management::{DfAgentDescription, DfFunction, ServiceDescription};

use super::{Admin, local};
use sealbus_control::admin::{Page, ServiceStatus, ServicesPage};
use sealbus_control::clock::now;
use sealbus_control::{Fault, FaultCode};
use sealbus_management::client::{Answer, ask_df};

impl Admin {
    pub(super) async fn search(
        &self,
        service_type: Option<String>,
        service_name: Option<String>,
        page: Page,
    ) -> Result<ServicesPage, Fault> {
        let first = page.start(|end| end.parse().ok())?.unwrap_or_default();
        let wanted = ServiceDescription {
            name: service_name.clone(),
            service_type: service_type.clone(),
            ..ServiceDescription::default()
        };
        let any = service_type.is_none() && service_name.is_none();
        let template = DfAgentDescription {
            services: if any { Vec::new() } else { vec![wanted] },
            ..DfAgentDescription::default()
        };
        let searching = self.system.directories.search(template, first, page.most());
        let (found, rest) = searching.await?;
        let fits = |wish: &Option<String>, found: &Option<String>| wish.is_none() || wish == found;
        let services = found
            .into_iter()
            .flat_map(|entry| {
                let agent = entry.name.map(|name| name.name).unwrap_or_default();
                entry
                    .services
                    .into_iter()
                    .map(move |service| (agent.clone(), service))
            })
            .filter(|(_, service)| {
                fits(&service_type, &service.service_type) && fits(&service_name, &service.name)
            })
            .map(|(agent, service)| ServiceStatus {
                agent,
                name: service.name,
                service_type: service.service_type,
            })
            .collect();
        Ok(ServicesPage {
            services,
            end: rest.map(|rest| rest.to_string()),
        })
    }

    pub(super) async fn register(
        &self,
        agent: String,
        service_type: String,
        service_name: String,
        lease: Option<u64>,
    ) -> Result<(), Fault> {
        let (agent, aid, df) = self.parties(&agent).await?;
        let known = agent.clone();
        let alive = self
            .desk
            .run(move |desk, _| Ok(desk.state.life(&known).is_some()))
            .await?;
        if !alive {
            return Err(Fault::new(
                FaultCode::Unknown,
                format!("there is no agent {agent} now"),
            ));
        }
        let lease_time = lease.map(lease_end).transpose()?;
        let service = ServiceDescription {
            name: Some(service_name.clone()),
            service_type: Some(service_type),
            ..ServiceDescription::default()
        };
        let function = match self.entry(&aid).await? {
            Some(mut entry) => {
                entry.services.retain(|known| known.name != service.name);
                entry.services.push(service);
                entry.lease_time = lease_time.or(entry.lease_time);
                DfFunction::Modify(entry)
            }
            None => DfFunction::Register(DfAgentDescription {
                name: Some(aid.clone()),
                services: vec![service],
                lease_time,
                ..DfAgentDescription::default()
            }),
        };
        self.change(aid, &df, &function).await
    }

    /// Removes one service of an agent, or all of them.
    ///
    /// # Errors
    /// The agent offers no such service.
    pub(super) async fn deregister(
        &self,
        agent: String,
        service_name: Option<String>,
    ) -> Result<(), Fault> {
        let (agent, aid, df) = self.parties(&agent).await?;
        let unknown = |what: String| Fault::new(FaultCode::Unknown, what);
        let Some(mut entry) = self.entry(&aid).await? else {
            return Err(unknown(format!("the DF has no services of {agent}")));
        };
        let offered = entry.services.len();
        entry
            .services
            .retain(|service| service_name.is_some() && service.name != service_name);
        if let Some(name) = &service_name
            && entry.services.len() == offered
        {
            return Err(unknown(format!("{agent} offers no service {name}")));
        }
        let function = if entry.services.is_empty() {
            DfFunction::Deregister(DfAgentDescription {
                name: Some(aid.clone()),
                ..DfAgentDescription::default()
            })
        } else {
            DfFunction::Modify(entry)
        };
        self.change(aid, &df, &function).await
    }

    /// The local name, the agent and the DF.
    async fn parties(&self, agent: &str) -> Result<(String, Aid, Aid), Fault> {
        let agent = local(agent);
        let platform = self.desk.run(|desk, _| Ok(desk.name.clone())).await?;
        let aid = |name: &str| {
            Aid::new(format!("{name}@{platform}"))
                .map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
        };
        let (agent_id, df) = (aid(&agent)?, aid("df")?);
        Ok((agent, agent_id, df))
    }

    /// The DF's entry of an agent.
    async fn entry(&self, aid: &Aid) -> Result<Option<DfAgentDescription>, Fault> {
        let template = DfAgentDescription {
            name: Some(aid.clone()),
            ..DfAgentDescription::default()
        };
        let searching = self.system.directories.search(template, 0, 1);
        let (found, _) = searching.await?;
        Ok(found.into_iter().next())
    }

    /// Has the DF change an entry in the agent's name.
    async fn change(&self, aid: Aid, df: &Aid, function: &DfFunction) -> Result<(), Fault> {
        self.desk.check_store()?;
        let name = aid.name.to_string();
        let message = ask_df(df, function).with_sender(aid);
        let reply = self.system.directories.on_behalf(&name, message).await?;
        Answer::read(&reply)
            .map_err(|error| Fault::new(FaultCode::BadRequest, error.to_string()))?;
        Ok(())
    }
}

fn lease_end(seconds: u64) -> Result<sealbus_fipa::DateTime, Fault> {
    let end = now().saturating_add(seconds.saturating_mul(1000));
    i64::try_from(end)
        .ok()
        .and_then(|end| sealbus_fipa::DateTime::from_unix_ms(end).ok())
        .ok_or_else(|| Fault::new(FaultCode::BadRequest, "the lease is too long"))
}

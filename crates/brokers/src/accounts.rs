//! The logins and the queues of a platform, which the Master keeps.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_seal::{Identity, SecurityLevel};
use tokio::sync::Mutex;

use crate::administration::{Account, Administration};
use crate::client::BrokerFailure;
use crate::config::BrokerPromise;
use crate::envelope::{Queue, Receiver};

/// The places of agents and processes in the platform's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The addresses from which agents may log in, by the agents' whole names.
    pub agents: HashMap<String, HashSet<IpAddr>>,
    /// The agents, by whole name, whose queues stay although they may not log in now.
    pub awaited: HashSet<String>,
    /// Processes, by their numbers.
    pub processes: HashSet<String>,
}

impl Placed {
    /// Lets an agent log in from `address`.
    pub fn admit(&mut self, agent: String, address: IpAddr) {
        self.agents.entry(agent).or_default().insert(address);
    }

    fn may_log_in(&self, account: &Account) -> bool {
        match &account.identity {
            Identity::Process { process, .. } => self.processes.contains(&process.to_string()),
            identity => identity
                .agent_name()
                .and_then(|name| self.agents.get(&name))
                .is_some_and(|addresses| addresses.contains(&account.address)),
        }
    }

    fn has_queue(&self, owner: &Receiver) -> bool {
        match owner {
            Receiver::Agent(name) => {
                self.agents.contains_key(&**name) || self.awaited.contains(&**name)
            }
            Receiver::Process(number) => self.processes.contains(&**number),
        }
    }
}

/// Keeps the logins and the queues at a broker in line with the directory.
pub struct Accounts {
    administration: Arc<dyn Administration>,
    level: SecurityLevel,
    promise: BrokerPromise,
    /// How long a queue must stay empty before it is removed. A broker may learn late that a reader died. The reader's
    /// messages are in the queue again only after that.
    settling: Duration,
    /// Held while a login is made or removed, so that an identity admitted meanwhile is not dismissed. Dismissal waits
    /// for nothing else.
    logins: Mutex<()>,
    /// Held while a queue is opened, emptied or removed. The map holds queues without an owner, and the time since which
    /// they have been empty.
    emptied: Mutex<HashMap<Queue, Instant>>,
}

impl Accounts {
    /// The accounts of a platform at this level, whose queues promise `promise`. A queue is removed once it has been
    /// empty for `settling`.
    pub fn new(
        administration: Arc<dyn Administration>,
        level: SecurityLevel,
        promise: BrokerPromise,
        settling: Duration,
    ) -> Self {
        Self {
            administration,
            level,
            promise,
            settling,
            logins: Mutex::new(()),
            emptied: Mutex::default(),
        }
    }

    /// Lets an agent or a process log in from `address`, and has messages wait for it from now on. Other identities are
    /// left alone.
    ///
    /// # Errors
    /// [`BrokerFailure`]: another attempt may help.
    pub async fn admit(&self, identity: &Identity, address: IpAddr) -> Result<(), BrokerFailure> {
        let owner = match identity {
            Identity::Process { process, .. } => Receiver::Process(process.to_string().into()),
            identity => match identity.agent_name() {
                Some(name) => Receiver::Agent(name.into()),
                None => return Ok(()),
            },
        };
        let queue = Queue {
            owner,
            promise: self.promise,
        };
        {
            let mut emptied = self.emptied.lock().await;
            emptied.remove(&queue);
            self.administration.open_queue(&queue).await?;
        }
        if self.level.authenticates() {
            let account = Account {
                identity: identity.clone(),
                address,
            };
            let _logins = self.logins.lock().await;
            self.administration.admit(&account).await?;
        }
        Ok(())
    }

    /// Dismisses the accounts that are not placed at their login address, and returns them. `placed` is asked while no
    /// other task changes logins; `None` ends the work.
    ///
    /// # Errors
    /// [`BrokerFailure`]: another attempt may help.
    pub async fn dismiss_others<F: Future<Output = Option<Placed>>>(
        &self,
        placed: impl FnOnce() -> F,
    ) -> Result<Vec<Account>, BrokerFailure> {
        let _logins = self.logins.lock().await;
        let Some(placed) = placed().await else {
            return Ok(Vec::new());
        };
        let mut dismissed = Vec::new();
        for account in self.administration.accounts().await? {
            if !placed.may_log_in(&account) {
                self.administration.dismiss(&account).await?;
                dismissed.push(account);
            }
        }
        Ok(dismissed)
    }

    /// Removes the queues of receivers that are placed nowhere, and the queues that a former promise of the platform has
    /// left. Unread messages of an agent go to the dead letters first, a part at each call. Returns whether there may be more of them.
    ///
    /// # Errors
    /// [`BrokerFailure`]: another attempt may help.
    pub async fn close_others<F: Future<Output = Option<Placed>>>(
        &self,
        placed: impl Fn() -> F,
    ) -> Result<bool, BrokerFailure> {
        let queues = self.administration.queues().await?;
        let Some(seen) = placed().await else {
            return Ok(false);
        };
        {
            let names: HashSet<_> = queues.iter().collect();
            let mut emptied = self.emptied.lock().await;
            emptied.retain(|queue, _| names.contains(queue));
        }
        let is_used = |queue: &Queue, by: &Placed| {
            queue.promise == self.promise && by.has_queue(&queue.owner)
        };
        let mut is_more = false;
        for queue in queues.into_iter().filter(|queue| !is_used(queue, &seen)) {
            // `placed` is asked again while no agent is admitted: the agent may be placed by now.
            let mut emptied = self.emptied.lock().await;
            let Some(placed) = placed().await else {
                return Ok(false);
            };
            if is_used(&queue, &placed) {
                continue;
            }
            match &queue.owner {
                Receiver::Agent(_) => is_more |= self.close(&queue, &mut emptied).await?,
                // A process that has outlived a Master with another promise goes on.
                Receiver::Process(_) if placed.has_queue(&queue.owner) => {}
                // The directory reports the end of a process to the processes that wrote to it.
                Receiver::Process(_) => self.administration.remove_queue(&queue).await?,
            }
        }
        Ok(is_more)
    }

    /// Takes a part of the messages that an agent left in a queue, or removes the queue. Returns whether it took
    /// messages.
    async fn close(
        &self,
        queue: &Queue,
        emptied: &mut HashMap<Queue, Instant>,
    ) -> Result<bool, BrokerFailure> {
        if self.administration.is_read(queue).await? {
            return Ok(false);
        }
        let buried = self.administration.bury(queue).await?;
        // Messages that a dead reader holds count too, until the broker gives them back.
        let depth = self.administration.depth(queue).await?;
        let is_empty = buried == 0 && depth.is_none_or(|messages| messages == 0);
        let since = emptied.entry(queue.clone()).or_insert_with(Instant::now);
        if !is_empty {
            *since = Instant::now();
        }
        if !is_empty || since.elapsed() < self.settling {
            return Ok(buried > 0);
        }
        emptied.remove(queue);
        self.administration.remove_queue(queue).await?;
        tracing::debug!(owner = %queue.owner, promise = ?queue.promise, "a queue was removed");
        Ok(false)
    }
}

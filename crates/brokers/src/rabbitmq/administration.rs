//! The administration of RabbitMQ, for the Master.

use hyper::{Method, StatusCode};
use sealbus_bus::BoxFuture;
use sealbus_seal::Identity;
use serde_json::{Value, json};

use super::management::{Management, ManagementError, POLICY, read};
use super::names::{self, ALL_MARKS, ALL_QUEUES, escape, exactly};
use super::notices::DEAD_LETTERS_KEPT;
use crate::administration::{Account, Administration, DeadLetter, Member, WaitingCounts};
use crate::client::BrokerFailure;
use crate::config::{BrokerPromise, Login};
use crate::envelope::{Queue, Receiver};

/// The number of connections that one agent or process may have, and of channels on them. It needs two of each. It may
/// have twice as many while it moves between two nodes of one address, and more while the broker has not noticed a dead
/// connection.
const CONNECTIONS: u32 = 16;

impl From<ManagementError> for BrokerFailure {
    fn from(error: ManagementError) -> Self {
        Self::new(error)
    }
}

impl Management {
    async fn make_shared(&self) -> Result<(), ManagementError> {
        let vhost = escape(&self.vhost);
        self.put(
            "make the virtual host",
            &format!("vhosts/{vhost}"),
            json!({}),
        )
        .await?;
        let own = format!("permissions/{vhost}/{}", escape(&self.operator));
        let everything = json!({"configure": ".*", "write": ".*", "read": ".*"});
        self.put("let the operator in", &own, everything).await?;
        for (exchange, kind) in [
            (names::MESSAGES, "direct"),
            (names::CHANNELS, "topic"),
            (names::DEAD, "fanout"),
        ] {
            let path = format!("exchanges/{vhost}/{}", escape(exchange));
            let body = json!({"type": kind, "durable": true});
            self.put("make an exchange", &path, body).await?;
        }
        let dead = names::DEAD_LETTERS;
        let arguments = json!({"x-queue-type": "quorum", "x-max-length": DEAD_LETTERS_KEPT, "x-overflow": "drop-head"});
        self.make_queue(dead, arguments).await?;
        self.bind(names::DEAD, dead, dead).await?;
        self.prepare_notices().await?;
        let policy = json!({
            "pattern": ALL_QUEUES,
            "definition": {"dead-letter-exchange": names::DEAD},
            "apply-to": "queues",
        });
        self.put(
            "make the policy",
            &format!("policies/{vhost}/{POLICY}"),
            policy,
        )
        .await
    }

    /// Makes the user that all agents share at the levels at which they do not prove their identity.
    async fn admit_all(&self, login: &Login) -> Result<(), ManagementError> {
        let user = escape(&login.user);
        let body = json!({"password": login.password, "tags": ""});
        self.put("make the shared user", &format!("users/{user}"), body)
            .await?;
        let body = json!({
            "configure": format!("{ALL_QUEUES}|{ALL_MARKS}"),
            "write": exactly([names::MESSAGES, names::CHANNELS]),
            "read": ALL_QUEUES,
        });
        let path = format!("permissions/{}/{user}", escape(&self.vhost));
        self.put("set the shared user's permissions", &path, body)
            .await
    }

    async fn make_queue_of(&self, queue: &Queue) -> Result<(), ManagementError> {
        // Both kinds outlive the broker's process. A classic queue then has lost its transient messages.
        let (kind, other) = match queue.promise {
            BrokerPromise::Durable => ("quorum", BrokerPromise::Transient),
            BrokerPromise::Transient => ("classic", BrokerPromise::Durable),
        };
        let name = names::queue(queue);
        self.make_queue(&name, json!({"x-queue-type": kind}))
            .await?;
        let (exchange, key) = match &queue.owner {
            Receiver::Agent(agent) => (names::MESSAGES, agent.to_string()),
            Receiver::Process(number) => (names::CHANNELS, names::key_of_process(number)),
        };
        let former = names::queue(&Queue {
            owner: queue.owner.clone(),
            promise: other,
        });
        self.unbind(exchange, &former).await?;
        self.bind(exchange, &name, &key).await
    }

    /// Makes the user of an agent or a process. The user may not read the exchange it writes to, so it cannot bind its
    /// queue to receive messages for others.
    async fn make_user(&self, account: &Account) -> Result<(), ManagementError> {
        let Account { identity, address } = account;
        let (owner, exchange) = match identity {
            Identity::Agent { .. } => {
                let name = identity.agent_name().unwrap_or_default();
                (Receiver::Agent(name.into()), names::MESSAGES)
            }
            Identity::Process { process, .. } => {
                let number = process.to_string();
                (Receiver::Process(number.into()), names::CHANNELS)
            }
            Identity::Node { .. } | Identity::Authority { .. } => return Ok(()),
        };
        let Some(user) = names::user_of(identity, *address) else {
            return Ok(());
        };
        let user = escape(&user);
        // An empty hash stands for no password: the certificate is the only way in.
        let body = json!({"password_hash": "", "tags": ""});
        self.put("make a user", &format!("users/{user}"), body)
            .await?;
        let of = |promise| {
            let owner = owner.clone();
            names::queue(&Queue { owner, promise })
        };
        let own = [BrokerPromise::Durable, BrokerPromise::Transient].map(of);
        let own = own.iter().map(String::as_str);
        let mark = names::mark(&owner);
        let body = json!({
            "configure": exactly(own.clone().chain([mark.as_str()])),
            "write": exactly([exchange]),
            "read": exactly(own),
        });
        let path = format!("permissions/{}/{user}", escape(&self.vhost));
        self.put("set a user's permissions", &path, body).await?;
        for (limit, value) in [
            ("max-connections", CONNECTIONS),
            ("max-channels", CONNECTIONS),
        ] {
            let path = format!("user-limits/{user}/{limit}");
            self.put("limit a user", &path, json!({"value": value}))
                .await?;
        }
        Ok(())
    }

    async fn remove_user(&self, account: &Account) -> Result<(), ManagementError> {
        let Some(user) = names::user_of(&account.identity, account.address) else {
            return Ok(());
        };
        self.delete("remove a user", &format!("users/{}", escape(&user)))
            .await
    }

    /// The broker's report on a queue; `None` if there is none of that name. The broker updates its counts every few
    /// seconds.
    async fn queue(&self, what: &str, queue: &Queue) -> Result<Option<Value>, ManagementError> {
        let path = format!(
            "queues/{}/{}",
            escape(&self.vhost),
            escape(&names::queue(queue))
        );
        let (status, answer) = self.ask(what, Method::GET, &path, None).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        read(what, status, &answer).map(Some)
    }
}

/// The answer to a request of the Master.
type Asked<'a, T> = BoxFuture<'a, Result<T, BrokerFailure>>;

impl Administration for Management {
    fn prepare<'a>(&'a self, shared: Option<&'a Login>) -> Asked<'a, ()> {
        Box::pin(async move {
            self.make_shared().await?;
            if let Some(login) = shared {
                self.admit_all(login).await?;
            }
            Ok(())
        })
    }

    fn open_queue<'a>(&'a self, queue: &'a Queue) -> Asked<'a, ()> {
        Box::pin(async { Ok(self.make_queue_of(queue).await?) })
    }

    fn admit<'a>(&'a self, account: &'a Account) -> Asked<'a, ()> {
        Box::pin(async { Ok(self.make_user(account).await?) })
    }

    fn dismiss<'a>(&'a self, account: &'a Account) -> Asked<'a, ()> {
        Box::pin(async { Ok(self.remove_user(account).await?) })
    }

    fn accounts(&self) -> Asked<'_, Vec<Account>> {
        Box::pin(async {
            let users = self.names("list the users", "users").await?;
            let account = |user: &String| {
                let (identity, address) = names::identity_of_user(user, &self.platform)?;
                Some(Account { identity, address })
            };
            Ok(users.iter().filter_map(account).collect())
        })
    }

    fn queues(&self) -> Asked<'_, Vec<Queue>> {
        Box::pin(async {
            let path = format!("queues/{}?columns=name", escape(&self.vhost));
            let queues = self.names("list the queues", &path).await?;
            let known = queues.iter().map(|name| names::queue_of_name(name));
            Ok(known.flatten().collect())
        })
    }

    fn is_read<'a>(&'a self, queue: &'a Queue) -> Asked<'a, bool> {
        Box::pin(async move {
            let queue = self.queue("say who reads a queue", queue).await?;
            let readers = queue.as_ref().map(|queue| &queue["consumer_details"]);
            Ok(readers
                .and_then(Value::as_array)
                .is_some_and(|readers| !readers.is_empty()))
        })
    }

    fn depth<'a>(&'a self, queue: &'a Queue) -> Asked<'a, Option<u64>> {
        Box::pin(async move {
            let queue = self.queue("say how many messages wait", queue).await?;
            Ok(queue.map(|queue| queue["messages"].as_u64().unwrap_or_default()))
        })
    }

    fn remove_queue<'a>(&'a self, queue: &'a Queue) -> Asked<'a, ()> {
        Box::pin(async move {
            let vhost = escape(&self.vhost);
            let mark = escape(&names::mark(&queue.owner));
            self.delete("remove a mark", &format!("exchanges/{vhost}/{mark}"))
                .await?;
            let path = format!("queues/{vhost}/{}", escape(&names::queue(queue)));
            Ok(self.delete("remove a queue", &path).await?)
        })
    }

    fn bury<'a>(&'a self, queue: &'a Queue) -> Asked<'a, usize> {
        Box::pin(async move { Ok(self.bury_left(queue).await?) })
    }

    fn take_dead(&self) -> Asked<'_, Vec<DeadLetter>> {
        Box::pin(async { Ok(self.take_notices().await?) })
    }

    fn members(&self) -> Asked<'_, Vec<Member>> {
        Box::pin(async { Ok(self.nodes().await?) })
    }

    fn waiting(&self) -> Asked<'_, WaitingCounts> {
        Box::pin(async { Ok(self.queue_depths().await?) })
    }
}

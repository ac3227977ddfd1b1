//! Instructions for operators who run a broker themselves.

use sealbus_seal::SecurityLevel;

use super::files::{BrokerSetup, CONFIGURATION, DEFINITIONS, PLUGINS};

/// File name of the instructions.
pub const README: &str = "README.md";

impl BrokerSetup {
    /// The next steps, for people. `ends` says when the certificate expires.
    pub fn instructions(&self, ends: &str) -> String {
        let Self {
            level,
            address,
            port,
            management_port,
            vhost,
            installed_at: at,
            ..
        } = self;
        let user = &self.operator.user;
        let login = match level {
            SecurityLevel::None => "The agents share a user with a password, in plain text.",
            SecurityLevel::Tls => "The agents share a user with a password, over TLS.",
            _ => "Each agent logs in with its own certificate.",
        };
        format!(
            "# A RabbitMQ for the platform {vhost}

It listens on {address}: port {port} for agents, {management_port} for the Master (management, HTTPS). Level {level}: {login}

| file | what |
|---|---|
| {CONFIGURATION} | its configuration; it names the others under {at} |
| {PLUGINS} | the plugins it needs |
| {DEFINITIONS} | the user {user}, by whom the Master manages it, with the hash of the password |
| broker.pem, broker.key | its certificate, signed by the platform's CA, and its key; it ends on {ends} |
| ca.pem | the platform's root certificate |

## Next steps

1. Put this folder at {at} on {address}. broker.key is a secret: let the user that RabbitMQ runs as read the folder,
   and nobody else (`chown -R rabbitmq: {at}`).
2. Start RabbitMQ 3.10 or later with it. Debian's service: write

       CONFIG_FILE={at}/{CONFIGURATION}
       ENABLED_PLUGINS_FILE={at}/{PLUGINS}

   into /etc/rabbitmq/rabbitmq-env.conf, and `systemctl restart rabbitmq-server`. By hand: the same two variables in the
   environment, as RABBITMQ_CONFIG_FILE and RABBITMQ_ENABLED_PLUGINS_FILE, and `rabbitmq-server`.
3. For a cluster (three brokers go on when one dies) make a folder for each, with the same manifest. Before they are started for
   the first time, give all of them the same .erlang.cookie: a line of random letters in the home of the user that RabbitMQ runs as
   (Debian: /var/lib/rabbitmq), owned by it, mode 0400. On all but the first, before the platform is started:

       rabbitmqctl stop_app
       rabbitmqctl join_cluster rabbit@FIRST
       rabbitmqctl start_app

   A broker that joins later gets copies of the queues by `rabbitmq-queues grow rabbit@LATER all`.
4. `sealbus up` with the manifest whose [rabbitmq] names all of them in addresses and management; its password-file holds
   the password of {user}.
5. `sealbus broker status` shows whether the brokers are there, and what waits.

Run the same command again before {ends}: it writes a new certificate. RabbitMQ reads it after
`rabbitmqctl eval 'ssl:clear_pem_cache().'`, for new connections.
"
        )
    }
}

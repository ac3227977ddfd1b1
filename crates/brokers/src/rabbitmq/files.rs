//! The files of a RabbitMQ of the platform: its configuration, plugins, definitions and certificate.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sealbus_files::{make_folder, write_private};
use sealbus_seal::{Credential, Fingerprint, SecurityLevel, certificate_pem, random};
use serde_json::json;

use crate::config::Login;

/// File name of the configuration.
pub(super) const CONFIGURATION: &str = "rabbitmq.conf";
/// File name of the list of plugins.
pub(super) const PLUGINS: &str = "enabled_plugins";
/// File name of the definitions.
pub(super) const DEFINITIONS: &str = "definitions.json";

/// The certificate that a broker shows, and the authorities that it trusts.
#[derive(Clone, Debug)]
pub struct BrokerCertificate {
    /// The platform's root, PEM.
    pub root: String,
    /// The broker's certificate and its issuers', PEM.
    pub chain: String,
    /// The certificate's key, PEM.
    pub key: String,
}

impl BrokerCertificate {
    /// The certificate from the platform's root (DER) and the broker's credential.
    pub fn new(root: &[u8], credential: &Credential) -> Self {
        let chain = credential.chain().to_certificates();
        Self {
            root: certificate_pem(root),
            chain: chain.iter().map(|der| certificate_pem(der)).collect(),
            key: credential.key().to_pkcs8_pem().to_string(),
        }
    }
}

/// How a broker of the platform is set up.
#[derive(Clone, Debug)]
pub struct BrokerSetup {
    /// The security level of the platform.
    pub level: SecurityLevel,
    /// The address on which the broker listens.
    pub address: IpAddr,
    /// Port of AMQP.
    pub port: u16,
    /// Port of the management interface (HTTPS).
    pub management_port: u16,
    /// The login by which the Master manages it.
    pub operator: Login,
    /// The virtual host of the platform.
    pub vhost: String,
    /// The broker's certificate.
    pub certificate: BrokerCertificate,
    /// The directory in which the files will lie when the broker reads them.
    pub installed_at: String,
}

impl BrokerSetup {
    /// Writes the files into `directory`, readable by their owner alone.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        make_folder(directory)?;
        for (name, text) in [
            ("ca.pem", self.certificate.root.as_str()),
            ("broker.pem", &self.certificate.chain),
            ("broker.key", &self.certificate.key),
            (
                PLUGINS,
                "[rabbitmq_management,rabbitmq_auth_mechanism_ssl].\n",
            ),
            (DEFINITIONS, &self.definitions()?),
            (CONFIGURATION, &self.configuration()),
        ] {
            write_private(&directory.join(name), text.as_bytes())?;
        }
        Ok(())
    }

    fn configuration(&self) -> String {
        let at = &self.installed_at;
        let address = match self.address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let port = self.port;
        let certificates = |prefix: &str| {
            format!(
                "{prefix}.cacertfile = {at}/ca.pem\n{prefix}.certfile = {at}/broker.pem\n{prefix}.keyfile = {at}/broker.key\n{prefix}.versions.1 = tlsv1.3\n"
            )
        };
        let listeners = match self.level {
            SecurityLevel::None => format!(
                "# Level none: plain AMQP, for measuring.\nlisteners.tcp.1 = {address}:{port}\nlisteners.ssl = none\nauth_mechanisms.1 = PLAIN\n"
            ),
            SecurityLevel::Tls => format!(
                "# Level tls: agents share a user.\nlisteners.tcp = none\nlisteners.ssl.1 = {address}:{port}\n{}ssl_options.verify = verify_none\nssl_options.fail_if_no_peer_cert = false\nauth_mechanisms.1 = PLAIN\n",
                certificates("ssl_options")
            ),
            _ => format!(
                "# Each agent logs in with its own certificate, and with nothing else.\nlisteners.tcp = none\nlisteners.ssl.1 = {address}:{port}\n{}ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\nssl_options.depth = 2\nauth_mechanisms.1 = EXTERNAL\nssl_cert_login_from = distinguished_name\n",
                certificates("ssl_options")
            ),
        };
        format!(
            "{listeners}\n# The Master admits agents and dismisses them here.\nmanagement.ssl.ip = {}\nmanagement.ssl.port = {}\n{}\nload_definitions = {at}/{DEFINITIONS}\n\n# Of a cluster, the part without a majority stops: a message it accepted could be lost.\ncluster_partition_handling = pause_minority\n\n# The platform has limits of its own. RabbitMQ's own one is lower than what nodes tell the Master.\nmax_message_size = 536870912\nlog.console = false\nlog.file.level = info\n",
            self.address,
            self.management_port,
            certificates("management.ssl"),
        )
    }

    fn definitions(&self) -> io::Result<String> {
        let Login { user, password } = &self.operator;
        let definitions = json!({
            "users": [{
                "name": user,
                "password_hash": password_hash(password)?,
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": ["administrator"],
            }],
            "vhosts": [{"name": self.vhost}],
            "permissions": [{
                "user": user, "vhost": self.vhost,
                "configure": ".*", "write": ".*", "read": ".*",
            }],
        });
        Ok(serde_json::to_string_pretty(&definitions)?)
    }
}

/// The password in RabbitMQ's stored form: a salt of four bytes, and SHA-256 of salt and password.
fn password_hash(password: &str) -> io::Result<String> {
    let salt: [u8; 4] = random().map_err(io::Error::other)?;
    let hash = Fingerprint::of(&[&salt[..], password.as_bytes()].concat());
    Ok(BASE64_STANDARD.encode([&salt[..], hash.as_bytes()].concat()))
}

//! `broker`: the files for an operator's own RabbitMQ, and the state of that broker.

use std::any::Any;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;

use sealbus_brokers::rabbitmq::{
    BrokerCertificate, BrokerSetup, ChosenBroker, README, RabbitEntry,
};
use sealbus_control::admin::{BrokerStatus, CertifiedBroker, ask};
use sealbus_control::{Blob, Login};
use sealbus_files::Private;
use sealbus_master::certify_broker_of;
use sealbus_seal::{
    CertificateChain, CertificateError, Credential, KeyError, KeyPair, PlatformName, random_hex,
};
use sealbus_store::etcd::EtcdSettings;
use serde_json::json;

use super::store::etcd;
use super::{cell, instant, manifest};
use crate::arguments::{BrokerRabbitMq, General};
use crate::connection::{Connection, directory_of};
use crate::error::CliError;
use crate::input;
use crate::output::{Output, table};

/// The usual ports of AMQP and of the management interface, both over TLS.
const PORTS: (u16, u16) = (5671, 15671);

/// `sealbus broker rabbitmq --write-config DIRECTORY`
pub(crate) async fn write_config(
    general: &General,
    broker: &BrokerRabbitMq,
    output: Output,
) -> Result<(), CliError> {
    let manifest = manifest::read(&broker.manifest)?;
    let entry = manifest.broker.as_deref().map(|broker| broker as &dyn Any);
    let entry = entry.and_then(|broker| broker.downcast_ref::<RabbitEntry>());
    let Some(ChosenBroker::Existing {
        addresses,
        management,
        operator,
        password_file,
    }) = entry.map(|entry| &entry.broker)
    else {
        return Err(CliError::Usage {
            message: format!(
                "{} does not say which RabbitMQ the platform runs on",
                input::name(&broker.manifest).display()
            ),
            help: "give [rabbitmq] addresses, management, operator and password-file; a managed one needs no files"
                .to_owned(),
        });
    };
    let failed = |message: String| CliError::Failed {
        message,
        help: None,
    };
    let name =
        PlatformName::new(&manifest.platform.name).map_err(|error| failed(error.to_string()))?;
    let level = manifest
        .platform
        .level
        .parse()
        .map_err(|error| failed(format!("{error}")))?;
    let address = listen(broker, addresses)?;
    let port = |asked: Option<u16>, named: &[String], usual| {
        let own = named.iter().filter_map(|text| place(text));
        let mut own = own.filter(|(host, _)| *host == address);
        asked
            .or_else(|| own.next().map(|(_, port)| port))
            .unwrap_or(usual)
    };
    let written = CliError::file("write", &broker.write_config);
    fs::create_dir_all(&broker.write_config).map_err(&written)?;
    let directory = broker.write_config.canonicalize().map_err(&written)?;
    let installed_at = broker.installed_at.as_ref().unwrap_or(&directory);
    let password = password(Path::new(password_file))?;
    let state = directory_of(general, &manifest.platform.name)?;
    let (root, credential) =
        request_broker_certificate(&state, name, etcd(&manifest).as_ref(), address).await?;
    let certificate = credential
        .certificate()
        .map_err(|error| failed(error.to_string()))?;
    let ends = instant(certificate.not_after().as_unix_seconds() * 1000);
    let setup = BrokerSetup {
        level,
        address,
        port: port(broker.port, addresses, PORTS.0),
        management_port: port(broker.management_port, management, PORTS.1),
        operator: Login {
            user: operator.clone(),
            password,
        },
        vhost: manifest.platform.name.clone(),
        certificate: BrokerCertificate::new(&root, &credential),
        installed_at: installed_at.display().to_string(),
    };
    setup.write(&directory).map_err(&written)?;
    let instructions = setup.instructions(&ends);
    fs::write(directory.join(README), &instructions).map_err(&written)?;
    let told = json!({
        "directory": directory,
        "address": address,
        "port": setup.port,
        "management-port": setup.management_port,
        "certificate-ends": ends,
    });
    output.show(&told, || {
        format!("written to {}\n\n{instructions}", directory.display())
    });
    Ok(())
}

/// `sealbus broker status`
pub(crate) async fn status(connection: &mut Connection, output: Output) -> Result<(), CliError> {
    let status = ask(connection).await?;
    output.show(&status, || {
        let mut brokers = table(&["BROKER", "STATE"]);
        for member in &status.members {
            let state = match (member.running, member.alarms.as_slice()) {
                (false, _) => "does not run".to_owned(),
                (true, []) => "takes messages".to_owned(),
                (true, alarms) => format!("takes no messages: short of {}", alarms.join(" and ")),
            };
            brokers.add_row([member.name.clone(), state]);
        }
        let mut waiting = table(&["AGENT", "MESSAGES THAT WAIT"]);
        for (agent, messages) in &status.waiting {
            waiting.add_row([agent.clone(), messages.to_string()]);
        }
        format!(
            "{}\n\n{}\n\n{} dead letters since the Master was started, {} kept by the broker: sealbus broker dead-letters",
            brokers.trim_fmt(),
            waiting.trim_fmt(),
            status.dead,
            status.kept
        )
    });
    Ok(())
}

/// `sealbus broker dead-letters`
pub(crate) async fn dead_letters(
    connection: &mut Connection,
    output: Output,
) -> Result<(), CliError> {
    let letters = ask(connection).await?.dead_letters;
    output.show(&letters, || {
        let mut table = table(&[
            "AT",
            "FROM",
            "TO",
            "PERFORMATIVE",
            "BYTES",
            "SENDER TOLD",
            "WHY",
        ]);
        for letter in &letters {
            table.add_row([
                instant(letter.at),
                cell(letter.from.as_ref()),
                cell(letter.to.as_ref()),
                cell(letter.performative.as_ref()),
                letter.bytes.to_string(),
                if letter.told { "yes" } else { "no" }.to_owned(),
                letter.why.clone(),
            ]);
        }
        table.trim_fmt()
    });
    Ok(())
}

async fn ask(connection: &mut Connection) -> Result<BrokerStatus, CliError> {
    connection.ask(ask::Broker).await
}

/// The address and port of `HOST:PORT`, if the host is an address.
fn place(text: &str) -> Option<(IpAddr, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']).parse().ok()?;
    Some((host, port.parse().ok()?))
}

/// The address on which the broker listens.
fn listen(broker: &BrokerRabbitMq, addresses: &[String]) -> Result<IpAddr, CliError> {
    if let Some(address) = broker.listen {
        return Ok(address);
    }
    match addresses {
        [only] if place(only).is_some() => Ok(place(only).map_or(IpAddr::from([0; 4]), |it| it.0)),
        _ => Err(CliError::Usage {
            message: format!(
                "it is not clear which broker this is: {}",
                addresses.join(", ")
            ),
            help: "say where it listens: --listen 10.0.0.5".to_owned(),
        }),
    }
}

/// Reads the operator's password from `file`, or makes a new one and keeps it there.
fn password(file: &Path) -> Result<String, CliError> {
    match fs::read_to_string(file) {
        Ok(text) if text.trim_end().is_empty() => {
            return Err(CliError::Failed {
                message: format!("{} has no password", file.display()),
                help: Some(
                    "write the operator's password into it, or remove it: then a new one is made"
                        .to_owned(),
                ),
            });
        }
        Ok(text) => return Ok(text.trim_end().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(CliError::file("read", file)(error)),
    }
    let password = random_hex::<16>()
        .map_err(|error| CliError::file("write", file)(io::Error::other(error)))?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .private()
        .open(file)
        .and_then(|mut file| writeln!(file, "{password}"))
        .map_err(CliError::file("write", file))?;
    Ok(password)
}

/// Has the broker certified: by the Master if it runs, otherwise by the CA in its state directory.
async fn request_broker_certificate(
    state: &Path,
    name: PlatformName,
    etcd: Option<&EtcdSettings>,
    address: IpAddr,
) -> Result<(Vec<u8>, Credential), CliError> {
    let key = KeyPair::generate()?;
    let request = key.signing_request()?;
    let (root, chain) = match Connection::to(state).await {
        Ok(mut master) => {
            let request = ask::CertifyBroker {
                address,
                request: Blob(request),
            };
            let CertifiedBroker { root, chain } = master.ask(request).await?;
            let chain = chain.into_iter().map(|der| der.0.into()).collect();
            (root.0, CertificateChain::new(chain)?)
        }
        Err(CliError::NoPlatform { .. } | CliError::StandsBy { .. }) => {
            certify_broker_of(state, name, etcd, address, request).await?
        }
        Err(error) => return Err(error),
    };
    Ok((root, Credential::new(key, chain)?))
}

impl From<KeyError> for CliError {
    fn from(error: KeyError) -> Self {
        Self::Failed {
            message: error.to_string(),
            help: None,
        }
    }
}

impl From<CertificateError> for CliError {
    fn from(error: CertificateError) -> Self {
        Self::Failed {
            message: error.to_string(),
            help: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_no_password() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("operator.secret");
        let made = password(&file).unwrap();
        assert!(!made.is_empty());
        assert_eq!(password(&file).unwrap(), made);
        fs::write(&file, "\n").unwrap();
        let error = password(&file).unwrap_err().to_string();
        assert!(error.ends_with("has no password"), "{error}");
    }
}

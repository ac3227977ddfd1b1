//! The other process, which echoes round trips and swallows streams.

use std::net::SocketAddr;
use std::sync::Arc;

use sealbus_bus::{Bus, BusConfig, ProcessEndpoint};
use sealbus_mesh::{MeshConfig, MeshEndpoint, MeshSecurity, ProcessSecurity};
use sealbus_seal::{Identity, SecurityLevel};
use tokio::net::TcpListener;

use crate::mesh::agents::{self, Table, be_echo, be_sink};
use crate::mesh::credentials::{Customer, platform, read_line};
use crate::mesh::{BenchError, failed, raw};

pub(crate) async fn run(level: &str) -> Result<(), BenchError> {
    let level: SecurityLevel = level.parse().map_err(failed)?;
    let mut customer = Customer::new(std::io::stdin().lock(), std::io::stdout()).map_err(failed)?;
    let process = raw::process("node-2")?;
    let credential = if level.encrypts() {
        Some(customer.credential(&process).map_err(failed)?)
    } else {
        None
    };
    let mut agents = Vec::new();
    for name in [agents::ECHO, agents::SINK] {
        let identity = Identity::from_agent_name(name).map_err(failed)?;
        agents.push(match level.authenticates() {
            true => Some(customer.credential(&identity).map_err(failed)?),
            false => None,
        });
    }
    let trust = customer.trust.clone();
    // This releases the standard input.
    drop(customer);
    println!("ready");
    let order = read_line().map_err(failed)?;
    if order == "raw" {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        println!("{}", listener.local_addr()?);
        let security = credential.map(|credential| (credential, trust));
        return raw::serve(listener, level, security).await;
    }
    let security = match credential {
        None => MeshSecurity::None,
        Some(credential) => {
            let security = ProcessSecurity { credential, trust };
            match level {
                SecurityLevel::Tls => MeshSecurity::Tls(security),
                SecurityLevel::Signed => MeshSecurity::Signed(security),
                _ => MeshSecurity::Auth(security),
            }
        }
    };
    let config = BusConfig::new(platform().map_err(failed)?);
    let bus = Bus::new(config, tokio::runtime::Handle::current());
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let endpoint = MeshEndpoint::bind(MeshConfig::new(process.clone(), listen, security), &bus)
        .await
        .map_err(failed)?;
    let mut words = order.split(' ').skip(1);
    let (Some(address), Some(identity)) = (words.next(), words.next()) else {
        return Err(failed("the order is not mesh ADDRESS IDENTITY"));
    };
    let table = Table::default();
    let there = ProcessEndpoint {
        identity: identity.parse().map_err(failed)?,
        address: address.parse().map_err(failed)?,
    };
    table.put(agents::METER, there);
    bus.set_resolver(Arc::new(table));
    let mut credentials = agents.into_iter();
    let mut attach = |name| {
        bus.attach(name, credentials.next().flatten(), None)
            .map_err(failed)
    };
    let (echo, echo_mailbox) = attach(agents::ECHO)?;
    let (sink, sink_mailbox) = attach(agents::SINK)?;
    println!("{}", endpoint.local_address());
    println!("{process}");
    tokio::spawn(be_echo(echo, echo_mailbox));
    tokio::spawn(be_sink(sink, sink_mailbox));
    // The process waits until the first one closes the pipe.
    let _ = tokio::task::spawn_blocking(read_line).await;
    Ok(())
}

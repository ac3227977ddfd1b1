//! Drivers of the papers' benchmark that are part of this program: Sealbus itself, and the limits that it is compared
//! with.

mod broker;
mod certify;
mod http;
mod known;
mod rabbitmq;
mod raw;
mod sealbus;
mod sealing;
mod sleep;
mod stage;
mod techniques;

pub(crate) use broker::serve as serve_rabbitmq;

use clap::Subcommand;

use crate::drivers::stage::DriverError;

/// The system to drive.
#[derive(Subcommand)]
pub(crate) enum System {
    /// Agents of Sealbus: in one process, over the mesh, or over RabbitMQ
    Sealbus,
    /// Agents of Sealbus on two platforms, each with a gateway, over FIPA's message transport for HTTP
    Http,
    /// Bare TCP or bare mutual TLS
    Raw,
    /// Bare TCP with one technique of protection: a login, or something on each message
    Techniques,
    /// RabbitMQ with the same promises, without Sealbus
    Rabbitmq,
    /// A link that adds a delay, drops and repeats messages, and says how much of each
    Known,
}

/// Plays agents as the instrument orders through the standard input.
pub(crate) fn run(system: &System) -> Result<(), DriverError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // This is a task like those of agents. Waking a future that `block_on` runs itself costs more.
        match system {
            System::Sealbus => tokio::spawn(stage::serve::<sealbus::Agents>()).await,
            System::Http => tokio::spawn(stage::serve::<http::Agents>()).await,
            System::Raw => tokio::spawn(stage::serve::<raw::Connections>()).await,
            System::Techniques => tokio::spawn(stage::serve::<techniques::Techniques>()).await,
            System::Rabbitmq => tokio::spawn(stage::serve::<rabbitmq::Clients>()).await,
            System::Known => tokio::spawn(stage::serve::<known::Link>()).await,
        }
        .map_err(stage::failed)?
    })
}

//! The sealbus command line: thin commands over the platform, the language and the demo.

mod arguments;
mod commands;
mod connection;
mod demo;
mod error;
mod output;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Acl, Arguments, Broker, Ca, Channel, Command, Df, Gateway, General};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::Output;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let output = Output::new(&arguments.general);
    match run(&arguments, output) {
        Ok(code) => code,
        Err(error) => {
            let code = error.exit_code();
            error.print(output.is_json());
            code
        }
    }
}

fn run(arguments: &Arguments, output: Output) -> Result<ExitCode, CliError> {
    match &arguments.command {
        Command::Completion(completion) => commands::completion(completion),
        Command::Version => commands::version(output),
        Command::Acl(Acl::Convert(convert)) => commands::language::convert(convert, output)?,
        Command::Acl(Acl::Explain(explain)) => commands::language::explain(explain, output)?,
        Command::Acl(Acl::Validate(validate)) => commands::language::validate(validate, output)?,
        Command::Demo(demo) => return runtime()?.block_on(demo::run(demo, output)),
        Command::Launch => return Ok(sealbus_launcher::run()),
        Command::DemoAgent(agent) => demo::serve_agent(agent)?,
        Command::DemoAttack(attack) => runtime()?.block_on(demo::attack(attack))?,
        Command::Up(up) => runtime()?.block_on(commands::up::up(&arguments.general, up, output))?,
        Command::Node(node) => {
            runtime()?.block_on(commands::run::node(&arguments.general, node, output))?;
        }
        Command::Broker(Broker::RabbitMq(broker)) => {
            let written = commands::broker::write_config(&arguments.general, broker, output);
            runtime()?.block_on(written)?;
        }
        Command::Gateway(Gateway::Run) => runtime()?.block_on(commands::gateway::run())?,
        asking => runtime()?.block_on(ask(&arguments.general, asking, output))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A runtime with one thread, which serves both the process's sockets and its work.
fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::Failed {
            message: format!("cannot start: {error}"),
            help: None,
        })
}

/// Runs the commands that ask a running platform.
async fn ask(general: &General, command: &Command, output: Output) -> Result<(), CliError> {
    let mut connection = Connection::open(general).await?;
    let connection = &mut connection;
    match command {
        Command::Token(token) => commands::nodes::token(connection, token, output).await,
        Command::Ticket(ticket) => commands::agents::ticket(connection, ticket, output).await,
        Command::Ps(ps) => commands::agents::ps(connection, ps, output).await,
        Command::Nodes => commands::nodes::nodes(connection, output).await,
        Command::Send(send) => commands::messages::send(connection, send, output).await,
        Command::Channel(Channel::List) => commands::channels::list(connection, output).await,
        Command::Channel(Channel::Publish(publish)) => {
            commands::channels::publish(connection, publish, output).await
        }
        Command::Channel(Channel::Tail(tail)) => {
            commands::channels::tail(connection, tail, output).await
        }
        Command::Channel(Channel::Request(request)) => {
            commands::channels::request(connection, request, output).await
        }
        Command::Df(Df::Search(search)) => {
            commands::messages::search(connection, search, output).await
        }
        Command::Df(Df::Register(register)) => {
            commands::messages::register(connection, register, output).await
        }
        Command::Df(Df::Federate(federate)) => {
            commands::gateway::federate(connection, federate, output).await
        }
        Command::Gateway(Gateway::List) => commands::gateway::list(connection, output).await,
        Command::Gateway(Gateway::Allow(allow)) => {
            commands::gateway::allow(connection, allow, output).await
        }
        Command::Gateway(Gateway::Deny(deny)) => {
            commands::gateway::deny(connection, deny, output).await
        }
        Command::Gateway(Gateway::Counters) => {
            commands::gateway::counters(connection, output).await
        }
        Command::Broker(Broker::Status) => commands::broker::status(connection, output).await,
        Command::Broker(Broker::DeadLetters) => {
            commands::broker::dead_letters(connection, output).await
        }
        Command::Start(start) => commands::agents::start(connection, start, output).await,
        Command::Kill(kill) => commands::agents::kill(connection, kill, output).await,
        Command::Move(to) => commands::agents::relocate(connection, to, output).await,
        Command::Logs(logs) => commands::agents::logs(connection, logs, output).await,
        Command::Mailbox(mailbox) => commands::messages::mailbox(connection, mailbox, output).await,
        Command::Ca(Ca::Log(log)) => commands::certificates::log(connection, log, output).await,
        Command::Ca(Ca::List(list)) => commands::certificates::list(connection, list, output).await,
        Command::Ca(Ca::Revoke(revoke)) => {
            commands::certificates::revoke(connection, revoke, output).await
        }
        Command::Ca(Ca::Root) => commands::certificates::root(connection, output).await,
        _ => Ok(()),
    }
}

//! The command line `sealbus`: thin commands over the platform, the language and the demo.

mod arguments;
mod candidates;
mod commands;
mod connection;
mod demo;
mod error;
mod input;
mod output;
mod python;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use sealbus_bus::Lifetime;

use crate::arguments::{
    Acl, Arguments, Broker, Ca, CaLog, CaLogCommand, Channel, Command, Describe, Df, Evidence,
    Gateway, General, Store,
};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::Output;

/// Runs the command in the process's arguments, to its end. The program `sealbus` does nothing else.
pub fn main() -> ExitCode {
    // A shell that asks for candidates gets them, and the program ends.
    CompleteEnv::with_factory(Arguments::command)
        .var(commands::COMPLETE)
        .complete();
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
        Command::Completion(completion) => commands::completion(completion)?,
        Command::Man(man) => commands::man(man, output)?,
        Command::New(new) => commands::new::new(new, output)?,
        Command::Doctor(doctor) => {
            runtime()?.block_on(commands::doctor::doctor(&arguments.general, doctor, output))?;
        }
        Command::Version => commands::version(output),
        Command::Identity(identity) => commands::identity::identity(identity, output)?,
        Command::Acl(Acl::Convert(convert)) => commands::language::convert(convert, output)?,
        Command::Acl(Acl::Explain(explain)) => commands::language::explain(explain, output)?,
        Command::Acl(Acl::Validate(validate)) => commands::language::validate(validate, output)?,
        #[cfg(not(unix))]
        Command::Launch | Command::Up(_) | Command::Node(_) => return Err(CliError::needs_unix()),
        Command::Demo(_) if cfg!(not(unix)) => return Err(CliError::needs_unix()),
        Command::Demo(demo) => return runtime()?.block_on(demo::run(demo, output)),
        #[cfg(unix)]
        Command::Launch => return Ok(sealbus_launcher::run()),
        Command::DemoAgent(agent) => demo::serve_agent(agent)?,
        Command::DemoAttack(attack) => runtime()?.block_on(demo::attack(attack))?,
        #[cfg(unix)]
        Command::Up(up) => runtime()?.block_on(commands::up::up(&arguments.general, up, output))?,
        Command::Apply(apply) => {
            runtime()?.block_on(commands::apply::apply(&arguments.general, apply, output))?;
        }
        Command::Restore(restore) => {
            let restored = commands::backup::run_restore(&arguments.general, restore, output);
            runtime()?.block_on(restored)?;
        }
        #[cfg(unix)]
        Command::Node(node) => {
            runtime()?.block_on(commands::node::node(&arguments.general, node, output))?;
        }
        Command::Broker(Broker::RabbitMq(broker)) => {
            let written = commands::broker::write_config(&arguments.general, broker, output);
            runtime()?.block_on(written)?;
        }
        Command::Store(Store::Certify(certify)) => commands::store::certify(certify, output)?,
        Command::Store(Store::Check(check)) => {
            runtime()?.block_on(commands::store::check(check, output))?;
        }
        Command::Ca(Ca::Log(CaLog {
            command: Some(CaLogCommand::Verify(verify)),
            ..
        })) => {
            let verified = commands::issuance_log::verify(&arguments.general, verify, output);
            runtime()?.block_on(verified)?;
        }
        Command::Ca(Ca::Keys(keys)) => commands::ceremony::keys(&arguments.general, keys, output)?,
        Command::Ca(Ca::Request(request)) => {
            commands::ceremony::request(&arguments.general, request, output)?;
        }
        Command::Ca(Ca::Certify(certify)) => {
            commands::ceremony::certify(&arguments.general, certify, output)?;
        }
        Command::Ca(Ca::Monitor(monitor)) => {
            let monitored =
                commands::issuance_log::monitor::monitor(&arguments.general, monitor, output);
            runtime()?.block_on(monitored)?;
        }
        Command::Evidence(Evidence::Export(export)) => {
            let exported = commands::evidence::export(&arguments.general, export, output);
            runtime()?.block_on(exported)?;
        }
        Command::Evidence(Evidence::Verify(verify)) => {
            commands::evidence::verify::verify(verify, output)?;
        }
        Command::Evidence(Evidence::Disclose(disclose)) => {
            commands::evidence::disclose::disclose(disclose, output)?;
        }
        Command::Sniff(sniff) => {
            runtime()?.block_on(commands::sniff::sniff(&arguments.general, sniff, output))?;
        }
        Command::Window(window) => {
            runtime()?.block_on(commands::window::window(&arguments.general, window, output))?;
        }
        Command::Gateway(Gateway::Run) => runtime()?.block_on(commands::gateway::run())?,
        Command::Gateway(Gateway::Neighbours) => {
            runtime()?.block_on(commands::gateway::neighbours())?
        }
        Command::Gateway(Gateway::A2a) => runtime()?.block_on(commands::gateway::a2a())?,
        Command::Gateway(Gateway::Mcp) => runtime()?.block_on(commands::gateway::mcp())?,
        Command::Mcp(mcp) => {
            runtime()?.block_on(commands::gateway::stdio(&arguments.general, mcp))?
        }
        Command::Gateway(Gateway::Key(key)) => commands::gateway::key(key, output)?,
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
    let mut connection = match command {
        Command::Status(status) => Connection::open_within(general, status.timeout.0).await?,
        Command::Ca(Ca::Revoke(_)) => Connection::to_any(general).await?,
        _ => Connection::open(general).await?,
    };
    let Some(Lifetime(pause)) = command.watch() else {
        return ask_once(&mut connection, command, output).await;
    };
    let output = output.again_and_again();
    loop {
        output.begin_again();
        ask_once(&mut connection, command, output).await?;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = output::unread() => return Ok(()),
        }
    }
}

async fn ask_once(
    connection: &mut Connection,
    command: &Command,
    output: Output,
) -> Result<(), CliError> {
    match command {
        Command::Status(status) => commands::platform::status(connection, status, output).await,
        Command::Down(down) => commands::platform::down(connection, down, output).await,
        Command::Backup(backup) => commands::backup::backup(connection, backup, output).await,
        Command::Describe(Describe::Agent(agent)) => {
            commands::describe::agent(connection, agent, output).await
        }
        Command::Describe(Describe::Node(node)) => {
            commands::describe::node(connection, node, output).await
        }
        Command::Describe(Describe::Channel(channel)) => {
            commands::channels::describe(connection, channel, output).await
        }
        Command::Df(Df::Deregister(deregister)) => {
            commands::messages::deregister(connection, deregister, output).await
        }
        Command::Stop(stop) => commands::agents::stop(connection, stop, output).await,
        Command::Restart(restart) => commands::agents::restart(connection, restart, output).await,
        Command::Token(token) => commands::nodes::token(connection, token, output).await,
        Command::Ticket(ticket) => commands::agents::ticket(connection, ticket, output).await,
        Command::Ps(ps) => commands::agents::ps(connection, ps, output).await,
        Command::Masters(masters) => commands::masters::masters(connection, masters, output).await,
        Command::Nodes(_) => commands::nodes::nodes(connection, output).await,
        Command::Send(send) => commands::messages::send(connection, send, output).await,
        Command::Channel(Channel::List) => commands::channels::list(connection, output).await,
        Command::Channel(Channel::Publish(publish)) => {
            commands::channels::publish(connection, publish, output).await
        }
        Command::Channel(Channel::Tail(tail)) => {
            commands::channels::tail(connection, tail, output).await
        }
        Command::Channel(Channel::Last(last)) => {
            commands::channels::last(connection, last, output).await
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
        Command::Gateway(Gateway::List(_)) => commands::gateway::list(connection, output).await,
        Command::Gateway(Gateway::Allow(allow)) => {
            commands::gateway::allow(connection, allow, output).await
        }
        Command::Gateway(Gateway::Deny(deny)) => {
            commands::gateway::deny(connection, deny, output).await
        }
        Command::Gateway(Gateway::Certificate(certificate)) => {
            commands::gateway::certificate(connection, certificate, output).await
        }
        Command::Gateway(Gateway::Counters(_)) => {
            commands::gateway::counters(connection, output).await
        }
        Command::Broker(Broker::Status(_)) => commands::broker::status(connection, output).await,
        Command::Broker(Broker::DeadLetters(_)) => {
            commands::broker::dead_letters(connection, output).await
        }
        Command::Start(start) => commands::agents::start(connection, start, output).await,
        Command::Kill(kill) => commands::agents::kill(connection, kill, output).await,
        Command::Move(to) => commands::agents::relocate(connection, to, output).await,
        Command::Top(top) => commands::top::top(connection, top, output).await,
        Command::Logs(logs) => commands::logs::logs(connection, logs, output).await,
        Command::Mailbox(mailbox) => commands::messages::mailbox(connection, mailbox, output).await,
        Command::Ca(Ca::Log(log)) => commands::certificates::log(connection, log, output).await,
        Command::Ca(Ca::List(list)) => commands::certificates::list(connection, list, output).await,
        Command::Ca(Ca::Revoke(revoke)) => {
            commands::certificates::revoke(connection, revoke, output).await
        }
        Command::Ca(Ca::Authorities) => {
            commands::certificates::authorities(connection, output).await
        }
        Command::Ca(Ca::Root) => commands::certificates::root(connection, output).await,
        _ => Ok(()),
    }
}

//! Figures of Sealbus beside their floors and beside other systems. Compare the ratios within one run: all figures in a
//! table are measured in turns, on one machine, and in one process where possible.

// `count_allocations` is for the program beside this one.
#[allow(dead_code)]
mod acl;
mod awake;
mod bus;
mod conversations;
mod drivers;
mod hollow;
mod journal;
mod marks;
mod mesh;
mod papers;
mod proof;
mod turns;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The allocator is that of users' programs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "sealbus-bench", about)]
struct Arguments {
    #[command(subcommand)]
    table: Table,
}

#[derive(Subcommand)]
enum Table {
    /// Encoding and decoding messages: time, allocations and sizes, beside JADE, serde_json, prost
    /// and memcpy
    Acl {
        /// Write the rows as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Leave JADE out, which takes a JVM and some minutes
        #[arg(long)]
        without_jade: bool,
        /// Only subjects with this in their name
        #[arg(long, value_name = "TEXT", default_value = "")]
        only: String,
    },
    /// The mesh between two processes beside raw TCP and raw mutual TLS, agents of one process, and what an idle agent
    /// costs
    Mesh(mesh::Arguments),
    /// The AgentBus beside the mesh that carries it and the sockets below: broadcasts, events by size and by number
    Bus(bus::Arguments),
    /// Conversations in the SDK: a protocol object beside a bare request, and ten thousand conversations at once
    Conversations(conversations::Arguments),
    /// A real Master beside many real nodes that run no programs, over loopback: its processor time, memory and bytes
    Hollow(hollow::Arguments),
    /// The journal with many streams, beside one file that takes the same bytes in the same groups
    Journal(journal::Arguments),
    /// Proofs of authorship: signing and checking messages alone and in batches, beside one signature
    Proof {
        /// Write the rows as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// The papers' tables: other systems beside Sealbus, as they measured and as one would today
    Papers(papers::Arguments),
    /// Play the agents of one side for the papers' benchmark, over standard input and output
    #[command(subcommand, hide = true)]
    Driver(drivers::System),
    /// Run a server for the papers' benchmark, until the standard input ends
    #[command(hide = true)]
    ServeRabbitmq,
}

fn main() -> ExitCode {
    let result: Result<(), Box<dyn std::error::Error>> = match Arguments::parse().table {
        Table::Acl {
            json,
            without_jade,
            only,
        } => acl::run(json.as_deref(), !without_jade, &only),
        Table::Mesh(arguments) => mesh::run(&arguments).map_err(Into::into),
        Table::Bus(arguments) => bus::run(&arguments).map_err(Into::into),
        Table::Conversations(arguments) => conversations::run_all(&arguments).map_err(Into::into),
        Table::Hollow(arguments) => hollow::run(&arguments).map_err(Into::into),
        Table::Journal(arguments) => journal::run(&arguments),
        Table::Proof { json } => {
            proof::run(json.as_deref()).map_err(|error| -> Box<dyn std::error::Error> { error })
        }
        Table::Papers(arguments) => papers::run(&arguments).map_err(Into::into),
        Table::Driver(system) => drivers::run(&system).map_err(Into::into),
        Table::ServeRabbitmq => drivers::serve_rabbitmq().map_err(Into::into),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

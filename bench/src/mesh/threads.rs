//! One I/O thread of a process beside several: links that have nothing to do with each other, each from a bus of its own to
//! a process of its own.

use std::time::Instant;

use sealbus_seal::SecurityLevel;
use tokio::runtime::{Builder, Runtime};

use crate::awake::Awake;
use crate::mesh::credentials::Authority;
use crate::mesh::{Arguments, BenchError, Peer, STREAM_SIZE, failed, open};

/// Links that are busy at the same time.
const LINKS: usize = 2;

/// Measures all turns, and prints the rates and their ratio.
pub(crate) fn measure(arguments: &Arguments, threads: usize) -> Result<(), BenchError> {
    let awake = Awake::hold();
    let mut measured = [(1, Vec::new()), (threads, Vec::new())];
    for turn in 0..arguments.turns {
        for (threads, rates) in &mut measured {
            eprintln!(
                "turn {} of {}: {threads} threads",
                turn + 1,
                arguments.turns
            );
            let streams = streams(arguments.messages);
            // Agents are tasks. A future that `block_on` runs itself would be on none of the threads.
            let rate = runtime(*threads)?.block_on(async { tokio::spawn(streams).await });
            rates.push(rate.map_err(failed)??);
        }
    }
    let mut medians = Vec::new();
    for (threads, mut rates) in measured {
        rates.sort_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
        println!(
            "{LINKS} links at auth flat out, I/O threads: {threads}: {:.2} M/s together",
            median / 1e6
        );
        medians.push(median);
    }
    if let [one, several] = medians[..] {
        println!(
            "{threads} threads / one thread: {:.2} (goal: 1.7 with two, if processors are to spare)",
            several / one
        );
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "processors: {processors}, {}; the threads of the sending process and its {LINKS} receiving processes share them",
        awake.words()
    );
    Ok(())
}

/// The runtime of a program with so many threads, as the package for Python makes it.
fn runtime(threads: usize) -> Result<Runtime, BenchError> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        threads => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    Ok(builder.enable_all().build()?)
}

/// Streams over all links at the same time. Returns the messages a second of all of them, from the first message of any
/// to the last of all, with the shorter stream that warms up each link.
async fn streams(messages: usize) -> Result<f64, BenchError> {
    let authority = Authority::create().map_err(failed)?;
    let mut links = Vec::new();
    for _ in 0..LINKS {
        let mut peer = Peer::start(SecurityLevel::Auth, &authority).await?;
        let agents = open(&mut peer, SecurityLevel::Auth, &authority).await?;
        links.push((peer, agents));
    }
    let start = Instant::now();
    let mut streams = Vec::new();
    for (peer, agents) in links {
        streams.push(tokio::spawn(async move {
            let rate = agents.stream(STREAM_SIZE, messages, 1).await;
            (peer, agents, rate)
        }));
    }
    let mut ended = Vec::new();
    for stream in streams {
        ended.push(stream.await.map_err(failed)?);
    }
    let seconds = start.elapsed().as_secs_f64();
    for (peer, agents, rate) in ended {
        rate?;
        agents.leave().await;
        drop(peer);
    }
    Ok((LINKS * (messages + messages / 10)) as f64 / seconds)
}

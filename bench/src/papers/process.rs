//! Processes of a run, drivers and servers: their answers and their costs.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use sealbus_bench_driver::{Answer, Order};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::papers::PapersError;

/// How long a process may take to end after it was asked to.
const FAREWELL: Duration = Duration::from_secs(20);

/// A process that speaks lines of JSON, with all processes it starts.
pub(crate) struct Process {
    name: String,
    child: Child,
    /// The group that the process leads. The group may outlive the process.
    group: Option<Pid>,
    to: Option<ChildStdin>,
    from: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Process {
    /// Starts `command`. Its standard error goes to `log`.
    pub(crate) fn start(name: &str, command: &[String], log: &Path) -> Result<Self, PapersError> {
        let failed = |error: &dyn std::fmt::Display| {
            PapersError::Failed(format!("{} cannot be started: {error}", command.join(" ")))
        };
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| failed(&"no command is given"))?;
        let errors = fs::File::create(log)?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&error))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"it has no pipes"));
        };
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Ok(Self {
            name: name.to_owned(),
            child,
            group: id.and_then(Pid::from_raw),
            to: Some(to),
            from: BufReader::new(from).lines(),
            log: log.to_owned(),
        })
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) async fn say(&mut self, words: &impl Serialize) -> Result<(), PapersError> {
        let mut line =
            serde_json::to_vec(words).map_err(|error| PapersError::Failed(error.to_string()))?;
        line.push(b'\n');
        if let Some(to) = &mut self.to
            && to.write_all(&line).await.is_ok()
            && to.flush().await.is_ok()
        {
            return Ok(());
        }
        Err(self.ended())
    }

    /// Waits for the next line.
    pub(crate) async fn hear<T: DeserializeOwned>(
        &mut self,
        patience: Duration,
    ) -> Result<T, PapersError> {
        let line = tokio::time::timeout(patience, self.from.next_line()).await;
        let line = line.map_err(|_elapsed| {
            let patience = patience.as_secs();
            PapersError::Failed(format!("{} said nothing for {patience} s", self.name))
        })?;
        let Some(line) = line? else {
            return Err(self.ended());
        };
        serde_json::from_str(&line)
            .map_err(|error| PapersError::Failed(format!("{} said {line:?}: {error}", self.name)))
    }

    /// Gives an order and waits for the answer.
    pub(crate) async fn order(
        &mut self,
        order: &Order,
        patience: Duration,
    ) -> Result<Answer, PapersError> {
        self.say(order).await?;
        match self.hear(patience).await? {
            Answer::Error { text } => Err(PapersError::Failed(format!("{}: {text}", self.name))),
            answer => Ok(answer),
        }
    }

    fn ended(&self) -> PapersError {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.unwrap_or("it said nothing");
        PapersError::Failed(format!("{} ended: {}", self.name, last.trim()))
    }

    /// Ends the process and all processes it started.
    pub(crate) async fn end(mut self) {
        // Servers end when their input is closed.
        drop(self.to.take());
        let has_ended = tokio::time::timeout(FAREWELL, self.child.wait())
            .await
            .is_ok();
        self.kill_group();
        if !has_ended {
            let _ = self.child.wait().await;
        }
    }

    fn kill_group(&mut self) {
        if let Some(group) = self.group.take() {
            // No process of the group may be left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    /// The run was broken off. Servers may have something to clean up.
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            let _ = kill_process_group(group, Signal::TERM);
        }
    }
}

/// The cost of processes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Seconds of processor time.
    pub(crate) processor_s: f64,
    /// The sum of the largest memory that each has held, in bytes.
    pub(crate) memory: u64,
    /// Seconds in which processors were busy with anything, summed.
    pub(crate) busy_s: f64,
    /// Seconds in which processors existed, busy or not, summed.
    pub(crate) there_s: f64,
}

impl Cost {
    /// The share of the machine's processor time that other processes used since `before`.
    pub(crate) fn others_since(&self, before: &Self) -> f64 {
        let busy = self.busy_s - before.busy_s;
        let own = self.processor_s - before.processor_s;
        let there = self.there_s - before.there_s;
        match there > 0.0 {
            true => ((busy - own) / there).clamp(0.0, 1.0),
            false => 0.0,
        }
    }
}

/// Seconds in which all processors were busy, and seconds in which they existed.
fn machine() -> (f64, f64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let fields = line.unwrap_or_default().split_whitespace();
    // The fields are user, nice, system, idle, waiting for a disk, interrupts, software interrupts, and time taken by
    // the host.
    let times: Vec<f64> = fields.take(8).filter_map(|it| it.parse().ok()).collect();
    let all: f64 = times.iter().sum();
    let idle: f64 = times.iter().skip(3).take(2).sum();
    ((all - idle) / TICKS, all / TICKS)
}

/// Clock ticks of /proc in a second: a constant of the kernel's interface.
const TICKS: f64 = 100.0;

/// The cost of `roots` and all their descendants.
pub(crate) fn cost(roots: &[u32]) -> Cost {
    let mut parents = HashMap::new();
    let mut ticks = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in processes {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|id| id.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name, in brackets, may contain anything.
        let Some((_, rest)) = stat.rsplit_once(')') else {
            continue;
        };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |at: usize| {
            fields
                .get(at)
                .and_then(|it| it.parse::<u64>().ok())
                .unwrap_or(0)
        };
        parents.insert(id, u32::try_from(field(1)).unwrap_or(0));
        // User and system time, of the process itself and of children it has waited for.
        ticks.insert(id, (11..15).map(field).sum::<u64>());
    }
    let (busy_s, there_s) = machine();
    let mut cost = Cost {
        busy_s,
        there_s,
        ..Cost::default()
    };
    for (id, spent) in &ticks {
        let mut ancestor = *id;
        while !roots.contains(&ancestor) {
            match parents.get(&ancestor) {
                Some(parent) if *parent > 1 => ancestor = *parent,
                _ => break,
            }
        }
        if roots.contains(&ancestor) {
            cost.processor_s += *spent as f64 / TICKS;
            cost.memory += peak_memory(*id);
        }
    }
    cost
}

fn peak_memory(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .unwrap_or(0)
        << 10
}

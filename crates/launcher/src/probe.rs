//! Finds the modes that work on this machine by sealing a program in each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sealbus_manifest::isolation::{Confinement, Isolation};

use super::command::launch;
use super::plan::{IsolationStep, NotIsolated, Order, Plan};

/// A mode and whether it works here.
pub type Probed = (Isolation, Result<(), NotIsolated>);

/// Tries every mode but [`Isolation::None`], from the strongest on. `program` is the `sealbus` command, which is also
/// the program that is sealed. `slot` is a user that no other program has, or the reason why there is none. `work` is a
/// folder for the probe.
pub fn probe(program: &Path, slot: Result<u32, &str>, work: &Path) -> Vec<Probed> {
    let modes = Isolation::ALL
        .into_iter()
        .filter(|mode| *mode != Isolation::None);
    modes
        .map(|mode| (mode, seal_one(program, mode, slot, work)))
        .collect()
}

fn seal_one(
    program: &Path,
    mode: Isolation,
    slot: Result<u32, &str>,
    work: &Path,
) -> Result<(), NotIsolated> {
    let owner = match mode {
        Isolation::Uid => Some(slot.map_err(|cause| NotIsolated {
            step: IsolationStep::User,
            cause: cause.to_owned(),
            errno: None,
        })?),
        _ => None,
    };
    let failed = |error| NotIsolated::because(IsolationStep::Execute, &error, "");
    let work = work.join(mode.as_str());
    fs::create_dir_all(&work).map_err(failed)?;
    std::os::unix::fs::chown(&work, owner, owner).map_err(failed)?;
    let plan = Plan {
        mode,
        program: program.to_owned(),
        arguments: vec!["version".to_owned()],
        directory: work.clone(),
        environment: BTreeMap::new(),
        hidden: Vec::new(),
        work,
        public: None,
        attachment: None,
        home: None::<PathBuf>,
        confinement: Confinement::default(),
        slot: owner,
        control_group: None,
    };
    let (mut command, launching) =
        launch(program, &Order::Start(Box::new(plan))).map_err(failed)?;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    drop(command);
    let sealed = launching.wait();
    let ended = child.wait().map_err(failed)?;
    sealed?;
    if ended.success() {
        return Ok(());
    }
    let cause = format!(
        "{} does not run when it is sealed: {ended}",
        program.display()
    );
    Err(NotIsolated {
        step: IsolationStep::Execute,
        cause,
        errno: None,
    })
}

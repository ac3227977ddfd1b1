//! `apply`: a changed manifest on a running platform.

use std::io::{BufRead, IsTerminal, Write};

use sealbus_bus::milliseconds;
use sealbus_control::admin::ask;
use sealbus_manifest::Difference;
use serde_json::json;

use super::manifest::manifest;
use crate::arguments::{Apply, General};
use crate::connection::{Connection, directory_of};
use crate::error::CliError;
use crate::output::Output;

/// `sealbus apply MANIFEST`
pub(crate) async fn apply(
    general: &General,
    apply: &Apply,
    output: Output,
) -> Result<(), CliError> {
    let wanted = manifest(general, apply.manifest.as_deref())?;
    let name = wanted.platform.name.clone();
    let mut connection = Connection::to(&directory_of(general, &name)?).await?;
    let compare = ask::Compare {
        wanted: Box::new(wanted.clone()),
    };
    let difference = connection.ask(compare).await?;
    let told =
        |applied: bool| json!({ "platform": name, "applied": applied, "difference": difference });
    if difference.is_empty() {
        output.show(&told(false), || format!("{name} is as the manifest says"));
        return Ok(());
    }
    if apply.dry_run {
        output.show(&told(false), || lines(&difference));
        return Ok(());
    }
    if !apply.yes {
        anstream::eprintln!("{}", lines(&difference));
        if !agreed(&name)? {
            output.show(&told(false), || "nothing was changed".to_owned());
            return Ok(());
        }
    }
    let waiting = output.waiting(&format!("changing {name}"));
    let request = ask::Apply {
        taken_over: false,
        wanted: Box::new(wanted),
        agreed: Some(difference.clone()),
        grace: milliseconds(apply.timeout.0),
    };
    connection.ask(request).await?;
    waiting.finish_and_clear();
    output.show(&told(true), || {
        format!(
            "{}\n{name} is as the manifest says: see `sealbus ps`",
            lines(&difference)
        )
    });
    Ok(())
}

/// One line for each thing to do.
fn lines(difference: &Difference) -> String {
    let restarts = difference
        .restart
        .iter()
        .map(|changed| format!("restart  {}: {}", changed.process, changed.keys.join(", ")));
    let stops = difference
        .stop
        .iter()
        .map(|name| format!("stop     {name}"));
    let starts = difference
        .start
        .iter()
        .map(|name| format!("start    {name}"));
    let changes = difference
        .change
        .iter()
        .map(|what| format!("change   {what}"));
    let lines: Vec<String> = stops.chain(restarts).chain(starts).chain(changes).collect();
    lines.join("\n")
}

/// Asks at the terminal.
fn agreed(name: &str) -> Result<bool, CliError> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(CliError::Usage {
            message: "nobody is there to agree".to_owned(),
            help: "look with --dry-run, and agree with --yes".to_owned(),
        });
    }
    anstream::eprint!("Change {name} so? [y/N] ");
    let asked = std::io::stderr().flush();
    let mut answer = String::new();
    let read = asked.and_then(|()| input.lock().read_line(&mut answer));
    read.map_err(CliError::file("read", "the answer"))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

//! `doctor`: the problems that would keep a platform from running on this machine, each with its remedy.

mod machine;
mod running;
#[cfg_attr(unix, path = "doctor/unix.rs")]
#[cfg_attr(not(unix), path = "doctor/windows.rs")]
mod system;

use std::path::Path;

use sealbus_manifest::Manifest;
use serde::Serialize;

use super::manifest::{MANIFEST, manifest};
use crate::arguments::{Doctor, General};
use crate::connection::{Connection, directory_of};
use crate::error::CliError;
use crate::output::{Output, table};

/// The verdict on a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Good,
    Warning,
    Problem,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    subject: &'static str,
    verdict: Verdict,
    found: String,
    /// The advice for the operator.
    remedy: Option<String>,
}

impl Finding {
    fn good(subject: &'static str, found: impl Into<String>) -> Self {
        Self {
            subject,
            verdict: Verdict::Good,
            found: found.into(),
            remedy: None,
        }
    }

    fn warning(subject: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warning,
            remedy: Some(remedy.into()),
            ..Self::good(subject, found)
        }
    }

    fn problem(subject: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Problem,
            ..Self::warning(subject, found, remedy)
        }
    }
}

/// `sealbus doctor`: fails if there is a problem.
pub(crate) async fn doctor(
    general: &General,
    doctor: &Doctor,
    output: Output,
) -> Result<(), CliError> {
    let waiting = output.waiting("examining this machine");
    let mut findings = vec![machine::version().await];
    let read = manifest(general, doctor.manifest.as_deref());
    match &read {
        Ok(manifest) if cfg!(unix) => findings.extend(of_manifest(general, manifest).await?),
        Ok(_) => {}
        Err(error) => findings.push(Finding::problem(
            "manifest",
            error.to_string(),
            format!(
                "`sealbus up --check {}` shows each mistake in its place",
                doctor
                    .manifest
                    .as_deref()
                    .unwrap_or(Path::new(MANIFEST))
                    .display()
            ),
        )),
    }
    findings.push(machine::clock().await);
    findings.extend(system::limits(&doctor.isolation).await);
    waiting.finish_and_clear();
    output.show(&findings, || text(&findings));
    let problems = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Problem)
        .count();
    match problems {
        0 => Ok(()),
        1 => Err(failed("there is one problem".to_owned())),
        count => Err(failed(format!("there are {count} problems"))),
    }
}

fn failed(message: String) -> CliError {
    CliError::Failed {
        message,
        help: Some("each has its remedy beside it; then run `sealbus doctor` again".to_owned()),
    }
}

/// The findings about the manifest's platform: its state, and either its ports or, if it runs, its health.
async fn of_manifest(general: &General, manifest: &Manifest) -> Result<Vec<Finding>, CliError> {
    let directory = directory_of(general, &manifest.platform.name)?;
    let mut findings = system::state(&directory);
    match Connection::to(&directory).await {
        Ok(mut connection) => findings.extend(running::findings(&mut connection, manifest).await?),
        Err(CliError::NoPlatform { .. } | CliError::StandsBy { .. }) => {
            findings.extend(machine::ports(&directory, manifest));
            findings.extend(machine::broker(manifest));
        }
        Err(error) => findings.push(Finding::problem(
            "platform",
            error.to_string(),
            format!(
                "see its log; end a Master that hangs: the lock is in {}",
                directory.display()
            ),
        )),
    }
    Ok(findings)
}

fn text(findings: &[Finding]) -> String {
    let mut shown = table(&["", "SUBJECT", "FOUND"]);
    for finding in findings {
        shown.add_row([finding.verdict.as_str(), finding.subject, &finding.found]);
    }
    let mut text = shown.trim_fmt();
    for finding in findings {
        if let Some(remedy) = &finding.remedy {
            text.push_str(&format!("\n\n{}: {remedy}", finding.subject));
        }
    }
    text
}

//! `window`: the platform in a browser. This process reads the platform and serves the page.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use sealbus_control::admin::ask;
use sealbus_files::write_private;
use sealbus_window::{PlaceError, Rights, Source, TlsFiles, WindowAddress, read_from};
use serde_json::json;
use tokio::sync::mpsc;

use super::run::{EndSignals, log};
use crate::arguments::{General, Window};
use crate::connection::{Connection, running};
use crate::error::CliError;
use crate::input;
use crate::output::Output;

/// Most lines of a recording that are shown.
const MOST: usize = 200_000;

/// `sealbus window [FILE]`
pub(crate) async fn window(
    general: &General,
    window: &Window,
    output: Output,
) -> Result<(), CliError> {
    if window.operate {
        log(output);
    }
    let (source, shown) = match &window.file {
        Some(file) => {
            let seen: Result<Vec<_>, _> = read_from(&input::name(file), input::open(file)?)?
                .take(MOST)
                .collect();
            (
                Source::Recording(seen?.into()),
                input::name(file).display().to_string(),
            )
        }
        None => {
            let directory = running(general)?;
            let mut connection = Connection::to(&directory).await?;
            connection.ask(ask::Narrow { bodies: false }).await?;
            let status = connection.ask(ask::Status).await?;
            let source = Source::Platform {
                directory,
                rights: Rights {
                    bodies: window.bodies,
                    operates: window.operate,
                },
            };
            (source, status.name)
        }
    };
    let taken = |source: std::io::Error| CliError::Failed {
        message: format!(
            "{} port {} cannot be used: {source}",
            window.address, window.port
        ),
        help: Some("name another with --port, or 0 for any free one".to_owned()),
    };
    let place = place(window)?;
    let listener = place.listen(window.port).await.map_err(taken)?;
    let port = listener.local_addr().map_err(taken)?.port();
    let served = sealbus_window::Window::new(source, place, port);
    let mut signals = EndSignals::catch()?;
    tell(&served, &shown, output)?;
    let opened = if window.no_open {
        None
    } else {
        Opened::open(&link(&served)?)
    };
    let mut enters = enters(window.until_input_ends);
    let mut serving = std::pin::pin!(served.clone().serve(listener));
    loop {
        tokio::select! {
            () = &mut serving => {}
            () = signals.told() => break,
            enter = enters.recv(), if !enters.is_closed() => match enter {
                Some(()) => tell(&served, &shown, output)?,
                None if window.until_input_ends => break,
                None => {}
            },
            () = served.entered(), if output.is_json() => {
                output.line(&json!({ "opened": true }), String::new);
            }
        }
    }
    drop(opened);
    Ok(())
}

/// The place at which the window is reached.
fn place(window: &Window) -> Result<WindowAddress, CliError> {
    let proof = window.certificate.as_deref().zip(window.key.as_deref());
    let proof = proof.map(|(certificate, key)| TlsFiles { certificate, key });
    let place = WindowAddress::at(window.address, window.name.as_deref(), proof);
    place.map_err(|error| {
        let message = error.to_string();
        let help = match error {
            PlaceError::NeedsTls(_) => {
                "name a certificate that the browser trusts, and its key: --certificate FILE --key FILE; or use `ssh -L`"
            }
            PlaceError::NeedsName(_) => "name it with --name, as in the certificate",
            PlaceError::Tls(_) => {
                return CliError::Failed { message, help: None };
            }
        };
        let help = help.to_owned();
        CliError::Usage { message, help }
    })
}

/// A window on the platform behind a state directory, as a process of its own that ends when its handle is dropped or
/// this process ends.
pub(crate) fn program(state: &Path) -> Result<tokio::process::Command, CliError> {
    let this = std::env::current_exe().map_err(CliError::file("find", "this program"))?;
    let mut command = tokio::process::Command::new(this);
    command.args(["window", "--until-input-ends", "--state"]);
    command.arg(state).stdin(Stdio::piped());
    Ok(command)
}

/// Starts a window that prints where this process prints.
#[cfg(unix)]
pub(super) fn start(state: &Path, output: Output) -> Result<tokio::process::Child, CliError> {
    let mut command = program(state)?;
    command.args(output.is_json().then_some("--json"));
    command
        .spawn()
        .map_err(CliError::file("start", "this program"))
}

/// Signals each Enter, and the end of standard input. Unless it `reads` anything, it reads a terminal only. The
/// thread ends with standard input, or with the process.
pub(crate) fn enters(reads: bool) -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    if reads || std::io::stdin().is_terminal() {
        std::thread::spawn(move || {
            for line in std::io::stdin().lines() {
                if line.is_err() || sender.blocking_send(()).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

fn link(window: &Arc<sealbus_window::Window>) -> Result<String, CliError> {
    window.link().map_err(|error| CliError::Failed {
        message: error.to_string(),
        help: None,
    })
}

/// Prints a new link.
fn tell(window: &Arc<sealbus_window::Window>, shown: &str, output: Output) -> Result<(), CliError> {
    let link = link(window)?;
    output.line(&json!({ "link": link }), || {
        format!("{shown} is shown at\n\n    {link}\n\nThe link opens one page, within a minute.")
    });
    if !output.is_json() && std::io::stdin().is_terminal() {
        anstream::eprintln!("Enter makes another link; Ctrl-C ends the window.");
    }
    Ok(())
}

/// A file that leads the user's browser to a link. Other users see the arguments of processes, so no argument contains
/// the link.
struct Opened(PathBuf);

impl Opened {
    /// Starts the browser, if this is a desktop with a folder for the user's own files.
    fn open(link: &str) -> Option<Self> {
        let has_screen = ["WAYLAND_DISPLAY", "DISPLAY"]
            .iter()
            .any(|variable| std::env::var_os(variable).is_some_and(|it| !it.is_empty()));
        let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| has_screen)?;
        let path =
            PathBuf::from(folder).join(format!("sealbus-window-{}.html", std::process::id()));
        let page = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={link}\">");
        write_private(&path, page.as_bytes()).ok()?;
        let opened = Self(path);
        let mut browser = Command::new("xdg-open");
        browser.arg(&opened.0);
        browser
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // The link stands on the terminal for users without such a program.
        browser.spawn().ok()?;
        Some(opened)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

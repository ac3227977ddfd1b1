//! The demo in a browser: a window on its platform, and pauses in which somebody looks.

use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::sync::mpsc;

use super::say;
use super::stage::Stage;
use crate::commands::window::{enters, program};
use crate::error::CliError;
use crate::output::Output;

/// How long the demo waits for somebody to open the page. The link lasts no longer.
const LINK: Duration = Duration::from_secs(60);

/// A window on the demo's platform. It ends when it is dropped.
pub(super) struct Showing {
    _window: Child,
    told: Lines<BufReader<ChildStdout>>,
    /// Gets a value for each Enter. Closed at the end of standard input, so that nothing waits if nobody can press it.
    enters: mpsc::Receiver<()>,
}

/// A line of `sealbus window --json`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WindowLine {
    Link(String),
    Opened(bool),
}

impl Showing {
    /// Starts the window, and prints its link.
    pub(super) async fn open(stage: &Stage, output: Output) -> Result<Self, CliError> {
        let mut window = program(&stage.state())?
            .arg("--json")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(CliError::file("start", "this program"))?;
        let gone = || CliError::Failed {
            message: "the window ended by itself".to_owned(),
            help: None,
        };
        let told = BufReader::new(window.stdout.take().ok_or_else(gone)?).lines();
        let mut showing = Self {
            _window: window,
            told,
            enters: enters(true),
        };
        loop {
            match showing.hear().await {
                Some(WindowLine::Link(link)) => {
                    let text = format!(
                        "\n  The window shows this platform at\n\n    {link}\n\n  Open it within a minute; Enter goes on without it."
                    );
                    if output.is_json() {
                        anstream::eprintln!("{text}");
                    } else {
                        say(output, &text);
                    }
                    return Ok(showing);
                }
                Some(WindowLine::Opened(_)) => {}
                None => return Err(gone()),
            }
        }
    }

    /// The next line that this version understands; none when the window has ended.
    async fn hear(&mut self) -> Option<WindowLine> {
        loop {
            let line = self.told.next_line().await.ok()??;
            if let Ok(told) = serde_json::from_str(&line) {
                return Some(told);
            }
        }
    }

    /// Waits until the page is open, Enter is pressed, or the link has expired.
    pub(super) async fn opened(&mut self) {
        let opening = async {
            while let Ok(Some(line)) = self.told.next_line().await {
                if matches!(serde_json::from_str(&line), Ok(WindowLine::Opened(true))) {
                    return;
                }
            }
        };
        tokio::select! {
            () = opening => {}
            _ = self.enters.recv() => {}
            () = tokio::time::sleep(LINK) => {}
        }
    }

    /// Lets people look until Enter is pressed.
    pub(super) async fn looked_at(&mut self, output: Output) {
        say(
            output,
            "\n  The page shows what was refused, and why. Enter ends the platform.",
        );
        self.enters.recv().await;
    }
}

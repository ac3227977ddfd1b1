//! Finds the platform that runs here, and asks its Master.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sealbus_bus::Lifetime;
use sealbus_control::admin::{AdminAnswer, AdminRequest, List, Listed, Listing, ask};
use sealbus_control::ask::Ask;
use sealbus_control::operators;
use sealbus_control::rpc::RpcCaller;
use sealbus_control::text::printable_but;
use sealbus_control::{Fault, FaultCode};

use crate::arguments::General;
use crate::error::CliError;

/// How long the Master may take to answer, beyond the time that a request itself asks for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a command looks for the Master that leads, when that has changed, and the pauses in between.
const CHANGE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);
/// How long a Master may be gone before it is not looked for any more.
const GONE: Duration = Duration::from_secs(1);

/// A connection to a running Master.
pub(crate) struct Connection {
    caller: RpcCaller,
    patience: Duration,
    directory: PathBuf,
    /// Whether it may only read. Another connection might do more.
    is_narrowed: bool,
}

impl Connection {
    /// Connects to the platform that the options name, or to the only one that runs here.
    pub(crate) async fn open(general: &General) -> Result<Self, CliError> {
        Self::to(&running(general)?).await
    }

    /// Like [`open`](Self::open), but the Master must answer within this time.
    pub(crate) async fn open_within(
        general: &General,
        patience: Duration,
    ) -> Result<Self, CliError> {
        let directory = running(general)?;
        let opened = tokio::time::timeout(patience, Self::to(&directory)).await;
        let opened = opened.map_err(|_| CliError::Failed {
            message: format!(
                "the Master at {} did not answer within {}",
                directory.display(),
                Lifetime(patience)
            ),
            help: Some(
                "wait longer with --timeout; `sealbus doctor` examines this machine".to_owned(),
            ),
        })?;
        Ok(Self {
            patience,
            ..opened?
        })
    }

    /// Connects to the platform behind a state directory.
    pub(crate) async fn to(directory: &Path) -> Result<Self, CliError> {
        if cfg!(not(unix)) {
            return Err(CliError::needs_unix());
        }
        match operators::connect(directory).await {
            Ok(caller) => Ok(Self::with(caller, directory)),
            Err(fault) if fault.code == FaultCode::Unavailable => {
                let directory = directory.to_owned();
                Err(match sealbus_master::is_held(&directory) {
                    true => stands_by(directory).await,
                    false => CliError::NoPlatform { directory },
                })
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// As [`to`](Self::to), or to the Master that stands by there.
    pub(crate) async fn to_any(general: &General) -> Result<Self, CliError> {
        let error = match Self::open(general).await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        if let CliError::StandsBy { directory, .. } = &error
            && let Ok(caller) = operators::connect_to_standby(directory).await
        {
            return Ok(Self::with(caller, directory));
        }
        Err(error)
    }

    fn with(caller: RpcCaller, directory: &Path) -> Self {
        Self {
            caller,
            patience: PATIENCE,
            directory: directory.to_owned(),
            is_narrowed: false,
        }
    }

    /// Asks the Master for a whole list, page by page.
    pub(crate) async fn list<L>(
        &mut self,
        list: L,
    ) -> Result<Vec<<L::Answer as Listed>::Item>, CliError>
    where
        L: List + Ask<Requests = AdminRequest, Answers = AdminAnswer>,
    {
        let mut listing = Listing::of(list);
        while let Some(page) = listing.next_page() {
            listing.take(self.ask(page).await?);
        }
        Ok(listing.into_items())
    }

    /// Asks the Master, and turns the platform's fault into an error of the command line.
    pub(crate) async fn ask<A>(&mut self, ask: A) -> Result<A::Answer, CliError>
    where
        A: Ask<Requests = AdminRequest, Answers = AdminAnswer>,
    {
        Ok(A::take(self.answer(ask.into()).await?)?)
    }

    async fn answer(&mut self, request: AdminRequest) -> Result<AdminAnswer, CliError> {
        let asked = match &request {
            AdminRequest::Send { message } => message.wait,
            AdminRequest::Kill { grace, .. }
            | AdminRequest::Apply { grace, .. }
            | AdminRequest::Shutdown { grace } => *grace,
            AdminRequest::StartAgain { timeout, grace, .. } => {
                timeout.saturating_add(grace.unwrap_or_default())
            }
            _ => 0,
        };
        let patience = self.patience + Duration::from_millis(asked);
        self.is_narrowed |= matches!(request, AdminRequest::Narrow { .. });
        let mut until = None;
        loop {
            let mut fault = match self.caller.ask(&request, patience).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let is_lost = fault.code == FaultCode::Unavailable && self.caller.is_closed();
            if is_lost && fault.advice.is_none() {
                fault = fault.advise(match request.only_reads() {
                    true => "run the command again, on the machine of the Master that leads",
                    false => "it is not known whether this was done: look at the Master that leads, and ask again if it was not",
                });
            }
            // To revoke twice does no harm.
            let is_safe = request.only_reads() || matches!(request, AdminRequest::Revoke { .. });
            let is_undone = fault.code == FaultCode::NotLeading || is_lost && is_safe;
            if is_undone && !self.is_narrowed {
                let until = *until.get_or_insert_with(|| Instant::now() + CHANGE);
                self.find_again(&request, fault, until).await?;
                continue;
            }
            return Err(fault.into());
        }
    }

    /// Connects again after the leadership has ended: to this Master if it leads again, or to the CA of one that stands by,
    /// which takes revocations.
    ///
    /// # Errors
    /// That another Master leads, and where, or the fault that the leadership left behind.
    async fn find_again(
        &mut self,
        request: &AdminRequest,
        fault: Fault,
        until: Instant,
    ) -> Result<(), CliError> {
        let mut seen = Instant::now();
        while Instant::now() < until && seen.elapsed() < GONE {
            tokio::time::sleep(PAUSE).await;
            if sealbus_master::is_held(&self.directory) {
                seen = Instant::now();
            }
            if let Ok(caller) = operators::connect(&self.directory).await {
                self.caller = caller;
                return Ok(());
            }
            let Ok(caller) = operators::connect_to_standby(&self.directory).await else {
                continue;
            };
            if matches!(request, AdminRequest::Revoke { .. }) {
                self.caller = caller;
                return Ok(());
            }
            if let Some(word) = word_of(&caller).await
                && word.code == FaultCode::NotLeading
            {
                return Err(standing_by(self.directory.clone(), Some(word)));
            }
        }
        Err(fault.into())
    }
}

/// The words in which a Master that stands by refuses commands.
async fn word_of(standby: &RpcCaller) -> Option<Fault> {
    standby.ask(ask::Status, PATIENCE).await.err()
}

/// The error of a command that the Master in this state directory does not take, in its own words if it says why.
async fn stands_by(directory: PathBuf) -> CliError {
    let word = match operators::connect_to_standby(&directory).await {
        Ok(caller) => word_of(&caller).await,
        Err(_) => None,
    };
    standing_by(directory, word)
}

fn standing_by(directory: PathBuf, word: Option<Fault>) -> CliError {
    let (says, help) = match word {
        Some(Fault {
            message,
            advice: Some(advice),
            ..
        }) => (message, advice),
        _ => (
            "it stands by for the one that leads, or is still starting".to_owned(),
            "run the command on the machine of the Master that leads, or repeat it in a few seconds".to_owned(),
        ),
    };
    CliError::StandsBy {
        directory,
        says,
        help,
    }
}

impl From<Fault> for CliError {
    fn from(fault: Fault) -> Self {
        let Fault {
            code,
            message,
            advice,
        } = fault;
        // Faults may quote foreign text.
        let message = printable_but(&message, |it| it == '\n').into_owned();
        match code {
            FaultCode::Unknown => Self::NotFound {
                message,
                help: advice.unwrap_or_else(|| {
                    "`sealbus ps` and `sealbus nodes` list what there is".to_owned()
                }),
            },
            FaultCode::NameTaken => Self::NameTaken { message, advice },
            FaultCode::NotPermitted
            | FaultCode::NotPlaced
            | FaultCode::InvalidSecret
            | FaultCode::ClockSkew => Self::Refused { message, advice },
            FaultCode::IllegalName | FaultCode::BadRequest => Self::Usage {
                message,
                help: advice.unwrap_or_else(|| "see the command's --help".to_owned()),
            },
            _ => Self::Failed {
                message,
                help: advice,
            },
        }
    }
}

/// The state directory of the chosen platform.
pub(crate) fn running(general: &General) -> Result<PathBuf, CliError> {
    if cfg!(not(unix)) {
        return Err(CliError::needs_unix());
    }
    if let Some(directory) = &general.state {
        return Ok(directory.clone());
    }
    let base = base()?;
    if let Some(name) = &general.platform {
        return Ok(base.join(name));
    }
    let names_of = |chosen: fn(&Path) -> bool| {
        let mut names: Vec<String> = std::fs::read_dir(&base)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| chosen(&entry.path()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    };
    let names = names_of(operators::is_served);
    match names.as_slice() {
        [] => match names_of(sealbus_master::is_held).first() {
            Some(name) => Ok(base.join(name)),
            None => Err(CliError::NoPlatform { directory: base }),
        },
        [name] => Ok(base.join(name)),
        _ => Err(CliError::SeveralPlatforms { names }),
    }
}

/// The state directory that the options name, or the default one of a platform. It is absolute, because programs that a
/// node starts in another folder look for its socket there.
pub(crate) fn directory_of(general: &General, platform: &str) -> Result<PathBuf, CliError> {
    match &general.state {
        Some(directory) => {
            std::path::absolute(directory).map_err(CliError::file("find", directory))
        }
        None => Ok(base()?.join(platform)),
    }
}

/// `$XDG_STATE_HOME/sealbus`. By the XDG base directory specification, its default is `$HOME/.local/state/sealbus`. On
/// Windows it is `%LOCALAPPDATA%\sealbus`.
fn base() -> Result<PathBuf, CliError> {
    let home = |variable: &str| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    home("XDG_STATE_HOME")
        .or_else(|| home("HOME").map(|home| home.join(".local/state")))
        .or_else(|| cfg!(windows).then(|| home("LOCALAPPDATA")).flatten())
        .map(|state| state.join("sealbus"))
        .ok_or_else(|| CliError::Usage {
            message: "there is no home directory to keep state in".to_owned(),
            help: "name a state directory with --state DIRECTORY".to_owned(),
        })
}

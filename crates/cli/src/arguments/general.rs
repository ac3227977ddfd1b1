//! The options of every command.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct General {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Directory with the platform's state and its admin socket [default:
    /// $XDG_STATE_HOME/sealbus/<PLATFORM>]
    #[arg(long, global = true, env = "SEALBUS_STATE", value_name = "DIRECTORY")]
    pub(crate) state: Option<PathBuf>,
    /// Name of the platform; needed only if several run here
    #[arg(long, global = true, env = "SEALBUS_PLATFORM", value_name = "NAME")]
    pub(crate) platform: Option<String>,
    /// Use colours; auto means on a terminal only, and never if NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

impl General {
    /// The options among words that are still being typed, and the variables of the environment.
    pub(crate) fn of_typed(words: &[OsString]) -> Self {
        let option = |name: &str, variable: &str| {
            let typed = words.windows(2).find(|pair| pair[0] == name);
            let typed = typed.map(|pair| pair[1].clone());
            let joined = |word: &OsString| {
                let value = word.to_str()?.strip_prefix(name)?.strip_prefix('=')?;
                Some(OsString::from(value))
            };
            let typed = typed.or_else(|| words.iter().find_map(joined));
            typed.or_else(|| std::env::var_os(variable))
        };
        let platform = option("--platform", "SEALBUS_PLATFORM");
        Self {
            json: false,
            state: option("--state", "SEALBUS_STATE").map(PathBuf::from),
            platform: platform.and_then(|name| name.into_string().ok()),
            color: Color::Auto,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_is_known_while_a_command_is_typed() {
        let words = [
            "sealbus", "--", "sealbus", "--state", "/there", "kill", "wor",
        ];
        let general = General::of_typed(&words.map(OsString::from));
        assert_eq!(general.state, Some(PathBuf::from("/there")));
        let words = ["sealbus", "--", "sealbus", "--state=/here", "kill", "wor"];
        let general = General::of_typed(&words.map(OsString::from));
        assert_eq!(general.state, Some(PathBuf::from("/here")));
    }
}

//! Log of a plugin.

use crate::cni::protocol::json::{KeyFault, Section};
use crate::prelude::*;

/// Least severe level of messages that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Only errors that end the program.
    Panic,
    /// Errors.
    Error,
    /// Warnings.
    Warning,
    /// Information.
    #[default]
    Info,
    /// Every step.
    Debug,
}

/// Log of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// Level, `logLevel`.
    pub level: LogLevel,
    /// Path of the file, `logFile`; standard error without one.
    pub file: Option<String>,
}

/// Reads `logLevel` and `logFile`.
pub(super) fn read_log(root: &Section<'_>) -> Result<LogSettings, KeyFault> {
    let level = match root.text("logLevel")? {
        None => LogLevel::default(),
        Some(text) => match text.to_ascii_lowercase().as_str() {
            "panic" => LogLevel::Panic,
            "error" => LogLevel::Error,
            "warning" => LogLevel::Warning,
            "info" => LogLevel::Info,
            "debug" | "verbose" => LogLevel::Debug,
            _ => {
                let problem =
                    format!("{text:?} is not one of panic, error, warning, info, debug and verbose");
                return Err(KeyFault::new("logLevel", problem));
            }
        },
    };
    Ok(LogSettings { level, file: root.text("logFile")?.map(ToOwned::to_owned) })
}

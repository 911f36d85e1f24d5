//! Errors as the CNI specification defines them.

use core::fmt;

use crate::prelude::*;

/// Code of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorCode {
    /// The plugin does not support the version of the configuration.
    IncompatibleVersion,
    /// The configuration contains a field or value that the plugin does not support.
    UnsupportedField,
    /// The container is unknown or does not exist.
    UnknownContainer,
    /// A variable of the environment is missing or invalid.
    InvalidEnvironment,
    /// A file cannot be read or written.
    Io,
    /// Standard input is not what the specification defines.
    Decode,
    /// The network configuration is invalid.
    InvalidConfig,
    /// The namespace is not one of a container.
    InvalidNamespace,
    /// A transient condition: the runtime should try again later.
    TryAgainLater,
    /// The plugin is not available: every ADD would fail.
    NotAvailable,
    /// The plugin is not available, and existing containers may have limited connectivity.
    LimitedConnectivity,
    /// The kernel refused a change of the device.
    DeviceFailed,
    /// CHECK found a difference.
    CheckFailed,
    /// A delegated plugin failed with this code.
    Delegated(u32),
}

impl ErrorCode {
    /// Returns the number of the code.
    pub const fn number(self) -> u32 {
        match self {
            Self::IncompatibleVersion => 1,
            Self::UnsupportedField => 2,
            Self::UnknownContainer => 3,
            Self::InvalidEnvironment => 4,
            Self::Io => 5,
            Self::Decode => 6,
            Self::InvalidConfig => 7,
            Self::InvalidNamespace => 8,
            Self::TryAgainLater => 11,
            Self::NotAvailable => 50,
            Self::LimitedConnectivity => 51,
            Self::DeviceFailed => 100,
            Self::CheckFailed => 101,
            Self::Delegated(code) => code,
        }
    }
}

/// Error of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    /// Code.
    pub code: ErrorCode,
    /// Subject and problem. For an invalid configuration it contains the key.
    pub message: String,
    /// Remedy, or the causes of the error; empty if the message says all.
    pub details: String,
}

impl CniError {
    /// Returns an error without details.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// Returns the error of an invalid value of `key`.
    pub fn invalid_config(key: &str, problem: impl fmt::Display) -> Self {
        Self::new(ErrorCode::InvalidConfig, format!("{key}: {problem}"))
    }

    /// Returns the same error with details.
    #[must_use]
    pub fn with_details(self, details: impl Into<String>) -> Self {
        Self { details: details.into(), ..self }
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, ": {}", self.details) }
    }
}

impl core::error::Error for CniError {}

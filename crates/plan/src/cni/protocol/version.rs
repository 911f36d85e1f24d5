//! Versions of the CNI specification.

use core::fmt;
use core::str::FromStr;

use super::{CniError, Command, ErrorCode};
use crate::prelude::*;

/// Version of the CNI specification that the plugins support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CniVersion {
    /// 0.1.0, also of a configuration without a version.
    V0_1_0,
    /// 0.2.0.
    V0_2_0,
    /// 0.3.0: results have a list of interfaces and any number of addresses.
    V0_3_0,
    /// 0.3.1.
    V0_3_1,
    /// 0.4.0: CHECK.
    V0_4_0,
    /// 1.0.0: addresses without their version.
    V1_0_0,
    /// 1.1.0: GC and STATUS; MTU and PCI address of interfaces.
    V1_1_0,
}

impl CniVersion {
    /// All supported versions, oldest first.
    pub const SUPPORTED: [Self; 7] =
        [Self::V0_1_0, Self::V0_2_0, Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// Latest supported version.
    pub const LATEST: Self = Self::V1_1_0;

    /// Returns the text of the version.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Checks that a configuration of this version allows the command.
    pub fn check_command(self, command: Command) -> Result<(), CniError> {
        let since = match command {
            Command::Check => Self::V0_4_0,
            Command::Gc | Command::Status => Self::V1_1_0,
            Command::Add | Command::Del | Command::Version => Self::V0_1_0,
        };
        if self >= since {
            return Ok(());
        }
        let message = format!("cniVersion: {self} has no {}", command.name());
        Err(CniError::new(ErrorCode::IncompatibleVersion, message)
            .with_details(format!("{} needs version {since} or later", command.name())))
    }
}

impl fmt::Display for CniVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CniVersion {
    type Err = CniError;

    /// Parses a version; an empty text is the version of configurations that have none.
    fn from_str(text: &str) -> Result<Self, CniError> {
        if text.is_empty() {
            return Ok(Self::V0_1_0);
        }
        Self::SUPPORTED.into_iter().find(|version| version.as_str() == text).ok_or_else(|| {
            let supported = Self::SUPPORTED.map(Self::as_str).join(", ");
            CniError::new(ErrorCode::IncompatibleVersion, format!("cniVersion: {text:?} is not supported"))
                .with_details(format!("supported versions: {supported}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_as_printed_and_ordered() {
        for version in CniVersion::SUPPORTED {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        assert!(CniVersion::SUPPORTED.is_sorted());
        assert_eq!("".parse(), Ok(CniVersion::V0_1_0));
    }

    #[test]
    fn other_versions_are_refused() {
        for text in ["1.2.0", "0.5.0", "1.0", "v1.0.0", " 1.0.0", "latest"] {
            let error = text.parse::<CniVersion>().unwrap_err();
            assert_eq!(error.code, ErrorCode::IncompatibleVersion);
            assert!(error.message.contains(text) && error.details.contains("0.1.0, 0.2.0"), "{error}");
        }
    }

    #[test]
    fn commands_exist_since_their_version() {
        use CniVersion::{V0_1_0, V0_3_1, V0_4_0, V1_0_0, V1_1_0};
        for (command, version, is_allowed) in [
            (Command::Add, V0_1_0, true),
            (Command::Del, V0_1_0, true),
            (Command::Check, V0_3_1, false),
            (Command::Check, V0_4_0, true),
            (Command::Gc, V1_0_0, false),
            (Command::Gc, V1_1_0, true),
            (Command::Status, V1_0_0, false),
            (Command::Status, V1_1_0, true),
        ] {
            let checked = version.check_command(command);
            assert_eq!(checked.is_ok(), is_allowed, "{command:?} {version}");
            let is_named = |error: CniError| {
                error.code == ErrorCode::IncompatibleVersion && error.message.contains(command.name())
            };
            assert!(checked.map_or_else(is_named, |()| true));
        }
    }
}

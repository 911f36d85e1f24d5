//! Output of a plugin that is not a result.

use serde_json::{Value, json};

use super::{CniError, CniVersion};
use crate::prelude::*;

/// Returns the output of VERSION.
pub fn version_output() -> String {
    let supported = CniVersion::SUPPORTED.map(CniVersion::as_str);
    json!({ "cniVersion": CniVersion::LATEST.as_str(), "supportedVersions": supported }).to_string()
}

/// Returns the output of a command that failed. `version` is the version of the configuration, or the latest one if the
/// error is that the configuration cannot be read.
pub fn error_output(error: &CniError, version: &str) -> Value {
    let mut output = json!({ "cniVersion": version, "code": error.code.number(), "msg": error.message });
    if !error.details.is_empty() {
        output["details"] = error.details.clone().into();
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::protocol::ErrorCode;

    #[test]
    fn version_lists_every_version() {
        assert_eq!(
            version_output(),
            r#"{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}"#
        );
    }

    #[test]
    fn an_error_has_details_only_if_there_are_some() {
        let error = CniError::new(ErrorCode::TryAgainLater, "busy");
        assert_eq!(
            error_output(&error, "0.4.0"),
            json!({ "cniVersion": "0.4.0", "code": 11, "msg": "busy" })
        );
        let error = CniError::invalid_config("vlan", "5000 is too high").with_details("use 0 to 4094");
        assert_eq!(
            error_output(&error, "1.0.0"),
            json!({ "cniVersion": "1.0.0", "code": 7, "msg": "vlan: 5000 is too high", "details": "use 0 to 4094" })
        );
    }
}

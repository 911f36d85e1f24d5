//! Outcome of a call of a plugin.

use serde_json::Value;

/// Outcome of a call of a plugin, or of a program that calls plugins.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) status: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Error of a plugin, as the CNI specification defines it.
#[derive(Debug)]
pub(super) struct PluginError {
    pub(super) code: u64,
    /// Message and details.
    pub(super) text: String,
}

impl Outcome {
    /// Returns the result of a successful ADD.
    #[track_caller]
    pub(super) fn result(&self) -> Value {
        assert_eq!(self.status, 0, "{self:#?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Checks that the call succeeded, and printed nothing.
    #[track_caller]
    pub(super) fn assert_silent_success(&self) {
        assert!(self.status == 0 && self.stdout.is_empty(), "{self:#?}");
    }

    /// Returns the error of a plugin that was called directly.
    #[track_caller]
    pub(super) fn error(&self) -> PluginError {
        assert_ne!(self.status, 0, "{self:#?}");
        let error: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"));
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        let code = error["code"].as_u64().unwrap_or_else(|| panic!("no code: {self:#?}"));
        PluginError { code, text: format!("{}; {}", text("msg"), text("details")) }
    }

    /// Checks the code of the error, and that its text contains all words, regardless of case.
    #[track_caller]
    pub(super) fn assert_error(&self, code: u64, words: &[&str]) {
        let error = self.error();
        assert_eq!(error.code, code, "{self:#?}");
        let text = error.text.to_lowercase();
        for word in words {
            assert!(text.contains(&word.to_lowercase()), "{word:?} is not mentioned: {self:#?}");
        }
    }
}

//! Findings of rules, and their texts within the limits of the API server.

use core::fmt;

use crate::prelude::*;

/// Number of warnings in a response. The API server passes on at most 4096 bytes, and clients show few.
const MAX_WARNINGS: usize = 8;

/// Length of a warning in bytes. The API server cuts longer ones at 256 bytes, in the middle of a word.
const MAX_WARNING_BYTES: usize = 240;

/// Length of an error message in bytes.
const MAX_ERROR_BYTES: usize = 8 * 1024;

/// End of a text that was cut.
const ELLIPSIS: &str = "...";

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The object is refused.
    Error,
    /// The object is admitted, but may not do what its author expects.
    Warning,
}

/// Finding of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Rule as listed in docs/admission.md, such as `P05`.
    pub rule: &'static str,
    /// Reason in CamelCase, for conditions and metrics.
    pub reason: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Field to change, such as `spec.resourceName`. Empty if the finding is about the whole object.
    pub field: String,
    /// Problem and remedy.
    pub message: String,
    /// Identity of the problem if the message has more details than that. Two findings with the same rule, field and
    /// subject are the same error.
    pub subject: Option<String>,
}

impl Finding {
    /// Returns whether both are the same error, possibly with different messages.
    fn is_same_error(&self, other: &Self) -> bool {
        let same_subject = match (&self.subject, &other.subject) {
            (Some(own), Some(other)) => own == other,
            _ => self.message == other.message,
        };
        self.rule == other.rule && self.field == other.field && same_subject
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Findings about one object, in the order of the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds an error.
    pub fn error(
        &mut self,
        rule: &'static str,
        reason: &'static str,
        field: impl Into<String>,
        message: impl Into<String>,
    ) {
        let (field, message) = (field.into(), message.into());
        self.0.push(Finding { rule, reason, severity: Severity::Error, field, message, subject: None });
    }

    /// Adds a warning.
    pub fn warning(
        &mut self,
        rule: &'static str,
        reason: &'static str,
        field: impl Into<String>,
        message: impl Into<String>,
    ) {
        let (field, message) = (field.into(), message.into());
        self.0.push(Finding { rule, reason, severity: Severity::Warning, field, message, subject: None });
    }

    /// Returns all findings.
    pub fn iter(&self) -> core::slice::Iter<'_, Finding> {
        self.0.iter()
    }

    /// Returns the errors.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter().filter(|finding| finding.severity == Severity::Error)
    }

    /// Returns the texts of the warnings, short enough to be passed on by the API server unchanged.
    pub fn warnings(&self) -> Vec<String> {
        let mut texts: Vec<_> = self
            .0
            .iter()
            .filter(|finding| finding.severity == Severity::Warning)
            .map(|finding| shorten(&remove_control_characters(&finding.to_string()), MAX_WARNING_BYTES))
            .collect();
        if texts.len() > MAX_WARNINGS {
            let more = texts.len() - (MAX_WARNINGS - 1);
            texts.truncate(MAX_WARNINGS - 1);
            texts.push(format!("and {more} more warnings"));
        }
        texts
    }

    /// Returns all errors as one message; `None` if there is no error.
    pub fn error_message(&self) -> Option<String> {
        let texts: Vec<_> = self.errors().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| shorten(&texts.join("; "), MAX_ERROR_BYTES))
    }

    /// Returns the findings with all errors turned into warnings.
    #[must_use]
    pub fn downgraded(mut self) -> Self {
        for finding in &mut self.0 {
            finding.severity = Severity::Warning;
        }
        self
    }

    /// Returns the findings with all errors that are also in `before` turned into warnings.
    #[must_use]
    pub fn ratcheted(mut self, before: &Self) -> Self {
        let is_old = |finding: &Finding| before.errors().any(|old| old.is_same_error(finding));
        for finding in &mut self.0 {
            if is_old(finding) {
                finding.severity = Severity::Warning;
            }
        }
        self
    }
}

impl<'a> IntoIterator for &'a Findings {
    type Item = &'a Finding;
    type IntoIter = core::slice::Iter<'a, Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Findings {
    type Item = Finding;
    type IntoIter = alloc::vec::IntoIter<Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Extend<Finding> for Findings {
    fn extend<I: IntoIterator<Item = Finding>>(&mut self, more: I) {
        self.0.extend(more);
    }
}

impl FromIterator<Finding> for Findings {
    fn from_iter<I: IntoIterator<Item = Finding>>(findings: I) -> Self {
        Self(findings.into_iter().collect())
    }
}

/// Replaces control characters: the API server drops warnings that contain one.
fn remove_control_characters(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Cuts a text to at most `max` bytes, between two words if possible.
fn shorten(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let fits = &text[..text.floor_char_boundary(max - ELLIPSIS.len())];
    let is_within_word = !text[fits.len()..].starts_with(' ');
    let end = fits.rfind(' ').filter(|_| is_within_word).unwrap_or(fits.len());
    format!("{}{ELLIPSIS}", fits[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(messages: &[&str]) -> Vec<String> {
        let mut findings = Findings::default();
        for message in messages {
            findings.warning("T01", "Test", "spec.a", *message);
        }
        assert_eq!(findings.error_message(), None);
        findings.warnings()
    }

    #[test]
    fn all_errors_are_reported_in_order() {
        let mut findings = Findings::default();
        findings.error("T01", "Test", "spec.a", "a is wrong");
        findings.warning("T02", "Test", "spec.b", "b is odd");
        findings.error("T03", "Test", "", "all is wrong");
        assert_eq!(findings.error_message().unwrap(), "spec.a: a is wrong; all is wrong");
        assert_eq!(findings.warnings(), ["spec.b: b is odd"]);
    }

    #[test]
    fn a_long_warning_is_cut_between_words() {
        let texts = warnings(&[&"word ".repeat(100), &"ä".repeat(200), "short"]);
        assert!(texts[0].len() <= MAX_WARNING_BYTES && texts[0].ends_with(" word..."), "{}", texts[0]);
        assert!(texts[0].len() > MAX_WARNING_BYTES - 8, "{}", texts[0].len());
        assert!(texts[1].len() <= MAX_WARNING_BYTES && texts[1].ends_with("..."), "{}", texts[1]);
        assert_eq!(texts[2], "spec.a: short");
    }

    #[test]
    fn a_cut_between_two_words_loses_no_word() {
        assert_eq!(shorten("one two three", 10), "one two...");
        assert_eq!(shorten("one two three", 9), "one...");
        assert_eq!(shorten("one two three", 13), "one two three");
        assert_eq!(shorten("threetimes", 6), "thr...");
    }

    #[test]
    fn a_warning_has_no_control_characters() {
        assert_eq!(warnings(&["a\nb\u{7f}c"]), ["spec.a: a b c"]);
    }

    #[test]
    fn many_warnings_are_counted() {
        assert_eq!(warnings(&["x"; 8]).len(), 8);
        let texts = warnings(&["x"; 9]);
        assert_eq!(texts.len(), 8);
        assert_eq!(texts[7], "and 2 more warnings");
    }

    #[test]
    fn the_error_message_is_limited() {
        let mut findings = Findings::default();
        findings.error("T01", "Test", "spec.a", "long ".repeat(4000));
        let text = findings.error_message().unwrap();
        assert!(text.len() <= MAX_ERROR_BYTES && text.ends_with(" long..."), "{} bytes", text.len());
    }

    #[test]
    fn only_the_same_error_is_downgraded() {
        let error = |rule, field, message| {
            let mut findings = Findings::default();
            findings.error(rule, "Test", field, message);
            findings
        };
        let is_downgraded =
            |before: &Findings| error("T01", "spec.a", "wrong").ratcheted(before).errors().next().is_none();
        assert!(is_downgraded(&error("T01", "spec.a", "wrong")));
        assert!(!is_downgraded(&error("T02", "spec.a", "wrong")));
        assert!(!is_downgraded(&error("T01", "spec.b", "wrong")));
        assert!(!is_downgraded(&error("T01", "spec.a", "wrong in another way")));
        assert!(!is_downgraded(&Findings::default()));
        let downgraded = error("T01", "spec.a", "wrong").ratcheted(&error("T01", "spec.a", "wrong"));
        assert_eq!(downgraded.warnings(), ["spec.a: wrong"]);
    }
}

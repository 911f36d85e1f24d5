//! What rules find, and how it is said within the limits of the API server.

use core::fmt;

use crate::prelude::*;

/// The API server adds no more than 4096 bytes of warnings to an answer, and clients show few.
const MOST_WARNINGS: usize = 8;

/// The API server cuts a warning at 256 bytes, in the middle of a word.
const LONGEST_WARNING: usize = 240;

/// A refusal is read by people; more than this is not.
const LONGEST_REFUSAL: usize = 8 * 1024;

/// What stands at the end of a text that was cut.
const CUT: &str = "...";

/// What a finding means for the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It cannot be as it is written.
    Error,
    /// It can, but may not be what was meant.
    Warning,
}

/// One thing that a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule, as docs/admission.md calls it: `P05`.
    pub rule: &'static str,
    /// In one `PascalCase` word, for conditions and metrics.
    pub reason: &'static str,
    /// What it means for the object.
    pub severity: Severity,
    /// The field that is to be changed, as in `spec.resourceName`. Empty when it is about the whole object.
    pub field: String,
    /// What is wrong, and what to do about it.
    pub message: String,
    /// What it is about, where the message says more than that. The same rule about the same is the same error.
    pub subject: Option<String>,
}

impl Finding {
    /// Whether both are the same error, perhaps in other words.
    fn is_about(&self, other: &Self) -> bool {
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

/// All that was found.
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

    /// All of them, in the order in which they were found.
    pub fn iter(&self) -> core::slice::Iter<'_, Finding> {
        self.0.iter()
    }

    /// Those for which the object is refused.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter().filter(|finding| finding.severity == Severity::Error)
    }

    /// The others, as texts that the API server passes on unchanged.
    pub fn warnings(&self) -> Vec<String> {
        let mut texts: Vec<_> = self
            .0
            .iter()
            .filter(|finding| finding.severity == Severity::Warning)
            .map(|finding| shortened(&on_one_line(&finding.to_string()), LONGEST_WARNING))
            .collect();
        if texts.len() > MOST_WARNINGS {
            let more = texts.len() - (MOST_WARNINGS - 1);
            texts.truncate(MOST_WARNINGS - 1);
            texts.push(format!("and {more} more warnings"));
        }
        texts
    }

    /// All errors in one text; `None` when there is none.
    pub fn refusal(&self) -> Option<String> {
        let texts: Vec<_> = self.errors().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| shortened(&texts.join("; "), LONGEST_REFUSAL))
    }

    /// With all errors as warnings.
    #[must_use]
    pub fn softened(mut self) -> Self {
        for finding in &mut self.0 {
            finding.severity = Severity::Warning;
        }
        self
    }

    /// With errors that were so `before` as warnings.
    #[must_use]
    pub fn ratcheted(mut self, before: &Self) -> Self {
        let was_so = |finding: &Finding| before.errors().any(|old| old.is_about(finding));
        for finding in &mut self.0 {
            if was_so(finding) {
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

/// The API server drops a warning with a control character in it.
fn on_one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// The text in at most `most` bytes, cut between two words where there are two.
fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let fits = &text[..text.floor_char_boundary(most - CUT.len())];
    let cut_a_word = !text[fits.len()..].starts_with(' ');
    let end = fits.rfind(' ').filter(|_| cut_a_word).unwrap_or(fits.len());
    format!("{}{CUT}", fits[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(messages: &[&str]) -> Vec<String> {
        let mut findings = Findings::default();
        for message in messages {
            findings.warning("T01", "Test", "spec.a", *message);
        }
        assert_eq!(findings.refusal(), None);
        findings.warnings()
    }

    #[test]
    fn errors_are_told_all_and_in_order() {
        let mut findings = Findings::default();
        findings.error("T01", "Test", "spec.a", "a is wrong");
        findings.warning("T02", "Test", "spec.b", "b is odd");
        findings.error("T03", "Test", "", "all is wrong");
        assert_eq!(findings.refusal().unwrap(), "spec.a: a is wrong; all is wrong");
        assert_eq!(findings.warnings(), ["spec.b: b is odd"]);
    }

    #[test]
    fn a_long_warning_is_cut_between_words() {
        let texts = warned(&[&"word ".repeat(100), &"ä".repeat(200), "short"]);
        assert!(texts[0].len() <= LONGEST_WARNING && texts[0].ends_with(" word..."), "{}", texts[0]);
        assert!(texts[0].len() > LONGEST_WARNING - 8, "{}", texts[0].len());
        assert!(texts[1].len() <= LONGEST_WARNING && texts[1].ends_with("..."), "{}", texts[1]);
        assert_eq!(texts[2], "spec.a: short");
    }

    #[test]
    fn a_cut_that_falls_between_words_loses_none() {
        assert_eq!(shortened("one two three", 10), "one two...");
        assert_eq!(shortened("one two three", 9), "one...");
        assert_eq!(shortened("one two three", 13), "one two three");
        assert_eq!(shortened("threetimes", 6), "thr...");
    }

    #[test]
    fn a_warning_has_no_control_characters() {
        assert_eq!(warned(&["a\nb\u{7f}c"]), ["spec.a: a b c"]);
    }

    #[test]
    fn many_warnings_are_counted() {
        assert_eq!(warned(&["x"; 8]).len(), 8);
        let texts = warned(&["x"; 9]);
        assert_eq!(texts.len(), 8);
        assert_eq!(texts[7], "and 2 more warnings");
    }

    #[test]
    fn a_refusal_has_an_end() {
        let mut findings = Findings::default();
        findings.error("T01", "Test", "spec.a", "long ".repeat(4000));
        let text = findings.refusal().unwrap();
        assert!(text.len() <= LONGEST_REFUSAL && text.ends_with(" long..."), "{} bytes", text.len());
    }

    #[test]
    fn only_the_same_error_is_softened() {
        let error = |rule, field, message| {
            let mut findings = Findings::default();
            findings.error(rule, "Test", field, message);
            findings
        };
        let is_softened =
            |before: &Findings| error("T01", "spec.a", "wrong").ratcheted(before).errors().next().is_none();
        assert!(is_softened(&error("T01", "spec.a", "wrong")));
        assert!(!is_softened(&error("T02", "spec.a", "wrong")));
        assert!(!is_softened(&error("T01", "spec.b", "wrong")));
        assert!(!is_softened(&error("T01", "spec.a", "wrong in another way")));
        assert!(!is_softened(&Findings::default()));
        let softened = error("T01", "spec.a", "wrong").ratcheted(&error("T01", "spec.a", "wrong"));
        assert_eq!(softened.warnings(), ["spec.a: wrong"]);
    }
}

//! What admission would say of an object, as a condition of that object.

use vfleet_api::conditions::{VALID, Verdict};

use super::Findings;
use crate::prelude::*;

/// The condition [`VALID`] of an object in which this was found. It says the same, admission or not; what is done about
/// the object is decided elsewhere.
pub fn valid(findings: &Findings) -> Verdict {
    let (holds, reason, message) = match (findings.errors().next(), findings.refusal()) {
        (Some(first), Some(refusal)) => (false, first.reason, refusal),
        _ => (true, "AsItShouldBe", "nothing is wrong with what it says".to_owned()),
    };
    let notes = findings.warnings();
    let message =
        if notes.is_empty() { message } else { format!("{message}; note: {}", notes.join("; note: ")) };
    Verdict { type_: VALID, holds, reason, message }
}

/// What is said of an object that passed the schema and still cannot be read: the schema is newer than this program.
pub fn unreadable(error: &str) -> Findings {
    let mut findings = Findings::default();
    let text = format!("this version of the operator cannot read it: {error}; update the operator");
    findings.error("G03", "Unreadable", "", text);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_first_and_the_rest_are_notes() {
        let mut findings = Findings::default();
        assert_eq!(valid(&findings).message, "nothing is wrong with what it says");
        findings.warning("T01", "Odd", "spec.a", "a is odd");
        let verdict = valid(&findings);
        assert_eq!((verdict.holds, verdict.reason), (true, "AsItShouldBe"));
        assert_eq!(verdict.message, "nothing is wrong with what it says; note: spec.a: a is odd");
        findings.error("T02", "Wrong", "spec.b", "b is wrong");
        findings.error("T03", "Bad", "spec.c", "c is bad");
        let verdict = valid(&findings);
        assert_eq!((verdict.type_, verdict.holds, verdict.reason), (VALID, false, "Wrong"));
        assert_eq!(verdict.message, "spec.b: b is wrong; spec.c: c is bad; note: spec.a: a is odd");
    }
}

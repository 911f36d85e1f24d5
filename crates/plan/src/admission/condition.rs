//! Condition `Valid`, built from findings.

use vfleet_api::conditions::{ConditionUpdate, VALID};

use super::Findings;
use crate::prelude::*;

/// Returns condition [`VALID`] of an object with these findings.
pub fn valid_condition(findings: &Findings) -> ConditionUpdate {
    let (status, reason, message) = match (findings.errors().next(), findings.error_message()) {
        (Some(first), Some(message)) => (false, first.reason, message),
        _ => (true, "Valid", "no problems found".to_owned()),
    };
    let warnings = findings.warnings();
    let message = if warnings.is_empty() {
        message
    } else {
        format!("{message}; warning: {}", warnings.join("; warning: "))
    };
    ConditionUpdate { type_: VALID, status, reason, message }
}

/// Returns the finding about an object that passed the schema but cannot be parsed: the CRD is newer than this program.
pub fn unreadable_finding(error: &str) -> Findings {
    let mut findings = Findings::default();
    let text = format!("this version of the operator cannot parse the object: {error}; update the operator");
    findings.error("G03", "Unreadable", "", text);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_before_warnings() {
        let mut findings = Findings::default();
        assert_eq!(valid_condition(&findings).message, "no problems found");
        findings.warning("T01", "Odd", "spec.a", "a is odd");
        let condition = valid_condition(&findings);
        assert_eq!((condition.status, condition.reason), (true, "Valid"));
        assert_eq!(condition.message, "no problems found; warning: spec.a: a is odd");
        findings.error("T02", "Wrong", "spec.b", "b is wrong");
        findings.error("T03", "Bad", "spec.c", "c is bad");
        let condition = valid_condition(&findings);
        assert_eq!((condition.type_, condition.status, condition.reason), (VALID, false, "Wrong"));
        assert_eq!(condition.message, "spec.b: b is wrong; spec.c: c is bad; warning: spec.a: a is odd");
    }
}

//! Admission case. Its format is described in `../admission.rs`.

use std::error::Error;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use vfleet_plan::admission::{Operation, PatchOperation};

use crate::world::{HOME, text};

/// Request with its expected response.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) world: Option<String>,
    #[serde(default)]
    pub(crate) also: Vec<Value>,
    pub(crate) operation: Option<Operation>,
    pub(crate) object: Option<Value>,
    pub(crate) old: Option<Value>,
    #[serde(default)]
    pub(crate) by: DecidedBy,
    pub(crate) expect: Expected,
}

/// Component that decides about the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DecidedBy {
    #[default]
    Ours,
    Schema,
    NotSent,
    LookUp,
}

/// Expected response.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    pub(crate) admitted: bool,
    #[serde(default)]
    pub(crate) errors: Vec<ExpectedFinding>,
    #[serde(default)]
    pub(crate) warnings: Vec<ExpectedFinding>,
    /// Not checked if absent.
    pub(crate) patch: Option<Value>,
}

/// Expected error or warning.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedFinding {
    /// Absent for a finding about the whole object.
    field: Option<String>,
    #[serde(default)]
    contains: Vec<String>,
}

/// Actual response. Errors and warnings are texts of the form `field: text`.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) errors: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) patch: Vec<PatchOperation>,
}

impl Case {
    pub(crate) fn read(file: &Path) -> Result<Self, Box<dyn Error>> {
        let case: Self = serde_saphyr::from_str(&std::fs::read_to_string(file)?)?;
        let is_complete = match case.operation.unwrap_or(Operation::Create) {
            Operation::Create => case.object.is_some() && case.old.is_none(),
            Operation::Update => case.object.is_some() && case.old.is_some(),
            Operation::Delete => case.object.is_none() && case.old.is_some(),
        };
        if !is_complete {
            return Err("CREATE has object, UPDATE has object and old, DELETE has old".into());
        }
        let has_errors = matches!(case.by, DecidedBy::Ours | DecidedBy::Schema);
        if has_errors && case.expect.admitted != case.expect.errors.is_empty() {
            return Err("expect: a refused object has errors, and an admitted one has none".into());
        }
        Ok(case)
    }

    /// Returns the new or the stored object, which have the same kind and name.
    fn any_version(&self) -> &Value {
        self.object.as_ref().or(self.old.as_ref()).unwrap_or(&Value::Null)
    }

    pub(crate) fn kind(&self) -> Result<&str, &'static str> {
        Some(text(self.any_version(), "/kind"))
            .filter(|kind| !kind.is_empty())
            .ok_or("the object has no kind")
    }

    pub(crate) fn name(&self) -> Result<&str, &'static str> {
        let name = text(self.any_version(), "/metadata/name");
        Some(name).filter(|name| !name.is_empty()).ok_or("the object has no name")
    }

    pub(crate) fn namespace(&self) -> Result<&str, &'static str> {
        let namespace = text(self.any_version(), "/metadata/namespace");
        if namespace == HOME {
            return Err("leave metadata.namespace out for the operator's namespace");
        }
        Ok(if namespace.is_empty() { HOME } else { namespace })
    }
}

impl Expected {
    /// Returns all differences as an error.
    pub(crate) fn compare(&self, found: &Outcome) -> Result<(), String> {
        let mut differences = Vec::new();
        if self.admitted != found.errors.is_empty() {
            differences.push(format!("admitted is {}", found.errors.is_empty()));
        }
        compare_findings("error", &self.errors, &found.errors, &mut differences);
        compare_findings("warning", &self.warnings, &found.warnings, &mut differences);
        differences.extend(self.compare_patch(&found.patch).err());
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    }

    pub(crate) fn compare_patch(&self, found: &[PatchOperation]) -> Result<(), String> {
        match &self.patch {
            Some(expected) if *expected != json!(found) => {
                Err(format!("patch is {}, expected {expected}", json!(found)))
            }
            _ => Ok(()),
        }
    }
}

impl ExpectedFinding {
    /// Returns whether a longer text contains the finding.
    #[allow(dead_code, reason = "this file is part of several tests, and not all use it")]
    pub(crate) fn is_part_of(&self, text: &str) -> bool {
        let field = self.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
        text.contains(&field) && self.contains.iter().all(|part| text.contains(part))
    }

    fn matches(&self, finding: &str) -> bool {
        let text = match &self.field {
            Some(field) => finding.strip_prefix(field.as_str()).and_then(|rest| rest.strip_prefix(": ")),
            None => Some(finding),
        };
        text.is_some_and(|text| self.contains.iter().all(|part| text.contains(part)))
    }
}

/// Compares the findings: each expected one must be found once, and no others.
fn compare_findings(
    what: &str,
    expected: &[ExpectedFinding],
    found: &[String],
    differences: &mut Vec<String>,
) {
    let mut left: Vec<_> = found.iter().collect();
    for finding in expected {
        match left.iter().position(|text| finding.matches(text)) {
            Some(index) => {
                left.remove(index);
            }
            None => differences.push(format!("missing: {what} {finding:?}")),
        }
    }
    differences.extend(left.into_iter().map(|text| format!("unexpected: {what} {text:?}")));
}

//! A case: what is asked, and what must be answered. How it is written: see `../admission.rs`.

use std::error::Error;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use vfleet_plan::admission::{Operation, PatchOperation};

use crate::world::{HOME, text};

/// What is asked, and what must be answered.
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
    pub(crate) by: By,
    pub(crate) expect: Expected,
}

/// Who has the last word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum By {
    #[default]
    Ours,
    Schema,
    NotSent,
    LookUp,
}

/// What must be answered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    pub(crate) admitted: bool,
    #[serde(default)]
    pub(crate) errors: Vec<Saying>,
    #[serde(default)]
    pub(crate) warnings: Vec<Saying>,
    /// Absent: not looked at.
    pub(crate) patch: Option<Value>,
}

/// An error or a warning.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saying {
    /// Absent: it is about the whole object.
    field: Option<String>,
    #[serde(default)]
    contains: Vec<String>,
}

/// What was answered. Errors and warnings as their users read them: `field: text`.
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
        let has_errors = matches!(case.by, By::Ours | By::Schema);
        if has_errors && case.expect.admitted != case.expect.errors.is_empty() {
            return Err("expect: what is refused has errors, and what is admitted has none".into());
        }
        Ok(case)
    }

    /// The object that it is about: in what counts here, old and new are alike.
    fn subject(&self) -> &Value {
        self.object.as_ref().or(self.old.as_ref()).unwrap_or(&Value::Null)
    }

    pub(crate) fn kind(&self) -> Result<&str, &'static str> {
        Some(text(self.subject(), "/kind")).filter(|kind| !kind.is_empty()).ok_or("the object has no kind")
    }

    pub(crate) fn name(&self) -> Result<&str, &'static str> {
        let name = text(self.subject(), "/metadata/name");
        Some(name).filter(|name| !name.is_empty()).ok_or("the object has no name")
    }

    pub(crate) fn namespace(&self) -> Result<&str, &'static str> {
        let namespace = text(self.subject(), "/metadata/namespace");
        if namespace == HOME {
            return Err("leave metadata.namespace out for the operator's namespace");
        }
        Ok(if namespace.is_empty() { HOME } else { namespace })
    }
}

impl Expected {
    /// All that differs.
    pub(crate) fn compare(&self, found: &Outcome) -> Result<(), String> {
        let mut differences = Vec::new();
        if self.admitted != found.errors.is_empty() {
            differences.push(format!("admitted is {}", found.errors.is_empty()));
        }
        compare_sayings("error", &self.errors, &found.errors, &mut differences);
        compare_sayings("warning", &self.warnings, &found.warnings, &mut differences);
        differences.extend(self.compare_patch(&found.patch).err());
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    }

    pub(crate) fn compare_patch(&self, found: &[PatchOperation]) -> Result<(), String> {
        match &self.patch {
            Some(wanted) if *wanted != json!(found) => {
                Err(format!("patch is {}, expected {wanted}", json!(found)))
            }
            _ => Ok(()),
        }
    }
}

impl Saying {
    /// Whether a longer text says it among other things.
    #[allow(dead_code, reason = "this file is part of several tests, and not all look into longer texts")]
    pub(crate) fn is_part_of(&self, text: &str) -> bool {
        let field = self.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
        text.contains(&field) && self.contains.iter().all(|part| text.contains(part))
    }

    fn is(&self, said: &str) -> bool {
        let text = match &self.field {
            Some(field) => said.strip_prefix(field.as_str()).and_then(|rest| rest.strip_prefix(": ")),
            None => Some(said),
        };
        text.is_some_and(|text| self.contains.iter().all(|part| text.contains(part)))
    }
}

/// Each that is expected must be said once, and nothing else.
fn compare_sayings(what: &str, expected: &[Saying], said: &[String], differences: &mut Vec<String>) {
    let mut left: Vec<_> = said.iter().collect();
    for saying in expected {
        match left.iter().position(|text| saying.is(text)) {
            Some(at) => {
                left.remove(at);
            }
            None => differences.push(format!("not said: {what} {saying:?}")),
        }
    }
    differences.extend(left.into_iter().map(|text| format!("not expected: {what} {text:?}")));
}

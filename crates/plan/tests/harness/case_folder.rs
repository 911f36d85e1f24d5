//! Folder of a case, and its expected result.

use std::error::Error;
use std::path::Path;

use serde::de::DeserializeOwned;

pub(crate) type TestResult<T = ()> = Result<T, Box<dyn Error>>;

/// Compares the outcome of the case whose folder has `file` with `expected.txt`, which `UPDATE_CASES` writes.
pub(crate) fn compare(file: &Path, outcome: fn(&Path) -> TestResult<String>) -> TestResult {
    let folder = file.parent().ok_or("a case is a folder")?;
    let found = outcome(folder)?;
    let expected = folder.join("expected.txt");
    if std::env::var_os("UPDATE_CASES").is_some() {
        std::fs::write(&expected, &found)?;
    }
    let expected_text = std::fs::read_to_string(&expected)?;
    if found == expected_text {
        return Ok(());
    }
    Err(format!("{} does not match:\n--- expected\n{expected_text}\n--- found\n{found}", expected.display())
        .into())
}

/// Reads a YAML file of a case; `None` if the case does not have it.
pub(crate) fn optional<T: DeserializeOwned>(folder: &Path, file: &str) -> TestResult<Option<T>> {
    let path = folder.join(file);
    if !path.exists() {
        return Ok(None);
    }
    let value = serde_saphyr::from_str(&std::fs::read_to_string(&path)?);
    Ok(Some(value.map_err(|error| format!("{}: {error}", path.display()))?))
}

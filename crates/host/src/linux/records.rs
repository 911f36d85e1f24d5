//! What was written down about PFs: one file for each, in JSON.
//!
//! The Go daemon keeps its own files, which have less in them: only what was last wanted. A machine may go from it to
//! vfleet and back, so its files are kept up to date as well, and what it wrote since then counts.
//!
//! Two files cannot be written at once. Ours is written first and removed last, since it has all there is to know: a
//! process that is cut off in between leaves a file of the Go daemon that is older than ours, or none, and neither
//! says anything then.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use vfleet_api::PciAddress;
use vfleet_api::node_state::Interface;
use vfleet_plan::{ModeTrial, Record, RefusedOrder};

use super::root::HostRoot;
use super::{durable, sysfs};
use crate::{HostError, with_causes};

/// A file's name, and what it says.
pub(super) type NamedRecord = (String, Result<Record, HostError>);

/// All records, by the name of their files: one that is damaged does not stand for others.
pub(super) fn read_all(root: &HostRoot) -> Result<Vec<NamedRecord>, HostError> {
    let mut names: BTreeSet<String> = sysfs::names_if_there(&root.records())?.into_iter().collect();
    // What else somebody put into the Go daemon's directory is not ours to judge.
    let theirs = sysfs::names_if_there(&root.go_records())?;
    names.extend(theirs.into_iter().filter(|name| name.parse::<PciAddress>().is_ok()));
    let names = names.into_iter().filter(|name| !durable::is_draft(name));
    Ok(names.map(|name| (name.clone(), read(root, &name))).collect())
}

fn read(root: &HostRoot, name: &str) -> Result<Record, HostError> {
    let (ours_path, theirs_path) = (root.records().join(name), root.go_records().join(name));
    let ours = read_ours(&ours_path, name)?;
    let theirs = read_theirs(&theirs_path, name)?;
    match (ours, theirs) {
        (Some(ours), None) => Ok(ours),
        (None, Some((pf, interface))) => Ok(Record::taken_over(pf, interface)),
        (Some(ours), Some((_, interface))) => {
            let is_newer = modified(&theirs_path)? > modified(&ours_path)?;
            // The Go daemon was at work after us: what it wanted is what the PF is like now.
            let went_back = is_newer && interface != ours.interface;
            Ok(if went_back { Record { interface, ..ours } } else { ours })
        }
        // Somebody removed it a moment ago.
        (None, None) => Err(sysfs::failed("read", &ours_path, std::io::ErrorKind::NotFound.into())),
    }
}

fn read_ours(path: &Path, name: &str) -> Result<Option<Record>, HostError> {
    durable::read(path)?.map(|bytes| parse_ours(&bytes, path, name)).transpose()
}

/// Returns what the file `path` of ours says, whose name is `name`.
pub(super) fn parse_ours(bytes: &[u8], path: &Path, name: &str) -> Result<Record, HostError> {
    let record: Record = serde_json::from_slice(bytes).map_err(|source| damaged(path, source))?;
    require_name(path, name, &record.pf.to_string())?;
    Ok(record)
}

/// A file that is empty or half written is damaged: the Go daemon does not write them in one go.
fn read_theirs(path: &Path, name: &str) -> Result<Option<(PciAddress, Interface)>, HostError> {
    durable::read(path)?.map(|bytes| parse_theirs(&bytes, path, name)).transpose()
}

/// Returns what the file `path` of the Go daemon says, whose name is `name`.
pub(super) fn parse_theirs(
    bytes: &[u8],
    path: &Path,
    name: &str,
) -> Result<(PciAddress, Interface), HostError> {
    let interface: Interface = serde_json::from_slice(bytes).map_err(|source| damaged(path, source))?;
    let written = interface.pci_address.to_string();
    require_name(path, name, &written)?;
    let pf = name.parse().map_err(|_| wrong_name(path, &written))?;
    Ok((pf, interface))
}

fn damaged(path: &Path, source: serde_json::Error) -> HostError {
    HostError::Record { path: path.to_owned(), source }
}

fn require_name(path: &Path, name: &str, found: &str) -> Result<(), HostError> {
    if found == name { Ok(()) } else { Err(wrong_name(path, found)) }
}

fn wrong_name(path: &Path, found: &str) -> HostError {
    let expected = "the address in its file name";
    HostError::Unreadable { path: path.to_owned(), found: found.to_owned(), expected }
}

fn modified(path: &Path) -> Result<SystemTime, HostError> {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.map_err(|source| sysfs::failed("read", path, source))
}

/// Writes so that a crash at any moment leaves either the old record or the new one.
pub(super) fn write(root: &HostRoot, record: &Record) -> Result<(), HostError> {
    let name = record.pf.to_string();
    let (ours, theirs) = (root.records().join(&name), root.go_records().join(&name));
    let text = serde_json::to_vec_pretty(record).map_err(|source| damaged(&ours, source))?;
    durable::replace(&ours, &text, durable::PRIVATE)?;
    let text = serde_json::to_vec(&record.interface).map_err(|source| damaged(&theirs, source))?;
    durable::replace(&theirs, &text, durable::PUBLIC)?;
    let found = read(root, &name)?;
    if found == *record {
        return Ok(());
    }
    Err(HostError::Unverified {
        attempt: format!("write {}", ours.display()),
        expected: format!("{record:?}"),
        found: format!("{found:?}"),
    })
}

/// Notes in the record of a PF that `error` is what came of `trial`.
pub(super) fn note_refusal(
    root: &HostRoot,
    pf: PciAddress,
    trial: &ModeTrial,
    error: &HostError,
) -> Result<(), HostError> {
    let mut record = read(root, &pf.to_string())?;
    record.note_refusal(RefusedOrder { trial: trial.clone(), error: with_causes(error) });
    write(root, &record)
}

/// Forgets a PF. There may be nothing to forget.
pub(super) fn remove(root: &HostRoot, pf: PciAddress) -> Result<(), HostError> {
    let name = pf.to_string();
    durable::remove(&root.go_records().join(&name))?;
    durable::remove(&root.records().join(&name))
}

#[cfg(test)]
#[path = "records/tests.rs"]
mod tests;

//! What was written down about PFs: one file for each, in JSON.
//!
//! The Go daemon keeps its own files, which have less in them: only what was last wanted. A machine may go from it to
//! vfleet and back, so its files are kept up to date as well, and what it wrote since then counts.
//!
//! Two files cannot be written at once. Ours is written first and removed last, since it has all there is to know: a
//! process that is cut off in between leaves a file of the Go daemon that is older than ours, or none, and neither
//! says anything then.
//!
//! A damaged file of ours is as good as none while the Go daemon's is intact: the PF is taken over as from the Go daemon.
//! What was first seen and whether VFs were being made is not known then. They are taken as made: what VFs lack is seen
//! on the machine, while "being made" would have VFs bound anew and given other addresses under those who use them.
//! Where neither file says what the PF is, nobody can tell what is ours of it: it is left alone, and that is an error.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use vfleet_api::PciAddress;
use vfleet_api::node_state::Interface;
use vfleet_plan::{ModeTrial, Record, RefusedOrder};

use super::root::HostRoot;
use super::settle::settled;
use super::{durable, sysfs};
use crate::{HostError, with_causes};

/// The record of a PF, or why it cannot be read.
pub(super) type RecordOf = (PciAddress, Result<Record, HostError>);

/// All records, by PF: one that is damaged does not stand for others. Only files that have an address for a name are
/// records; what else is in the directories (backups, `lost+found`) is not ours to judge.
pub(super) fn read_all(root: &HostRoot) -> Result<Vec<RecordOf>, HostError> {
    let mut pfs = BTreeSet::new();
    for directory in [root.records(), root.go_records()] {
        let names = sysfs::names_if_there(&directory)?;
        let address = |name: &String| name.parse().ok().filter(|pf: &PciAddress| pf.to_string() == *name);
        pfs.extend(names.iter().filter_map(address));
    }
    let read = |pf| Some((pf, settled(|| read(root, pf)).transpose()?));
    Ok(pfs.into_iter().filter_map(read).collect())
}

/// The record of a PF; `None` when there is none, or none any more.
fn read(root: &HostRoot, pf: PciAddress) -> Result<Option<Record>, HostError> {
    let name = pf.to_string();
    let (ours_path, theirs_path) = (root.records().join(&name), root.go_records().join(&name));
    let ours = File::read(&ours_path, |bytes| parse_ours(bytes, &name))?;
    let theirs = File::read(&theirs_path, |bytes| parse_theirs(bytes, &name))?;
    match (ours, theirs) {
        (File::None, File::None) => Ok(None),
        (File::Intact(ours), File::None) => Ok(Some(ours)),
        (File::None | File::Damaged(_), File::Intact((pf, interface))) => {
            Ok(Some(Record::taken_over(pf, interface)))
        }
        (File::Intact(ours), File::Intact((_, interface))) => {
            let is_newer = modified(&theirs_path)? > modified(&ours_path)?;
            // The Go daemon was at work after us: what it wanted is what the PF is like now.
            let went_back = is_newer && interface != ours.interface;
            Ok(Some(if went_back { Record { interface, ..ours } } else { ours }))
        }
        (File::Damaged(source), File::None) => Err(damaged(&ours_path, forget("it"), source)),
        (File::None, File::Damaged(source)) => Err(damaged(&theirs_path, forget("it"), source)),
        (File::Damaged(source), File::Damaged(_)) => {
            let remedy = forget(&format!("it and {}", theirs_path.display()));
            Err(damaged(&ours_path, remedy, source))
        }
        // What the Go daemon did after us is not known.
        (File::Intact(_), File::Damaged(source)) => {
            let remedy = format!("remove it to go by {} alone", ours_path.display());
            Err(damaged(&theirs_path, remedy, source))
        }
    }
}

/// A file of a record. One that cannot be read for another reason than its content is an error.
enum File<T> {
    None,
    Intact(T),
    Damaged(Damage),
}

/// What is wrong with the content of a file.
pub(super) type Damage = Box<dyn Error + Send + Sync>;

impl<T> File<T> {
    fn read(path: &Path, parse: impl Fn(&[u8]) -> Result<T, Damage>) -> Result<Self, HostError> {
        Ok(match durable::read(path)?.map(|bytes| parse(&bytes)) {
            None => Self::None,
            Some(Ok(content)) => Self::Intact(content),
            Some(Err(damage)) => Self::Damaged(damage),
        })
    }
}

/// Parses the file of ours that has this name.
pub(super) fn parse_ours(bytes: &[u8], name: &str) -> Result<Record, Damage> {
    let record: Record = serde_json::from_slice(bytes)?;
    require_name(name, &record.pf.to_string())?;
    Ok(record)
}

/// Parses the file of the Go daemon that has this name. One that is empty or half written is damaged: the Go daemon does
/// not write them in one go.
pub(super) fn parse_theirs(bytes: &[u8], name: &str) -> Result<(PciAddress, Interface), Damage> {
    let interface: Interface = serde_json::from_slice(bytes)?;
    require_name(name, &interface.pci_address.to_string())?;
    Ok((name.parse()?, interface))
}

fn require_name(name: &str, found: &str) -> Result<(), Damage> {
    if found == name { Ok(()) } else { Err(format!("it is about {found:?}").into()) }
}

fn damaged(path: &Path, remedy: String, source: Damage) -> HostError {
    HostError::Record { path: path.to_owned(), remedy, source }
}

fn forget(files: &str) -> String {
    format!("remove {files} to make vfleet forget what it did to this card")
}

fn unwritable(path: &Path, source: serde_json::Error) -> HostError {
    sysfs::failed("write to", path, source.into())
}

fn modified(path: &Path) -> Result<SystemTime, HostError> {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.map_err(|source| sysfs::failed("read", path, source))
}

/// Writes so that a crash at any moment leaves either the old record or the new one.
pub(super) fn write(root: &HostRoot, record: &Record) -> Result<(), HostError> {
    let name = record.pf.to_string();
    let (ours, theirs) = (root.records().join(&name), root.go_records().join(&name));
    let text = serde_json::to_vec_pretty(record).map_err(|source| unwritable(&ours, source))?;
    durable::replace(&ours, &text, durable::PRIVATE)?;
    let text = serde_json::to_vec(&record.interface).map_err(|source| unwritable(&theirs, source))?;
    durable::replace(&theirs, &text, durable::PUBLIC)?;
    let found = read(root, record.pf)?;
    if found.as_ref() == Some(record) {
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
    let gone = || sysfs::failed("read", &root.records().join(pf.to_string()), ErrorKind::NotFound.into());
    let mut record = read(root, pf)?.ok_or_else(gone)?;
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

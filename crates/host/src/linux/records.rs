//! Records of PFs: one JSON file for each PF.
//!
//! The Go daemon has files of its own, with less content: only the last desired state. A cluster may migrate from the
//! Go operator to vfleet and back, so vfleet updates these files too, and respects what the Go daemon wrote later.
//!
//! Two files cannot be written atomically. Our file is written first and removed last, because it has the complete
//! information: a process that ends in between leaves a file of the Go daemon that is older than ours, or missing, and
//! both cases are ignored.
//!
//! If our file is damaged and the file of the Go daemon is intact, the PF is taken over as from the Go daemon. Its
//! original state, and whether its VFs were being created, is unknown then. The VFs count as complete: what they lack
//! is visible on the machine, while incomplete VFs would be bound again and get other addresses although they may be in
//! use. If no file is intact, vfleet does not know what it configured: the PF is left alone, which is an error.

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
use super::stable_read::read_stable;
use super::{atomic_file, sysfs};
use crate::{HostError, format_error_chain};

/// Record of a PF, or the error of reading it.
pub(super) type ReadRecord = (PciAddress, Result<Record, HostError>);

/// Reads all records, sorted by PF. A damaged record does not affect others. Only files named after a PCI address are
/// records; other files in the directories (backups, `lost+found`) are ignored.
pub(super) fn read_all(root: &HostRoot) -> Result<Vec<ReadRecord>, HostError> {
    let mut pfs = BTreeSet::new();
    for directory in [root.records(), root.go_records()] {
        let names = sysfs::list_names_if_exists(&directory)?;
        let address = |name: &String| name.parse().ok().filter(|pf: &PciAddress| pf.to_string() == *name);
        pfs.extend(names.iter().filter_map(address));
    }
    let read = |pf| Some((pf, read_stable(|| read(root, pf)).transpose()?));
    Ok(pfs.into_iter().filter_map(read).collect())
}

/// Reads the record of a PF; `None` if there is none.
fn read(root: &HostRoot, pf: PciAddress) -> Result<Option<Record>, HostError> {
    let name = pf.to_string();
    let (our_path, go_path) = (root.records().join(&name), root.go_records().join(&name));
    let ours = RecordFile::read(&our_path, |bytes| parse_record(bytes, &name))?;
    let go = RecordFile::read(&go_path, |bytes| parse_go_record(bytes, &name))?;
    match (ours, go) {
        (RecordFile::Missing, RecordFile::Missing) => Ok(None),
        (RecordFile::Intact(ours), RecordFile::Missing) => Ok(Some(ours)),
        (RecordFile::Missing | RecordFile::Damaged(_), RecordFile::Intact((pf, interface))) => {
            Ok(Some(Record::taken_over(pf, interface)))
        }
        (RecordFile::Intact(ours), RecordFile::Intact((_, interface))) => {
            let is_newer = modified(&go_path)? > modified(&our_path)?;
            // The Go daemon configured the PF after vfleet did: its file has the current state of the PF.
            let is_overruled = is_newer && interface != ours.interface;
            Ok(Some(if is_overruled { Record { interface, ..ours } } else { ours }))
        }
        (RecordFile::Damaged(source), RecordFile::Missing) => Err(damaged(&our_path, remedy("it"), source)),
        (RecordFile::Missing, RecordFile::Damaged(source)) => Err(damaged(&go_path, remedy("it"), source)),
        (RecordFile::Damaged(source), RecordFile::Damaged(_)) => {
            let remedy = remedy(&format!("it and {}", go_path.display()));
            Err(damaged(&our_path, remedy, source))
        }
        // The Go daemon may have configured the PF after vfleet did.
        (RecordFile::Intact(_), RecordFile::Damaged(source)) => {
            let remedy = format!("remove it to use only {}", our_path.display());
            Err(damaged(&go_path, remedy, source))
        }
    }
}

/// File of a record.
enum RecordFile<T> {
    Missing,
    Intact(T),
    Damaged(Damage),
}

/// Error in the content of a file.
pub(super) type Damage = Box<dyn Error + Send + Sync>;

impl<T> RecordFile<T> {
    fn read(path: &Path, parse: impl Fn(&[u8]) -> Result<T, Damage>) -> Result<Self, HostError> {
        Ok(match atomic_file::read(path)?.map(|bytes| parse(&bytes)) {
            None => Self::Missing,
            Some(Ok(content)) => Self::Intact(content),
            Some(Err(damage)) => Self::Damaged(damage),
        })
    }
}

/// Parses the record in a file with this name.
pub(super) fn parse_record(bytes: &[u8], name: &str) -> Result<Record, Damage> {
    let record: Record = serde_json::from_slice(bytes)?;
    require_name(name, &record.pf.to_string())?;
    Ok(record)
}

/// Parses the file of the Go daemon with this name. The Go daemon does not write atomically: an empty or truncated file
/// is damaged.
pub(super) fn parse_go_record(bytes: &[u8], name: &str) -> Result<(PciAddress, Interface), Damage> {
    let interface: Interface = serde_json::from_slice(bytes)?;
    require_name(name, &interface.pci_address.to_string())?;
    Ok((name.parse()?, interface))
}

fn require_name(name: &str, found: &str) -> Result<(), Damage> {
    if found == name { Ok(()) } else { Err(format!("it belongs to {found:?}").into()) }
}

fn damaged(path: &Path, remedy: String, source: Damage) -> HostError {
    HostError::DamagedRecord { path: path.to_owned(), remedy, source }
}

fn remedy(files: &str) -> String {
    format!("remove {files} to make vfleet treat this card as not configured")
}

fn serialize_failed(path: &Path, source: serde_json::Error) -> HostError {
    sysfs::failed("write to", path, source.into())
}

fn modified(path: &Path) -> Result<SystemTime, HostError> {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.map_err(|source| sysfs::failed("read", path, source))
}

/// Writes a record atomically: a crash leaves either the old or the new record.
pub(super) fn write(root: &HostRoot, record: &Record) -> Result<(), HostError> {
    let name = record.pf.to_string();
    let (our_path, go_path) = (root.records().join(&name), root.go_records().join(&name));
    let text = serde_json::to_vec_pretty(record).map_err(|source| serialize_failed(&our_path, source))?;
    atomic_file::replace(&our_path, &text, atomic_file::PRIVATE)?;
    let text = serde_json::to_vec(&record.interface).map_err(|source| serialize_failed(&go_path, source))?;
    atomic_file::replace(&go_path, &text, atomic_file::PUBLIC)?;
    let found = read(root, record.pf)?;
    if found.as_ref() == Some(record) {
        return Ok(());
    }
    Err(HostError::NotVerified {
        attempt: format!("write {}", our_path.display()),
        expected: "the record that was written".to_owned(),
        found: if found.is_some() { "another record" } else { "no record" }.to_owned(),
    })
}

/// Adds the refusal of `trial` with `error` to the record of a PF.
pub(super) fn note_refusal(
    root: &HostRoot,
    pf: PciAddress,
    trial: &ModeTrial,
    error: &HostError,
) -> Result<(), HostError> {
    let missing = || sysfs::failed("read", &root.records().join(pf.to_string()), ErrorKind::NotFound.into());
    let mut record = read(root, pf)?.ok_or_else(missing)?;
    record.note_refusal(RefusedOrder { trial: trial.clone(), error: format_error_chain(error) });
    write(root, &record)
}

/// Removes the record of a PF, if there is one.
pub(super) fn remove(root: &HostRoot, pf: PciAddress) -> Result<(), HostError> {
    let name = pf.to_string();
    atomic_file::remove(&root.go_records().join(&name))?;
    atomic_file::remove(&root.records().join(&name))
}

#[cfg(test)]
#[path = "records/tests.rs"]
mod tests;

//! Programs of CNI plugins in their directory on the host.
//!
//! Each name is a file of its own and no link: other installers overwrite a file in place (`cp -f`), which would change
//! all links of it.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use vfleet_plan::cni::programs::{
    InstalledProgram, ORIGIN_OVERLAP, PLUGIN_NAMES, PROGRAM, PROGRAM_HEADER, ProgramOrigin, find_origin,
};

use super::root::HostRoot;
use super::{atomic_file, cache, sysfs};
use crate::HostError;

/// Directory of the journals, with a file for each attachment.
const JOURNALS: &str = "/var/lib/cni/vfleet";
/// Version that is installed: that of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Length of the part of a file that is searched at once.
const PART: usize = 1 << 16;
/// Number of characters of a container ID in messages, as in the output of other tools.
const SHORT_ID: usize = 12;

/// Directory of CNI plugins on a host.
#[derive(Debug)]
pub struct CniDirectory {
    root: HostRoot,
    path: String,
}

/// Outcome for one name in the directory.
#[derive(Debug)]
pub struct ProgramOutcome {
    /// Path on the host.
    pub path: String,
    /// Change of the file, or the error that prevented it.
    pub result: Result<ProgramChange, HostError>,
}

/// Change of one file in the directory.
#[derive(Debug, PartialEq, Eq)]
pub enum ProgramChange {
    /// The file was written. It was of this origin before, if it existed.
    Written(Option<ProgramOrigin>),
    /// The file was up to date.
    Unchanged,
    /// The file was removed.
    Removed,
    /// A file of this origin was left as it is.
    Left(ProgramOrigin),
}

/// Outcome of a removal.
#[derive(Debug)]
pub enum ProgramRemoval {
    /// The programs were removed.
    Removed(Vec<ProgramOutcome>),
    /// All programs were left, because the network of these attachments could not be detached without them.
    Kept(Vec<String>),
}

impl CniDirectory {
    /// Returns the directory at `path` of the host.
    pub fn new(root: HostRoot, path: &str) -> Self {
        Self { root, path: path.trim_end_matches('/').to_owned() }
    }

    /// Installs `program` under its own name and those of all plugins, except for `skipped` ones. Files of other projects
    /// are left, and a failure for one name does not affect the others.
    pub fn install(&self, program: &Path, skipped: &[String]) -> Result<Vec<ProgramOutcome>, HostError> {
        match read_origin(program)? {
            Some(ProgramOrigin::Vfleet { version }) if version == VERSION => {}
            found => return Err(not_our_program(program, found)),
        }
        let directory = self.root.at(&self.path);
        atomic_file::create_directory(&directory)
            .map_err(|source| sysfs::failed("create", &directory, source))?;
        let _lock = self.lock(&directory)?;
        let names = without(skipped).chain([PROGRAM]);
        let outcomes = names.map(|name| self.outcome(name, install_file(program, &directory.join(name))));
        Ok(outcomes.collect())
    }

    /// Removes our programs, unless an attachment exists.
    pub fn remove(&self) -> Result<ProgramRemoval, HostError> {
        let directory = self.root.at(&self.path);
        if !directory.is_dir() {
            return Ok(ProgramRemoval::Removed(Vec::new()));
        }
        let _lock = self.lock(&directory)?;
        let mut outcomes = Vec::new();
        let mut ours = Vec::new();
        for name in PLUGIN_NAMES.into_iter().chain([PROGRAM]) {
            let file = directory.join(name);
            atomic_file::remove_draft(&file)?;
            match read_origin(&file) {
                Ok(None) => {}
                Ok(Some(ProgramOrigin::Vfleet { .. })) => ours.push((name, file)),
                Ok(Some(other)) => outcomes.push(self.outcome(name, Ok(ProgramChange::Left(other)))),
                Err(error) => outcomes.push(self.outcome(name, Err(error))),
            }
        }
        let attachments = if ours.is_empty() { Vec::new() } else { self.read_attachments()? };
        if !attachments.is_empty() {
            return Ok(ProgramRemoval::Kept(attachments));
        }
        outcomes.extend(ours.into_iter().map(|(name, file)| {
            self.outcome(name, atomic_file::remove(&file).map(|()| ProgramChange::Removed))
        }));
        Ok(ProgramRemoval::Removed(outcomes))
    }

    /// Reads which files have the names of plugins, except for those of `others`, and where they come from. A file is
    /// searched again only after a change.
    pub(super) fn read(&self, others: &[String]) -> Result<Vec<InstalledProgram>, HostError> {
        let mut programs = Vec::new();
        for name in without(others) {
            let path = format!("{}/{name}", self.path);
            let file = self.root.at(&path);
            let version = cache::file_version(&file).filter(|_| !file.is_symlink());
            let known = version.and_then(|version| {
                let known = cache::lock(&self.root.cache().cni_programs);
                known.get(&file).filter(|(known, _)| *known == version).map(|(_, origin)| origin.clone())
            });
            let origin = if known.is_some() { known } else { read_origin(&file)? };
            let Some(origin) = origin else { continue };
            if let Some(version) = version {
                cache::lock(&self.root.cache().cni_programs).insert(file, (version, origin.clone()));
            }
            programs.push(InstalledProgram { name, path, origin });
        }
        Ok(programs)
    }

    /// Locks the directory: two installations would write to the same drafts. The lock ends with the process.
    fn lock(&self, directory: &Path) -> Result<File, HostError> {
        let failed = |source| sysfs::failed("lock", directory, source);
        let lock = File::open(directory).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => {
                Err(HostError::InstallationRunning { directory: self.path.clone() })
            }
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Reads descriptions of the attachments. Every file counts, since each is there until its attachment is detached.
    fn read_attachments(&self) -> Result<Vec<String>, HostError> {
        let names = sysfs::list_names_if_exists(&self.root.at(JOURNALS))?;
        // Hidden files are drafts.
        Ok(names.iter().filter(|name| !name.starts_with('.')).map(|name| describe_attachment(name)).collect())
    }

    fn outcome(&self, name: &str, result: Result<ProgramChange, HostError>) -> ProgramOutcome {
        ProgramOutcome { path: format!("{}/{name}", self.path), result }
    }
}

/// Returns the names of plugins except `others`.
fn without(others: &[String]) -> impl Iterator<Item = &'static str> {
    PLUGIN_NAMES.into_iter().filter(move |name| !others.iter().any(|other| other == name))
}

fn install_file(program: &Path, file: &Path) -> Result<ProgramChange, HostError> {
    // An earlier run may have been killed.
    atomic_file::remove_draft(file)?;
    let origin = if is_empty(file) { None } else { read_origin(file)? };
    if let Some(foreign) = origin.clone().filter(|origin| !origin.is_replaceable()) {
        return Ok(ProgramChange::Left(foreign));
    }
    if origin.is_some() && atomic_file::is_copy(program, file, atomic_file::PROGRAM)? {
        return Ok(ProgramChange::Unchanged);
    }
    if let Err(error) = atomic_file::copy(program, file, atomic_file::PROGRAM) {
        // A draft takes space that the disk may not have. The first error is the one to report.
        let _ = atomic_file::remove_draft(file);
        return Err(error);
    }
    Ok(ProgramChange::Written(origin))
}

/// Returns whether a file is empty: an installer that copies files in place was interrupted.
fn is_empty(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok_and(|file| file.is_file() && file.len() == 0)
}

/// Reads which project the file at `path` comes from, without executing it; `None` if there is no file.
fn read_origin(path: &Path) -> Result<Option<ProgramOrigin>, HostError> {
    match fs::symlink_metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(sysfs::failed("read", path, source)),
        Ok(_) => {}
    }
    // A link to nothing, a directory, or a pipe, which must not be opened.
    if !path.is_file() {
        return Ok(Some(ProgramOrigin::Foreign));
    }
    let search = || search_origin(File::open(path)?);
    let found = search().map_err(|source| sysfs::failed("read", path, source))?;
    Ok(Some(found.unwrap_or(ProgramOrigin::Foreign)))
}

/// Searches a file part by part, because programs are large. Parts overlap, so that no text is cut.
fn search_origin(mut file: impl Read) -> io::Result<Option<ProgramOrigin>> {
    let mut part = Vec::with_capacity(PART + ORIGIN_OVERLAP);
    let mut is_first = true;
    loop {
        let length = file.by_ref().take(PART as u64).read_to_end(&mut part)?;
        if is_first && !part.starts_with(&PROGRAM_HEADER) {
            return Ok(None);
        }
        is_first = false;
        let found = find_origin(&part);
        if found.is_some() || length == 0 {
            return Ok(found);
        }
        part.drain(..part.len().saturating_sub(ORIGIN_OVERLAP));
    }
}

/// Describes the attachment of a journal by the name of its file: plugin, container, interface and PCI address.
fn describe_attachment(name: &str) -> String {
    let words: Vec<_> = name.splitn(4, ':').collect();
    let [plugin, container, interface, device] = words.as_slice() else { return name.to_owned() };
    let container: String = container.chars().take(SHORT_ID).collect();
    format!("{plugin}: {interface} of container {container} ({device})")
}

fn not_our_program(program: &Path, found: Option<ProgramOrigin>) -> HostError {
    let found = found.map_or_else(|| "missing".to_owned(), |found| found.to_string());
    HostError::NotCniProgram { path: PathBuf::from(program), found, version: VERSION }
}

#[cfg(test)]
mod tests;

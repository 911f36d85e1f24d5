//! Locks of a machine, so that only one program at a time configures it. The kernel releases a lock when its holder
//! ends, also after a crash.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::atomic_file;
use super::root::HostRoot;

/// Lock file of a program that configures the machine once.
const RUN: &str = "/run/vfleet/node.lock";
/// Lock file of an agent, locked as long as it runs. Runs that exclude an agent take a shared lock.
const AGENT: &str = "/run/vfleet/agent.lock";
/// Holder that has locked a file, but not written its name yet.
const UNNAMED: &str = "another vfleet";
/// Maximum length of the line that names the holder.
const HOLDER_LIMIT: u64 = 200;

/// Lock of the machine, held until it is dropped.
#[derive(Debug)]
pub struct MachineLock {
    /// Locked files. The locks are held as long as the files are open.
    files: Vec<File>,
}

/// Error of a lock that could not be acquired.
#[derive(Debug, Error)]
pub enum LockError {
    #[error(
        "another program is configuring this machine: {holder}. Nothing was changed; run this command again when it has ended"
    )]
    Busy { holder: String },
    #[error(
        "an agent manages this machine and would revert the change: {holder}. Nothing was changed; stop the agent first (exclude the node from configDaemonNodeSelector of the operator config)"
    )]
    Agent { holder: String },
    #[error("`vfleet node` or another agent is running on this machine")]
    AgentExcluded,
    #[error("cannot lock {}", path.display())]
    Failed { path: PathBuf, source: io::Error },
}

impl MachineLock {
    /// Locks the machine for one run of `holder`, the name that other programs report.
    pub fn for_run(root: &HostRoot, holder: &str) -> Result<Self, LockError> {
        let file = lock_exclusive(&root.at(RUN), holder)?.map_err(|holder| LockError::Busy { holder })?;
        Ok(Self { files: vec![file] })
    }

    /// Locks the machine for one run of `holder`. Fails if an agent manages the machine.
    pub fn for_run_without_agent(root: &HostRoot, holder: &str) -> Result<Self, LockError> {
        let path = root.at(AGENT);
        let mut agent = open(&path).map_err(|source| LockError::Failed { path: path.clone(), source })?;
        match agent.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Agent { holder: read_holder(&mut agent, UNNAMED) });
            }
            Err(TryLockError::Error(source)) => return Err(LockError::Failed { path, source }),
        }
        let mut lock = Self::for_run(root, holder)?;
        lock.files.push(agent);
        Ok(lock)
    }

    /// Locks the machine for an agent, `holder`.
    pub fn for_agent(root: &HostRoot, holder: &str) -> Result<Self, LockError> {
        let file = lock_exclusive(&root.at(AGENT), holder)?.map_err(|_| LockError::AgentExcluded)?;
        Ok(Self { files: vec![file] })
    }
}

/// Locks the file at `path`. Returns the locked file, or the holder of the lock.
fn lock_exclusive(path: &Path, holder: &str) -> Result<Result<File, String>, LockError> {
    let failed = |source| LockError::Failed { path: path.to_owned(), source };
    let mut file = open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Err(read_holder(&mut file, UNNAMED))),
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    write_holder(&file, holder).map_err(failed)?;
    Ok(Ok(file))
}

/// Writes the line that names the holder of a lock.
pub(super) fn write_holder(file: &File, holder: &str) -> io::Result<()> {
    if file.metadata()?.len() > 0 {
        file.set_len(0)?;
    }
    // In one call, so that nobody reads a part of it.
    file.write_all_at(format!("{holder} (process {})\n", std::process::id()).as_bytes(), 0)
}

/// Opens a lock file. Lock files are never removed, because the lock of a removed file excludes nobody.
pub(super) fn open(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        atomic_file::create_directory(directory)?;
    }
    open_in_directory(path)
}

/// Like [`open`], in a directory that must exist.
pub(super) fn open_in_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(atomic_file::PRIVATE)
        .open(path)
}

/// Reads the line that names the holder of a lock. Returns `unnamed` for a holder that has not written it yet, or never
/// does.
pub(super) fn read_holder(file: &mut File, unnamed: &str) -> String {
    let mut text = String::new();
    let read = file.take(HOLDER_LIMIT).read_to_string(&mut text);
    match text.trim() {
        "" => unnamed.to_owned(),
        holder if read.is_ok() => holder.to_owned(),
        _ => unnamed.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::test_tree::TestTree;

    #[test]
    fn a_second_run_fails_and_names_the_holder_until_the_first_ends() {
        let tree = TestTree::new();
        let first = MachineLock::for_run_without_agent(tree.root(), "vfleet node apply").unwrap();
        for second in [MachineLock::for_run, MachineLock::for_run_without_agent] {
            let error = second(tree.root(), "vfleet boot").unwrap_err().to_string();
            let holder = format!("vfleet node apply (process {})", std::process::id());
            assert!(error.contains(&holder), "{error}");
        }
        drop(first);
        MachineLock::for_run(tree.root(), "vfleet boot").unwrap();
        assert!(tree.read(RUN).starts_with("vfleet boot (process "), "{}", tree.read(RUN));
    }

    #[test]
    fn an_agent_excludes_other_programs_but_not_the_units_of_systemd_mode() {
        let tree = TestTree::new();
        let agent = MachineLock::for_agent(tree.root(), "vfleet agent of node a").unwrap();
        let error = MachineLock::for_run_without_agent(tree.root(), "x").unwrap_err();
        assert!(matches!(&error, LockError::Agent { holder } if holder.contains("node a")), "{error}");
        MachineLock::for_run(tree.root(), "vfleet boot").unwrap();
        drop(agent);
        MachineLock::for_run_without_agent(tree.root(), "x").unwrap();
    }
}

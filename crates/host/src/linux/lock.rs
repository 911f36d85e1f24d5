//! Locks of a machine: one program at a time configures it. The kernel releases a lock when its holder ends, however that
//! ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::durable;
use super::root::HostRoot;

/// Held by who configures the machine once.
const RUN: &str = "/run/vfleet/node.lock";
/// Held by an agent as long as it runs, and shared by runs that must not be beside one.
const AGENT: &str = "/run/vfleet/agent.lock";
/// A holder is a line.
const LONGEST_HOLDER: u64 = 200;

/// A lock of the machine, until it is dropped.
#[derive(Debug)]
pub struct MachineLock {
    files: Vec<File>,
}

/// Error of a lock that was not taken.
#[derive(Debug, Error)]
pub enum LockError {
    #[error(
        "another program is configuring this machine: {holder}. Nothing was done; run this again when that has ended"
    )]
    Busy { holder: String },
    #[error(
        "an agent looks after this machine and would undo what is done here: {holder}. Nothing was done; stop the agent first (exclude the node from configDaemonNodeSelector of the operator config)"
    )]
    Agent { holder: String },
    #[error("`vfleet node` or another agent is at work on this machine")]
    BesideAgent,
    #[error("cannot lock {}", path.display())]
    Failed { path: PathBuf, source: io::Error },
}

impl MachineLock {
    /// Locks the machine for one run of `holder`, which is what others are told.
    pub fn for_run(root: &HostRoot, holder: &str) -> Result<Self, LockError> {
        let file = exclusive(&root.at(RUN), holder)?.map_err(|holder| LockError::Busy { holder })?;
        Ok(Self { files: vec![file] })
    }

    /// Locks the machine for one run of `holder`, while no agent looks after it.
    pub fn for_run_without_agent(root: &HostRoot, holder: &str) -> Result<Self, LockError> {
        let path = root.at(AGENT);
        let mut agent = open(&path).map_err(|source| LockError::Failed { path: path.clone(), source })?;
        match agent.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Agent { holder: read_holder(&mut agent) });
            }
            Err(TryLockError::Error(source)) => return Err(LockError::Failed { path, source }),
        }
        let mut lock = Self::for_run(root, holder)?;
        lock.files.push(agent);
        Ok(lock)
    }

    /// Locks the machine for an agent, `holder`.
    pub fn for_agent(root: &HostRoot, holder: &str) -> Result<Self, LockError> {
        let file = exclusive(&root.at(AGENT), holder)?.map_err(|_| LockError::BesideAgent)?;
        Ok(Self { files: vec![file] })
    }
}

/// Returns the locked file, or its holder.
fn exclusive(path: &Path, holder: &str) -> Result<Result<File, String>, LockError> {
    let failed = |source| LockError::Failed { path: path.to_owned(), source };
    let mut file = open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Err(read_holder(&mut file))),
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    file.set_len(0).map_err(failed)?;
    writeln!(file, "{holder} (process {})", std::process::id()).map_err(failed)?;
    Ok(Ok(file))
}

/// Opens the file of a lock, which is never removed: a lock of a file that is gone locks nobody out.
fn open(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        durable::make_directory(directory)?;
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(durable::PRIVATE).open(path)
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(LONGEST_HOLDER).read_to_string(&mut text);
    match text.trim() {
        // It has the lock, and has not written yet who it is.
        "" => "another vfleet".to_owned(),
        holder if read.is_ok() => holder.to_owned(),
        _ => "another vfleet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::tree::Tree;

    #[test]
    fn a_second_run_is_told_who_holds_the_lock_until_that_ends() {
        let tree = Tree::new();
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
    fn an_agent_keeps_others_away_but_not_the_units_of_systemd_mode() {
        let tree = Tree::new();
        let agent = MachineLock::for_agent(tree.root(), "vfleet agent of node a").unwrap();
        let error = MachineLock::for_run_without_agent(tree.root(), "x").unwrap_err();
        assert!(matches!(&error, LockError::Agent { holder } if holder.contains("node a")), "{error}");
        MachineLock::for_run(tree.root(), "vfleet boot").unwrap();
        drop(agent);
        MachineLock::for_run_without_agent(tree.root(), "x").unwrap();
    }
}

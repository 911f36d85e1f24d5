//! Programs of the host, for tasks that neither the kernel nor systemd offers an API for. No other module starts
//! processes. Arguments are always a list, never a shell command, and every program has a time limit.
//!
//! In a pod the file tree of the host is mounted at `/host`, but its programs need the libraries and the environment of
//! the host. There systemd of the host starts them as transient units.

mod capture;
pub(super) mod direct;

use std::time::Duration;

pub(super) use self::capture::Capture;
use super::root::HostRoot;
use super::systemd;
use crate::HostError;

/// Directories of programs, in the order of the search.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Environment of programs: a fixed language, and a path for their helper programs.
pub(super) const ENVIRONMENT: [(&str, &str); 2] =
    [("LC_ALL", "C"), ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")];
/// Maximum number of characters of output in an error: the end of the output, which has the reason.
const OUTPUT_LIMIT: usize = 600;

/// Program with its arguments and time limit.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) program: &'static str,
    pub(super) arguments: Vec<String>,
    pub(super) limit: Duration,
}

/// Outcome of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommandOutcome {
    Success,
    Failure(String),
    TimedOut,
}

impl Command {
    pub(super) fn new(program: &'static str, limit: Duration) -> Self {
        Self { program, arguments: Vec::new(), limit }
    }

    pub(super) fn arguments<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Runs the program until it ends, and returns its output.
    pub(super) fn run(&self, root: &HostRoot) -> Result<String, HostError> {
        let missing = || HostError::ProgramNotFound { program: self.program.to_owned() };
        let path = find(root, self.program).ok_or_else(missing)?;
        let capture =
            Capture::new().map_err(|source| HostError::SystemResource { resource: "memory file", source })?;
        let outcome = if root.runs_programs() {
            direct::run(&root.at(&path), &self.arguments, &capture, self.limit)
                .map_err(|source| HostError::Io { attempt: "start", path: root.at(&path), source })?
        } else {
            systemd::run_command(root, self, &path, &capture)?
        };
        match outcome {
            CommandOutcome::Success => Ok(capture.output()),
            CommandOutcome::Failure(outcome) => Err(HostError::CommandFailed {
                command: self.to_string(),
                outcome,
                output: tail(&capture.errors()),
            }),
            CommandOutcome::TimedOut => {
                Err(HostError::CommandTimeout { command: self.to_string(), after: self.limit })
            }
        }
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// Returns the path of a program on the host. Symbolic links are not followed, because absolute ones lead out of the
/// mounted tree.
pub(super) fn find(root: &HostRoot, program: &str) -> Option<String> {
    candidate_paths(program).find(|path| root.at(path).symlink_metadata().is_ok())
}

/// Returns all paths on the host that a program may have.
pub(super) fn candidate_paths(program: &str) -> impl Iterator<Item = String> {
    DIRECTORIES.iter().map(move |directory| format!("{directory}/{program}"))
}

/// Returns the end of `text` in one line.
pub(super) fn tail(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = line.char_indices().rev().nth(OUTPUT_LIMIT - 1).map_or(0, |(index, _)| index);
    line[start..].to_owned()
}

#[cfg(test)]
#[path = "command/tests.rs"]
mod tests;

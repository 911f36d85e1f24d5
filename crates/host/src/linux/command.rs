//! Programs of the host, for what neither the kernel nor systemd can be asked directly. The only place that starts
//! processes: always a list of arguments, never a shell, always with an end.
//!
//! Where the host's tree is not our own (`/host` in a pod), its programs need its libraries and its own view of the
//! machine. So systemd starts them there, as a unit that is gone when they end.

mod capture;
mod direct;

use std::time::Duration;

pub(super) use self::capture::Capture;
use super::root::HostRoot;
use super::systemd;
use crate::HostError;

/// Where programs are, the first that is found.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// A program must not depend on the language of whoever started us, and must find its own helpers.
pub(super) const ENVIRONMENT: [(&str, &str); 2] =
    [("LC_ALL", "C"), ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")];
/// How much of what a program said is repeated when it fails: the end, where the reason is.
const WORDS: usize = 600;

/// A program, what it is told, and how long it may take.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) program: &'static str,
    pub(super) arguments: Vec<String>,
    pub(super) limit: Duration,
}

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    Badly(String),
    Overdue,
}

impl Command {
    pub(super) fn new(program: &'static str, limit: Duration) -> Self {
        Self { program, arguments: Vec::new(), limit }
    }

    pub(super) fn arguments<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Runs it to its end, and gives what it printed.
    pub(super) fn run(&self, root: &HostRoot) -> Result<String, HostError> {
        let missing = || HostError::NoProgram { program: self.program.to_owned() };
        let path = find(root, self.program).ok_or_else(missing)?;
        let capture = Capture::new().map_err(|source| HostError::System { what: "memory file", source })?;
        let ended = if root.runs_programs() {
            direct::run(&root.at(&path), &self.arguments, &capture, self.limit)
                .map_err(|source| HostError::Io { attempt: "start", path: root.at(&path), source })?
        } else {
            systemd::run_command(root, self, &path, &capture)?
        };
        match ended {
            Ended::Well => Ok(capture.output()),
            Ended::Badly(outcome) => {
                Err(HostError::Command { command: self.to_string(), outcome, words: tail(&capture.errors()) })
            }
            Ended::Overdue => Err(HostError::CommandOverdue { command: self.to_string(), after: self.limit }),
        }
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// Where a program is, as the host sees it. It may be a link into the host's tree, so nothing is followed.
pub(super) fn find(root: &HostRoot, program: &str) -> Option<String> {
    places(program).find(|path| root.at(path).symlink_metadata().is_ok())
}

/// Returns where a program may be, as the host sees it.
pub(super) fn places(program: &str) -> impl Iterator<Item = String> {
    DIRECTORIES.iter().map(move |directory| format!("{directory}/{program}"))
}

/// The last words, in one line.
fn tail(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = line.char_indices().rev().nth(WORDS - 1).map_or(0, |(index, _)| index);
    line[start..].to_owned()
}

#[cfg(test)]
#[path = "command/tests.rs"]
mod tests;

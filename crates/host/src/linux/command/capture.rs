//! What a program prints. Kept in memory files, and not in pipes: a program may leave a child behind that holds a pipe
//! open for ever, and nobody must read all the while.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// No program that we start has more to say.
const MOST: usize = 4 << 20;

#[derive(Debug)]
pub(in crate::linux) struct Capture {
    pub(in crate::linux) stdout: File,
    pub(in crate::linux) stderr: File,
}

impl Capture {
    pub(in crate::linux) fn new() -> io::Result<Self> {
        let file = || memfd_create("vfleet-output", MFdFlags::MFD_CLOEXEC).map(File::from);
        Ok(Self { stdout: file()?, stderr: file()? })
    }

    /// What it printed.
    pub(super) fn output(&self) -> String {
        text(&self.stdout)
    }

    /// What it complained about; some programs complain in their output.
    pub(super) fn errors(&self) -> String {
        let errors = text(&self.stderr);
        if errors.trim().is_empty() { self.output() } else { errors }
    }
}

/// A memory file cannot fail to be read.
fn text(file: &File) -> String {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(MOST).min(MOST)];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(read);
    String::from_utf8_lossy(&bytes).into_owned()
}

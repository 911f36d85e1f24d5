//! Output of a program, captured in memory files instead of pipes: a child that the program leaves behind could hold a
//! pipe open forever, and no thread has to read while the program runs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// Maximum length of the output that is read.
const OUTPUT_LIMIT: usize = 4 << 20;

/// Memory files for the output of a program.
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

    /// Returns the standard output.
    pub(super) fn output(&self) -> String {
        read_text(&self.stdout)
    }

    /// Returns the standard output, which may be no text.
    pub(in crate::linux) fn output_bytes(&self) -> Vec<u8> {
        read(&self.stdout)
    }

    /// Returns the standard error.
    pub(in crate::linux) fn standard_error(&self) -> String {
        read_text(&self.stderr)
    }

    /// Returns the standard error, or the standard output if that is empty: some programs print errors there.
    pub(super) fn errors(&self) -> String {
        let errors = read_text(&self.stderr);
        if errors.trim().is_empty() { self.output() } else { errors }
    }
}

fn read_text(file: &File) -> String {
    String::from_utf8_lossy(&read(file)).into_owned()
}

/// Reads a memory file, which cannot fail.
fn read(file: &File) -> Vec<u8> {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(OUTPUT_LIMIT).min(OUTPUT_LIMIT)];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(read);
    bytes
}

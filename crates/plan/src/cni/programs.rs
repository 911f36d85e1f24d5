//! Programs of CNI plugins on a node: their names, their directory, and which project a file comes from.

use core::fmt;

use super::journal::Plugin;
use crate::prelude::*;

/// Program that contains all plugins.
pub const PROGRAM: &str = "vfleet-cni";

/// Plugins that the program contains: it is installed under each of these names, and under its own.
pub const PLUGIN_NAMES: [&str; Plugin::ALL.len()] = {
    let mut names = [""; Plugin::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Plugin::ALL[at].name();
        at += 1;
    }
    names
};

/// Text in the program by which its file is recognized, with its version.
pub const MARKER: &str = concat!("<vfleet-cni program, version ", env!("CARGO_PKG_VERSION"), ">");

/// Text of [`MARKER`] before the version.
const MARKER_START: &str = "<vfleet-cni program, version ";
/// Maximum length of a version.
const MAX_VERSION: usize = 64;

/// Last bytes of the mark that precedes the module of a program in Go's build information.
const GO_MARK: &[u8] = b"\xe1\xc1\x07\xe6\xd6\x18\xe6";
/// Modules whose plugins ours replace, with the names that they had earlier.
const GO_MODULES: [&str; 9] = [
    "github.com/k8snetworkplumbingwg/sriov-cni",
    "github.com/k8snetworkplumbingwg/ib-sriov-cni",
    "github.com/k8snetworkplumbingwg/rdma-cni",
    "github.com/k8snetworkplumbingwg/ovs-cni",
    "github.com/k8snetworkplumbingwg/accelerated-bridge-cni",
    "github.com/intel/sriov-cni",
    "github.com/Mellanox/ib-sriov-cni",
    "github.com/Mellanox/rdma-cni",
    "github.com/kubevirt/ovs-cni",
];

/// First bytes of every program that the kernel executes by itself. Scripts are never ours.
pub const PROGRAM_HEADER: [u8; 4] = *b"\x7fELF";

/// Number of bytes by which the parts of a file overlap that are passed to [`find_origin`].
pub const ORIGIN_OVERLAP: usize = 512;

/// Returns the directory of CNI plugins that container runtimes read.
pub const fn default_directory(is_openshift: bool) -> &'static str {
    if is_openshift { "/var/lib/cni/bin" } else { "/opt/cni/bin" }
}

/// Project that a file comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramOrigin {
    /// Ours.
    Vfleet {
        /// Version.
        version: String,
    },
    /// One of the Go projects whose plugins ours replace.
    GoPlugin {
        /// Module.
        module: &'static str,
    },
    /// Any other, or unknown.
    Foreign,
}

impl ProgramOrigin {
    /// Returns whether ours may replace the file.
    pub const fn is_replaceable(&self) -> bool {
        !matches!(self, Self::Foreign)
    }
}

impl fmt::Display for ProgramOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vfleet { version } => write!(out, "{PROGRAM} {version}"),
            Self::GoPlugin { module } => out.write_str(module),
            Self::Foreign => out.write_str("another program"),
        }
    }
}

/// Searches a part of a program for a text that tells the origin. `None` if the part contains none.
pub fn find_origin(part: &[u8]) -> Option<ProgramOrigin> {
    let ours = find_all(part, MARKER_START.as_bytes()).find_map(parse_version);
    let go = || find_all(part, GO_MARK).find_map(parse_go_module);
    ours.map(|version| ProgramOrigin::Vfleet { version })
        .or_else(|| go().map(|module| ProgramOrigin::GoPlugin { module }))
}

/// Returns the bytes that follow each occurrence of `mark`.
fn find_all<'a>(part: &'a [u8], mark: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let (first, mut rest) = (mark.first().copied(), part);
    core::iter::from_fn(move || {
        loop {
            let at = rest.iter().position(|byte| Some(*byte) == first)?;
            let candidate = rest.get(at..)?;
            rest = candidate.get(1..)?;
            if let Some(following) = candidate.strip_prefix(mark) {
                return Some(following);
            }
        }
    })
}

/// Parses the version in [`MARKER`] from the bytes after its start.
fn parse_version(following: &[u8]) -> Option<String> {
    let length = following.iter().take(MAX_VERSION + 1).position(|byte| *byte == b'>')?;
    let version = core::str::from_utf8(following.get(..length)?).ok()?;
    let is_valid = version.starts_with(|first: char| first.is_ascii_digit())
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-".contains(&byte));
    is_valid.then(|| version.to_owned())
}

/// Parses the lines with the package and the module of the program itself. Lines with modules that it uses follow.
fn parse_go_module(following: &[u8]) -> Option<&'static str> {
    following.split(|byte| *byte == b'\n').take(2).find_map(|line| {
        let mut words = line.split(|byte| *byte == b'\t');
        let path = words.next().filter(|kind| [&b"path"[..], b"mod"].contains(kind)).and(words.next())?;
        GO_MODULES.into_iter().find(|module| {
            let following = path.strip_prefix(module.as_bytes());
            following.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        })
    })
}

/// File in the directory of CNI plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledProgram {
    /// Name of the plugin.
    pub name: &'static str,
    /// Path on the node.
    pub path: String,
    /// Project that it comes from.
    pub origin: ProgramOrigin,
}

/// Returns the version of our plugins among `programs`, or several, separated by commas, after an interrupted
/// installation. `None` if there are none.
pub fn installed_version(programs: &[InstalledProgram]) -> Option<String> {
    let versions = programs.iter().filter_map(|program| match &program.origin {
        ProgramOrigin::Vfleet { version } => Some(version.as_str()),
        _ => None,
    });
    let versions: BTreeSet<_> = versions.collect();
    (!versions.is_empty()).then(|| versions.into_iter().collect::<Vec<_>>().join(", "))
}

/// Returns the problem that programs of other projects have the names of our plugins; `None` if there are none.
pub fn foreign_programs(programs: &[InstalledProgram]) -> Option<String> {
    let foreign = programs.iter().filter(|program| program.origin == ProgramOrigin::Foreign);
    let paths: Vec<_> = foreign.map(|program| program.path.as_str()).collect();
    (!paths.is_empty()).then(|| {
        format!(
            "{} was not replaced, because it is neither a program of vfleet nor of the Go SR-IOV projects: move it away and \
             restart the agent's pod",
            paths.join(", ")
        )
    })
}

#[cfg(test)]
mod tests;

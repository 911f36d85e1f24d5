//! Programs under test.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::plane::root;

/// Program under test.
struct ProgramUnderTest {
    name: &'static str,
    /// Environment variable with its path.
    variable: &'static str,
}

const VFLEET: ProgramUnderTest = ProgramUnderTest { name: "vfleet", variable: "VFLEET_PROGRAM" };
const VFLEET_CNI: ProgramUnderTest = ProgramUnderTest { name: "vfleet-cni", variable: "VFLEET_CNI_PROGRAM" };

/// Returns the path of the `vfleet` under test: the release build, unless `VFLEET_PROGRAM` names another program.
///
/// # Panics
/// If the program is missing, or older than one of its sources.
pub fn vfleet() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| VFLEET.find_or_panic())
}

/// Returns the path of the `vfleet-cni` under test: the release build, unless `VFLEET_CNI_PROGRAM` names another program.
///
/// # Panics
/// If the program is missing, or older than one of its sources.
pub fn vfleet_cni() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| VFLEET_CNI.find_or_panic())
}

impl ProgramUnderTest {
    #[expect(clippy::panic, reason = "no test can run without the program")]
    fn find_or_panic(&self) -> PathBuf {
        self.find().unwrap_or_else(|error| panic!("no {} to test: {error:#}", self.name))
    }

    fn find(&self) -> Result<PathBuf> {
        let path = env::var_os(self.variable).map_or_else(|| self.release_path(), PathBuf::from);
        let remedy = format!("build it with `make release`, or name another program in {}", self.variable);
        let path = path.canonicalize().with_context(|| format!("{}: {remedy}", path.display()))?;
        if let Some(source) = self.newer_source(&path)? {
            bail!("{} is older than {source}: {remedy}", path.display());
        }
        Ok(path)
    }

    /// Returns the path to which `tools/release` builds the program.
    fn release_path(&self) -> PathBuf {
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        target.join(format!("{}-unknown-linux-gnu/release/{}", env::consts::ARCH, self.name))
    }

    /// Returns a source file that has changed since the program was built, according to the dependency file of `cargo
    /// build`. `cargo test` writes no such file; a program from there is assumed to be up to date.
    fn newer_source(&self, program: &Path) -> Result<Option<String>> {
        let list = program.with_extension("d");
        let text = match fs::read_to_string(&list) {
            Err(_) if env::var_os(self.variable).is_some() => return Ok(None),
            text => text.with_context(|| list.display().to_string())?,
        };
        let built = modified(program)?;
        let sources = text.split_once(": ").map_or("", |(_, sources)| sources).split_whitespace();
        for source in sources {
            // A missing file counts as changed.
            if modified(Path::new(source)).is_ok_and(|changed| changed <= built) {
                continue;
            }
            return Ok(Some(source.to_owned()));
        }
        Ok(None)
    }
}

fn modified(path: &Path) -> Result<SystemTime> {
    let read = || fs::metadata(path)?.modified();
    read().with_context(|| path.display().to_string())
}

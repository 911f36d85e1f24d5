//! Programs under test.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::plane::root;

/// Environment variable with the path of the `vfleet` under test.
const VARIABLE: &str = "VFLEET_PROGRAM";

/// Returns the path of the `vfleet` under test: the release build, unless `VFLEET_PROGRAM` names another program.
///
/// # Panics
/// If the program is missing, or older than one of its sources.
#[expect(clippy::panic, reason = "no test can run without the program")]
pub fn vfleet() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| find_program().unwrap_or_else(|error| panic!("no vfleet to test: {error:#}")))
}

fn find_program() -> Result<PathBuf> {
    let path = env::var_os(VARIABLE).map_or_else(release_path, PathBuf::from);
    let remedy = format!("build it with `make release`, or name another program in {VARIABLE}");
    let path = path.canonicalize().with_context(|| format!("{}: {remedy}", path.display()))?;
    if let Some(source) = newer_source(&path)? {
        bail!("{} is older than {source}: {remedy}", path.display());
    }
    Ok(path)
}

/// Returns the path to which `tools/release` builds the program.
fn release_path() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join(format!("{}-unknown-linux-gnu/release/vfleet", env::consts::ARCH))
}

/// Returns a source file that has changed since the program was built, according to the dependency file of `cargo
/// build`. `cargo test` writes no such file; a program from there is assumed to be up to date.
fn newer_source(program: &Path) -> Result<Option<String>> {
    let list = program.with_extension("d");
    let text = match fs::read_to_string(&list) {
        Err(_) if env::var_os(VARIABLE).is_some() => return Ok(None),
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

fn modified(path: &Path) -> Result<SystemTime> {
    let read = || fs::metadata(path)?.modified();
    read().with_context(|| path.display().to_string())
}

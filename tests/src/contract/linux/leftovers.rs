//! What cases leave on the machine, besides what they do to cards.

use std::path::{Path, PathBuf};
use std::{fs, io};

use vfleet_plan::files::{
    BOOT_PROGRAM, FIXED, GUIDS, REBOOTS, UDEV_RULES, UNIT_DIRECTORY, UNITS, is_our_rule,
};

use super::routes;
use super::tools::{failed, run};
use super::witness::{GO_RECORDS, RECORDS};
use crate::contract::bench::Shown;

/// Of the one who holds VFs elsewhere.
pub(super) const NAMESPACE: &str = "contract";
/// Name of the software RDMA device.
pub(super) const SOFT_RDMA: &str = "contract-rxe";

/// Removes all of it. Looks first: in the machine a command takes a while.
pub(super) fn clear() -> Shown {
    routes::remove()?;
    if Path::new("/sys/class/infiniband").join(SOFT_RDMA).exists() {
        run("rdma", &["link", "delete", SOFT_RDMA])?;
    }
    if Path::new("/run/netns").join(NAMESPACE).exists() {
        run("ip", &["netns", "delete", NAMESPACE])?;
    }
    for directory in [RECORDS, GO_RECORDS] {
        remove(Path::new(directory))?;
    }
    for file in files() {
        remove(&file)?;
    }
    Ok(())
}

fn files() -> Vec<PathBuf> {
    let fixed = FIXED.into_iter().chain([GUIDS, REBOOTS, BOOT_PROGRAM]).map(PathBuf::from);
    let units = UNITS.iter().map(|unit| Path::new(UNIT_DIRECTORY).join(unit));
    let rules = fs::read_dir(UDEV_RULES).into_iter().flatten().flatten();
    let ours = rules.filter(|entry| is_our_rule(&entry.file_name().to_string_lossy()));
    fixed.chain(units).chain(ours.map(|entry| entry.path())).collect()
}

/// Removes a file, or a directory with all in it, if it is there.
pub(super) fn remove(path: &Path) -> Shown {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(&path.display().to_string(), &error))
        }
        _ => Ok(()),
    }
}

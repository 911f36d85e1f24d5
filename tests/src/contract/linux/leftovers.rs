//! Leftovers of cases on the machine, apart from the state of cards.

use std::path::{Path, PathBuf};
use std::{fs, io};

use vfleet_plan::files::{
    BOOT_PROGRAM, FIXED, GUIDS, REBOOTS, UDEV_RULES, UNIT_DIRECTORY, UNITS, is_our_rule,
};

use super::observer::{GO_RECORDS, RECORDS};
use super::tools::{failed, run};
use super::{bridges, ovs, pods, routes};
use crate::contract::testbed::CaseResult;

/// Network namespace to which VFs are moved.
pub(super) const NAMESPACE: &str = "contract";
/// Software RDMA device.
pub(super) const SOFT_RDMA: &str = "contract-rxe";

/// Removes all leftovers. Checks with sysfs first, because commands are slow in the virtual machine.
pub(super) fn clear() -> CaseResult {
    routes::remove()?;
    bridges::clear()?;
    ovs::clear()?;
    if Path::new("/sys/class/infiniband").join(SOFT_RDMA).exists() {
        run("rdma", &["link", "delete", SOFT_RDMA])?;
    }
    if Path::new("/run/netns").join(NAMESPACE).exists() {
        run("ip", &["netns", "delete", NAMESPACE])?;
    }
    pods::clear()?;
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

/// Removes a file, or a directory with its content, if it exists.
pub(super) fn remove(path: &Path) -> CaseResult {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(&path.display().to_string(), &error))
        }
        _ => Ok(()),
    }
}

//! Files on the host that vfleet writes for other programs: udev rules, module options, systemd units.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use vfleet_plan::HostFile;
use vfleet_plan::files::{
    BOOT_PROGRAM, FIXED, GUIDS, UDEV_RULES, UNIT_DIRECTORY, UNITS, is_nm_rule, is_our_rule, is_ours,
    unit_path,
};

use super::root::HostRoot;
use super::sysfs::ErrorClass;
use super::{atomic_file, cache, sysfs, systemd, udev};
use crate::HostError;

/// Executable of this process, also if the file was replaced since the start.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Reads the managed files that exist: text by path.
pub(super) fn read_managed_files(root: &HostRoot) -> Result<BTreeMap<String, String>, HostError> {
    let rules = sysfs::list_names_if_exists(&root.at(UDEV_RULES))?;
    let rules = rules.iter().filter(|name| is_our_rule(name)).map(|name| format!("{UDEV_RULES}/{name}"));
    let units = UNITS.iter().map(|unit| unit_path(unit));
    let mut texts = BTreeMap::new();
    for path in FIXED.into_iter().map(str::to_owned).chain(units).chain(rules) {
        if let Some(text) = atomic_file::read_text(&root.at(&path))? {
            texts.insert(path, text);
        }
    }
    Ok(texts)
}

/// Reads the GUID file of the administrator.
pub(super) fn read_guid_file(root: &HostRoot) -> Result<Option<String>, HostError> {
    atomic_file::read_text(&root.at(GUIDS))
}

/// Reads which of our units are enabled: a `.wants` directory links to them.
pub(super) fn read_enabled_units(root: &HostRoot) -> Result<BTreeSet<String>, HostError> {
    let directories = wants_directories(root)?;
    let is_enabled =
        |unit: &&str| directories.iter().any(|directory| directory.join(unit).symlink_metadata().is_ok());
    Ok(UNITS.into_iter().filter(is_enabled).map(str::to_owned).collect())
}

/// Reads which of our units have running processes in their control groups.
pub(super) fn read_running_units(root: &HostRoot) -> Result<BTreeSet<String>, HostError> {
    let mut running = BTreeSet::new();
    // Control groups v2 and v1.
    for (unit, systemd) in UNITS.into_iter().flat_map(|unit| [(unit, ""), (unit, "systemd/")]) {
        let path = root.at(&format!("/sys/fs/cgroup/{systemd}system.slice/{unit}/cgroup.procs"));
        match sysfs::read(&path) {
            Ok(processes) if processes.is_empty() => {}
            Ok(_) => drop(running.insert(unit.to_owned())),
            Err(error) if sysfs::classify(&error) == ErrorClass::Vanished => {}
            Err(error) => return Err(sysfs::failed("read", &path, error)),
        }
    }
    Ok(running)
}

fn wants_directories(root: &HostRoot) -> Result<Vec<PathBuf>, HostError> {
    let directory = root.at(UNIT_DIRECTORY);
    let names = sysfs::list_names_if_exists(&directory)?;
    let paths = names.iter().map(|name| directory.join(name));
    Ok(paths.filter(|path| path.extension().is_some_and(|extension| extension == "wants")).collect())
}

/// Writes a file. Makes udev read its rules after a rule for new interfaces was written, because the next step creates
/// them.
pub(super) fn write(root: &HostRoot, file: &HostFile) -> Result<(), HostError> {
    let mode = if file.is_program { atomic_file::PROGRAM } else { atomic_file::PUBLIC };
    atomic_file::replace(&require_managed(root, &file.path)?, file.text.as_bytes(), mode)?;
    if is_nm_rule(&file.path) {
        udev::read_rules_now(root);
    }
    Ok(())
}

/// Removes a file. Makes systemd reload its units after the removal of a unit, because it would keep the unit
/// otherwise.
pub(super) fn remove(root: &HostRoot, path: &str, attempt: &str) -> Result<(), HostError> {
    atomic_file::remove(&require_managed(root, path)?)?;
    let is_unit = UNITS.iter().any(|unit| unit_path(unit) == path);
    if is_unit && systemd::is_available(root) { systemd::reload(root, attempt) } else { Ok(()) }
}

/// Copies the executable of this process to `path`.
pub(super) fn install_program(root: &HostRoot, path: &str) -> Result<(), HostError> {
    atomic_file::copy(Path::new(THIS_PROGRAM), &require_managed(root, path)?, atomic_file::PROGRAM)
}

/// Returns whether the units start this program. The file is compared again only after a change.
pub(super) fn has_boot_program(root: &HostRoot) -> Result<bool, HostError> {
    let path = root.at(BOOT_PROGRAM);
    let Some(version) = cache::file_version(&path) else { return Ok(false) };
    let mut compared = cache::lock(&root.cache().boot_program);
    if let Some((compared_version, is_this)) = *compared
        && compared_version == version
    {
        return Ok(is_this);
    }
    let is_this = atomic_file::is_copy(Path::new(THIS_PROGRAM), &path, atomic_file::PROGRAM)?;
    *compared = Some((version, is_this));
    Ok(is_this)
}

/// Returns the path of a managed file. Fails for any other file.
fn require_managed(root: &HostRoot, path: &str) -> Result<PathBuf, HostError> {
    if is_ours(path) { Ok(root.at(path)) } else { Err(HostError::PathNotAllowed { path: path.into() }) }
}

/// Enables a unit. Creates the links directly if systemd is not running.
pub(super) fn enable(root: &HostRoot, unit: &str, attempt: &str) -> Result<(), HostError> {
    require_managed(root, &unit_path(unit))?;
    if systemd::is_available(root) {
        systemd::enable_unit(root, unit, attempt)?;
    } else {
        create_links(root, unit)?;
    }
    verify_enabled(root, unit, true, attempt)
}

/// Disables a unit.
pub(super) fn disable(root: &HostRoot, unit: &str, attempt: &str) -> Result<(), HostError> {
    let file = require_managed(root, &unit_path(unit))?;
    // systemd does not remove the links of a unit without a file.
    if systemd::is_available(root) && file.exists() {
        systemd::disable_unit(root, unit, attempt)?;
    } else {
        wants_directories(root)?
            .iter()
            .try_for_each(|directory| atomic_file::remove(&directory.join(unit)))?;
    }
    verify_enabled(root, unit, false, attempt)
}

fn verify_enabled(root: &HostRoot, unit: &str, expected: bool, attempt: &str) -> Result<(), HostError> {
    let found = read_enabled_units(root)?.contains(unit);
    if found == expected {
        return Ok(());
    }
    let state = |enabled| if enabled { "enabled" } else { "not enabled" }.to_owned();
    Err(HostError::NotVerified {
        attempt: attempt.to_owned(),
        expected: state(expected),
        found: state(found),
    })
}

fn create_links(root: &HostRoot, unit: &str) -> Result<(), HostError> {
    let path = unit_path(unit);
    let file = root.at(&path);
    let text = fs::read_to_string(&file).map_err(|source| sysfs::failed("read", &file, source))?;
    for target in parse_wanted_by(&text) {
        let directory = root.at(UNIT_DIRECTORY).join(format!("{target}.wants"));
        atomic_file::create_directory(&directory)
            .map_err(|source| sysfs::failed("create", &directory, source))?;
        let link = directory.join(unit);
        atomic_file::remove(&link)?;
        symlink(&path, &link).map_err(|source| sysfs::failed("link", &link, source))?;
    }
    Ok(())
}

/// Returns the units in `WantedBy=` of a unit. Names with a slash, which could lead out of the directory, are ignored.
fn parse_wanted_by(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("WantedBy="))
        .flat_map(str::split_whitespace)
        .filter(|target| !target.contains('/'))
}

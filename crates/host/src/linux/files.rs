//! Files on the host that vfleet keeps for other programs: which are there, writing and removing them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use vfleet_plan::HostFile;
use vfleet_plan::files::{
    BOOT_PROGRAM, FIXED, GUIDS, UDEV_RULES, UNIT_DIRECTORY, UNITS, is_our_rule, is_ours, unit_path,
};

use super::root::HostRoot;
use super::sysfs::Meaning;
use super::{durable, kept, sysfs, systemd};
use crate::HostError;

/// What this process was started from, also when that was replaced since.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Those of the known files that are there: their text, by path.
pub(super) fn texts(root: &HostRoot) -> Result<BTreeMap<String, String>, HostError> {
    let rules = sysfs::names_if_there(&root.at(UDEV_RULES))?;
    let rules = rules.iter().filter(|name| is_our_rule(name)).map(|name| format!("{UDEV_RULES}/{name}"));
    let units = UNITS.iter().map(|unit| unit_path(unit));
    let mut texts = BTreeMap::new();
    for path in FIXED.into_iter().map(str::to_owned).chain(units).chain(rules) {
        if let Some(text) = durable::read_text(&root.at(&path))? {
            texts.insert(path, text);
        }
    }
    Ok(texts)
}

/// The administrator's file of GUIDs.
pub(super) fn guids(root: &HostRoot) -> Result<Option<String>, HostError> {
    durable::read_text(&root.at(GUIDS))
}

/// Those of our units that are started at boot: something that is started wants them.
pub(super) fn enabled_units(root: &HostRoot) -> Result<BTreeSet<String>, HostError> {
    let wanters = wanters(root)?;
    let is_enabled = |unit: &&str| wanters.iter().any(|wanter| wanter.join(unit).symlink_metadata().is_ok());
    Ok(UNITS.into_iter().filter(is_enabled).map(str::to_owned).collect())
}

/// Those of our units whose program runs: their control groups have processes. What is not there does not run.
pub(super) fn working_units(root: &HostRoot) -> Result<BTreeSet<String>, HostError> {
    let mut working = BTreeSet::new();
    // Control groups of version 2, and of version 1.
    for (unit, systemd) in UNITS.into_iter().flat_map(|unit| [(unit, ""), (unit, "systemd/")]) {
        let path = root.at(&format!("/sys/fs/cgroup/{systemd}system.slice/{unit}/cgroup.procs"));
        match sysfs::read(&path) {
            Ok(processes) if processes.is_empty() => {}
            Ok(_) => drop(working.insert(unit.to_owned())),
            Err(error) if sysfs::meaning(&error) == Meaning::Vanished => {}
            Err(error) => return Err(sysfs::failed("read", &path, error)),
        }
    }
    Ok(working)
}

fn wanters(root: &HostRoot) -> Result<Vec<PathBuf>, HostError> {
    let directory = root.at(UNIT_DIRECTORY);
    let names = sysfs::names_if_there(&directory)?;
    let paths = names.iter().map(|name| directory.join(name));
    Ok(paths.filter(|path| path.extension().is_some_and(|extension| extension == "wants")).collect())
}

pub(super) fn write(root: &HostRoot, file: &HostFile) -> Result<(), HostError> {
    let mode = if file.is_program { durable::PROGRAM } else { durable::PUBLIC };
    durable::replace(&our_file(root, &file.path)?, file.text.as_bytes(), mode)
}

/// Removes a file. systemd, where it runs, is told of a unit that goes: it would go on to know it.
pub(super) fn remove(root: &HostRoot, path: &str, attempt: &str) -> Result<(), HostError> {
    durable::remove(&our_file(root, path)?)?;
    let is_unit = UNITS.iter().any(|unit| unit_path(unit) == path);
    if is_unit && systemd::is_there(root) { systemd::reload(root, attempt) } else { Ok(()) }
}

/// Copies this very program.
pub(super) fn install_program(root: &HostRoot, path: &str) -> Result<(), HostError> {
    durable::copy(Path::new(THIS_PROGRAM), &our_file(root, path)?, durable::PROGRAM)
}

/// Whether the program that the units start is this very one. It is compared again only when it changed.
pub(super) fn has_boot_program(root: &HostRoot) -> Result<bool, HostError> {
    let path = root.at(BOOT_PROGRAM);
    let Some(version) = kept::version(&path) else { return Ok(false) };
    let mut compared = kept::lock(&root.kept().boot_program);
    if let Some((known, is_this)) = *compared
        && known == version
    {
        return Ok(is_this);
    }
    let is_this = durable::is_copy(Path::new(THIS_PROGRAM), &path, durable::PROGRAM)?;
    *compared = Some((version, is_this));
    Ok(is_this)
}

/// What else is on the machine is nobody's business here.
fn our_file(root: &HostRoot, path: &str) -> Result<PathBuf, HostError> {
    if is_ours(path) { Ok(root.at(path)) } else { Err(HostError::NotOurFile { path: path.into() }) }
}

/// Has systemd start a unit at boot. Where it does not run, the links are made as it would make them.
pub(super) fn enable(root: &HostRoot, unit: &str, attempt: &str) -> Result<(), HostError> {
    our_file(root, &unit_path(unit))?;
    if systemd::is_there(root) {
        systemd::enable_unit(root, unit, attempt)?;
    } else {
        link(root, unit)?;
    }
    verify_enabled(root, unit, true, attempt)
}

/// Has systemd not start a unit at boot.
pub(super) fn disable(root: &HostRoot, unit: &str, attempt: &str) -> Result<(), HostError> {
    let file = our_file(root, &unit_path(unit))?;
    // systemd does not know of a unit whose file is gone, and does not remove its links.
    if systemd::is_there(root) && file.exists() {
        systemd::disable_unit(root, unit, attempt)?;
    } else {
        wanters(root)?.iter().try_for_each(|wanter| durable::remove(&wanter.join(unit)))?;
    }
    verify_enabled(root, unit, false, attempt)
}

fn verify_enabled(root: &HostRoot, unit: &str, expected: bool, attempt: &str) -> Result<(), HostError> {
    let found = enabled_units(root)?.contains(unit);
    if found == expected {
        return Ok(());
    }
    let state = |enabled| if enabled { "enabled" } else { "not enabled" }.to_owned();
    Err(HostError::Unverified { attempt: attempt.to_owned(), expected: state(expected), found: state(found) })
}

fn link(root: &HostRoot, unit: &str) -> Result<(), HostError> {
    let path = unit_path(unit);
    let file = root.at(&path);
    let text = fs::read_to_string(&file).map_err(|source| sysfs::failed("read", &file, source))?;
    for wanter in wanted_by(&text) {
        let directory = root.at(UNIT_DIRECTORY).join(format!("{wanter}.wants"));
        durable::make_directory(&directory).map_err(|source| sysfs::failed("make", &directory, source))?;
        let link = directory.join(unit);
        durable::remove(&link)?;
        symlink(&path, &link).map_err(|source| sysfs::failed("link", &link, source))?;
    }
    Ok(())
}

/// The units that want the unit with this text. Its text is ours, so what could lead out of the directory is not there.
fn wanted_by(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("WantedBy="))
        .flat_map(str::split_whitespace)
        .filter(|wanter| !wanter.contains('/'))
}

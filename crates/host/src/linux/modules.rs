//! Kernel modules: their states, and loading one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use vfleet_plan::ModuleState;
use vfleet_plan::modules::KNOWN_MODULES;

use super::command::Command;
use super::root::HostRoot;
use super::{atomic_file, cache, sysfs};
use crate::HostError;

/// Limit for loading a module, which may wait for its hardware.
const LOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Known modules in the lists of the running kernel, and the times of these lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModuleLists {
    directory: PathBuf,
    modified: [Option<SystemTime>; 2],
    /// Modules that are compiled into the kernel.
    built_in: BTreeSet<&'static str>,
    /// Modules that are files.
    loadable: BTreeSet<&'static str>,
}

/// Reads the states of the known modules that the kernel has.
pub(super) fn read_states(root: &HostRoot) -> Result<BTreeMap<String, ModuleState>, HostError> {
    let lists = read_lists(root)?;
    let state = |module: &'static str| {
        if lists.built_in.contains(module) || is_loaded(root, module) {
            Some(ModuleState::Loaded)
        } else {
            lists.loadable.contains(module).then_some(ModuleState::Loadable)
        }
    };
    Ok(KNOWN_MODULES.into_iter().filter_map(|module| Some((module.to_owned(), state(module)?))).collect())
}

/// Loads a module and sets its options, also if it was loaded before.
pub(super) fn load(
    root: &HostRoot,
    module: &str,
    options: &[String],
    attempt: &str,
) -> Result<(), HostError> {
    if !is_part_of_kernel(root, module)? {
        if !read_lists(root)?.loadable.contains(module) {
            return Err(HostError::ModuleNotFound { module: module.to_owned() });
        }
        let arguments = [module.to_owned()].into_iter().chain(options.iter().cloned());
        Command::new("modprobe", LOAD_TIMEOUT).arguments(arguments).run(root)?;
    }
    if !is_part_of_kernel(root, module)? {
        return Err(HostError::NotVerified {
            attempt: attempt.to_owned(),
            expected: format!("{} to exist", root.at("/sys/module").join(module).display()),
            found: "no such directory".to_owned(),
        });
    }
    options.iter().try_for_each(|option| set_option(root, module, option, attempt))
}

/// Sets an option of a loaded module. `modprobe` ignores the options of a module that is already loaded.
fn set_option(root: &HostRoot, module: &str, option: &str, attempt: &str) -> Result<(), HostError> {
    let Some((name, desired)) = option.split_once('=') else { return Ok(()) };
    let path = root.at("/sys/module").join(module).join("parameters").join(name);
    let is_set =
        || sysfs::read_as(&path, "an option of a module", |found| Some(is_same_value(found, desired)));
    // Not every option is readable.
    if !path.exists() || is_set()? {
        return Ok(());
    }
    sysfs::write(&path, desired)?;
    if is_set()? {
        return Ok(());
    }
    let found = sysfs::read(&path).map_err(|source| sysfs::failed("read", &path, source))?;
    Err(HostError::NotVerified { attempt: attempt.to_owned(), expected: option.to_owned(), found })
}

/// Compares two values of an option. The kernel shows a boolean as Y or N, no matter how it was set.
fn is_same_value(found: &str, desired: &str) -> bool {
    let switch = |text: &str| match text {
        "Y" | "y" | "1" | "on" => Some(true),
        "N" | "n" | "0" | "off" => Some(false),
        _ => None,
    };
    found == desired || (switch(found).is_some() && switch(found) == switch(desired))
}

fn is_part_of_kernel(root: &HostRoot, module: &str) -> Result<bool, HostError> {
    Ok(is_loaded(root, module) || read_lists(root)?.built_in.contains(module))
}

/// Returns whether a module is ready. A module that is being loaded or removed has a directory too, but is not usable.
fn is_loaded(root: &HostRoot, module: &str) -> bool {
    let directory = root.at("/sys/module").join(module);
    match sysfs::read(&directory.join("initstate")) {
        Ok(state) => state == "live",
        Err(_) => directory.exists(),
    }
}

/// Returns the paths of the module lists of the running kernel: built-in modules, and modules that are files.
pub(super) fn list_paths(root: &HostRoot) -> Result<[PathBuf; 2], HostError> {
    let directory = directory(root)?;
    Ok(["modules.builtin", "modules.dep"].map(|name| directory.join(name)))
}

fn directory(root: &HostRoot) -> Result<PathBuf, HostError> {
    let release = root.proc("sys/kernel/osrelease");
    let release = sysfs::read(&release).map_err(|source| sysfs::failed("read", &release, source))?;
    Ok(root.at("/lib/modules").join(release))
}

/// Reads the module lists of the running kernel. They are long and are read again only after a change.
fn read_lists(root: &HostRoot) -> Result<ModuleLists, HostError> {
    let (directory, paths) = (directory(root)?, list_paths(root)?);
    let modified = [modified(&paths[0]), modified(&paths[1])];
    let mut cached = cache::lock(&root.cache().modules);
    if let Some(lists) =
        cached.as_ref().filter(|lists| lists.directory == directory && lists.modified == modified)
    {
        return Ok(lists.clone());
    }
    let [built_in, loadable] = [read_list(&paths[0])?, read_list(&paths[1])?];
    let lists = ModuleLists { directory, modified, built_in, loadable };
    *cached = Some(lists.clone());
    Ok(lists)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn read_list(path: &Path) -> Result<BTreeSet<&'static str>, HostError> {
    Ok(atomic_file::read_text(path)?.map(|text| parse_list(&text)).unwrap_or_default())
}

/// Returns the known modules in a list: each line has a path, and after a colon the dependencies.
pub(super) fn parse_list(list: &str) -> BTreeSet<&'static str> {
    let names: BTreeSet<String> = list.lines().filter_map(parse_module_name).collect();
    KNOWN_MODULES.into_iter().filter(|module| names.contains(*module)).collect()
}

/// Returns the module of a line: `vfio_pci` for `kernel/drivers/vfio/pci/vfio-pci.ko.zst: ...`.
fn parse_module_name(line: &str) -> Option<String> {
    let path = line.split(':').next()?;
    let (name, _) = path.rsplit('/').next()?.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_parsed_from_any_kind_of_file() {
        for (line, expected) in [
            ("kernel/drivers/vfio/pci/vfio-pci.ko: kernel/drivers/vfio/vfio.ko", Some("vfio_pci")),
            ("kernel/drivers/vfio/vfio.ko.xz:", Some("vfio")),
            ("updates/dkms/igb_uio.ko.zst: kernel/drivers/uio/uio.ko.zst", Some("igb_uio")),
            ("tun.ko.gz", Some("tun")),
            ("kernel/vfio-pci", None),
            ("", None),
        ] {
            assert_eq!(parse_module_name(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn dependencies_are_not_listed_modules() {
        let modules = parse_list("kernel/a.ko: kernel/vfio.ko\nkernel/vhost-net.ko.xz: kernel/tun.ko.xz\n");
        assert_eq!(modules, BTreeSet::from(["vhost_net"]));
    }

    #[test]
    fn boolean_options_are_compared_by_meaning() {
        assert!(is_same_value("Y", "1") && is_same_value("N", "0") && is_same_value("4", "4"));
        assert!(!is_same_value("N", "1") && !is_same_value("4", "5") && !is_same_value("4", "Y"));
    }

    proptest! {
        #[test]
        fn accepts_any_list(text in "(?s).{0,200}") {
            let _ = parse_list(&text);
        }
    }
}

//! Modules of the kernel: which are there, and loading one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use vfleet_plan::ModuleState;
use vfleet_plan::modules::KNOWN;

use super::command::Command;
use super::root::HostRoot;
use super::{durable, kept, sysfs};
use crate::HostError;

/// Loading a module may have to wait for its hardware.
const LOADING: Duration = Duration::from_secs(20);

/// The known modules in the lists of a kernel, and how old these lists are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OnDisk {
    directory: PathBuf,
    written: [Option<SystemTime>; 2],
    /// Those that are a part of the kernel.
    built_in: BTreeSet<&'static str>,
    /// Those that are files.
    loadable: BTreeSet<&'static str>,
}

/// The known modules that are there.
pub(super) fn states(root: &HostRoot) -> Result<BTreeMap<String, ModuleState>, HostError> {
    let on_disk = on_disk(root)?;
    let state = |module: &'static str| {
        if on_disk.built_in.contains(module) || is_loaded(root, module) {
            Some(ModuleState::Loaded)
        } else {
            on_disk.loadable.contains(module).then_some(ModuleState::Loadable)
        }
    };
    Ok(KNOWN.into_iter().filter_map(|module| Some((module.to_owned(), state(module)?))).collect())
}

/// Loads a module and sets its options, also when it was there before.
pub(super) fn load(
    root: &HostRoot,
    module: &str,
    options: &[String],
    attempt: &str,
) -> Result<(), HostError> {
    if !is_part_of_kernel(root, module)? {
        if !on_disk(root)?.loadable.contains(module) {
            return Err(HostError::NoSuchModule { module: module.to_owned() });
        }
        let arguments = [module.to_owned()].into_iter().chain(options.iter().cloned());
        Command::new("modprobe", LOADING).arguments(arguments).run(root)?;
    }
    if !is_part_of_kernel(root, module)? {
        return Err(HostError::Unverified {
            attempt: attempt.to_owned(),
            expected: root.at("/sys/module").join(module).display().to_string(),
            found: "nothing".to_owned(),
        });
    }
    options.iter().try_for_each(|option| set_option(root, module, option, attempt))
}

/// `modprobe` passes over the options of a module that is there already.
fn set_option(root: &HostRoot, module: &str, option: &str, attempt: &str) -> Result<(), HostError> {
    let Some((name, wanted)) = option.split_once('=') else { return Ok(()) };
    let path = root.at("/sys/module").join(module).join("parameters").join(name);
    let is_set = || sysfs::read_as(&path, "an option of a module", |found| Some(is_same(found, wanted)));
    // Not every option can be read, nor changed later.
    if !path.exists() || is_set()? {
        return Ok(());
    }
    sysfs::write(&path, wanted)?;
    if is_set()? {
        return Ok(());
    }
    let found = sysfs::read(&path).map_err(|source| sysfs::failed("read", &path, source))?;
    Err(HostError::Unverified { attempt: attempt.to_owned(), expected: option.to_owned(), found })
}

/// The kernel shows a switch as Y or N, however it was set.
fn is_same(found: &str, wanted: &str) -> bool {
    let switch = |text: &str| match text {
        "Y" | "y" | "1" | "on" => Some(true),
        "N" | "n" | "0" | "off" => Some(false),
        _ => None,
    };
    found == wanted || (switch(found).is_some() && switch(found) == switch(wanted))
}

fn is_part_of_kernel(root: &HostRoot, module: &str) -> Result<bool, HostError> {
    Ok(is_loaded(root, module) || on_disk(root)?.built_in.contains(module))
}

/// A module that is being loaded or removed is there too, but does not work yet (or any more).
fn is_loaded(root: &HostRoot, module: &str) -> bool {
    let directory = root.at("/sys/module").join(module);
    match sysfs::read(&directory.join("initstate")) {
        Ok(state) => state == "live",
        Err(_) => directory.exists(),
    }
}

/// Returns the paths of the lists of the running kernel: modules that are a part of it, and those that are files.
pub(super) fn lists(root: &HostRoot) -> Result<[PathBuf; 2], HostError> {
    let directory = directory(root)?;
    Ok(["modules.builtin", "modules.dep"].map(|name| directory.join(name)))
}

fn directory(root: &HostRoot) -> Result<PathBuf, HostError> {
    let release = root.proc("sys/kernel/osrelease");
    let release = sysfs::read(&release).map_err(|source| sysfs::failed("read", &release, source))?;
    Ok(root.at("/lib/modules").join(release))
}

/// The lists of the running kernel. They are long, so they are read again only when they change.
fn on_disk(root: &HostRoot) -> Result<OnDisk, HostError> {
    let (directory, lists) = (directory(root)?, lists(root)?);
    let written = [modified(&lists[0]), modified(&lists[1])];
    let mut kept = kept::lock(&root.kept().modules);
    if let Some(known) =
        kept.as_ref().filter(|known| known.directory == directory && known.written == written)
    {
        return Ok(known.clone());
    }
    let [built_in, loadable] = [listed(&lists[0])?, listed(&lists[1])?];
    let read = OnDisk { directory, written, built_in, loadable };
    *kept = Some(read.clone());
    Ok(read)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn listed(path: &Path) -> Result<BTreeSet<&'static str>, HostError> {
    Ok(durable::read_text(path)?.map(|text| known_in(&text)).unwrap_or_default())
}

/// The known modules in a list: a path on each line, with what it needs behind a colon.
pub(super) fn known_in(list: &str) -> BTreeSet<&'static str> {
    let names: BTreeSet<String> = list.lines().filter_map(name).collect();
    KNOWN.into_iter().filter(|module| names.contains(*module)).collect()
}

/// `kernel/drivers/vfio/pci/vfio-pci.ko.zst: ...` is `vfio_pci`.
fn name(line: &str) -> Option<String> {
    let path = line.split(':').next()?;
    let (name, _) = path.rsplit('/').next()?.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_read_from_any_kind_of_file() {
        for (line, expected) in [
            ("kernel/drivers/vfio/pci/vfio-pci.ko: kernel/drivers/vfio/vfio.ko", Some("vfio_pci")),
            ("kernel/drivers/vfio/vfio.ko.xz:", Some("vfio")),
            ("updates/dkms/igb_uio.ko.zst: kernel/drivers/uio/uio.ko.zst", Some("igb_uio")),
            ("tun.ko.gz", Some("tun")),
            ("kernel/vfio-pci", None),
            ("", None),
        ] {
            assert_eq!(name(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn what_another_needs_is_not_there_itself() {
        let known = known_in("kernel/a.ko: kernel/vfio.ko\nkernel/vhost-net.ko.xz: kernel/tun.ko.xz\n");
        assert_eq!(known, BTreeSet::from(["vhost_net"]));
    }

    #[test]
    fn switches_are_compared_by_meaning() {
        assert!(is_same("Y", "1") && is_same("N", "0") && is_same("4", "4"));
        assert!(!is_same("N", "1") && !is_same("4", "5") && !is_same("4", "Y"));
    }

    proptest! {
        #[test]
        fn takes_any_list(text in "(?s).{0,200}") {
            let _ = known_in(&text);
        }
    }
}

//! Files of the Go CNI plugins, which may run on the same node or have run on it.
//!
//! The Go plugins do not write atomically: a file may be empty or cut off.

use std::io::ErrorKind;
use std::path::PathBuf;

use vfleet_api::PciAddress;
use vfleet_plan::cni::journal::Plugin;

use super::journals::is_file_name;
use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{atomic_file, sysfs};

/// Directory of the allocations in that of the plugin `sriov`.
const ALLOCATIONS: &str = "pci";
/// Directory of the lock files of devices in that of the allocations.
const LOCKS: &str = "vf_lock";
/// Maximum length of the name of a file.
const MAX_FILE_NAME: usize = 255;

/// Returns the lock file of a device.
pub(super) fn lock_path(root: &HostRoot, device: PciAddress) -> PathBuf {
    allocations(root).join(LOCKS).join(format!("{device}.lock"))
}

fn allocations(root: &HostRoot) -> PathBuf {
    root.go_cni(Plugin::Sriov.name()).join(ALLOCATIONS)
}

/// Creates the directories of allocations and locks, which only root may read.
pub(super) fn create_directories(root: &HostRoot) -> Result<(), HostError> {
    let allocations = allocations(root);
    for directory in [&root.go_cni(Plugin::Sriov.name()), &allocations, &allocations.join(LOCKS)] {
        atomic_file::create_private_directory(directory)?;
    }
    Ok(())
}

/// Reads the allocation of a device: the path of a namespace, which is empty if the file was cut off.
pub(super) fn read_allocation(root: &HostRoot, device: PciAddress) -> Result<Option<String>, HostError> {
    let path = allocations(root).join(device.to_string());
    Ok(atomic_file::read_text(&path)?.map(|text| text.trim().to_owned()))
}

/// Writes the allocation of a device, whose lock is held: a file that was cut off counts as that of a namespace that is gone.
/// After a crash of the machine it does not matter.
pub(super) fn write_allocation(
    root: &HostRoot,
    device: PciAddress,
    namespace: &str,
) -> Result<(), HostError> {
    let path = allocations(root).join(device.to_string());
    let write = || atomic_file::write_in_place(&path, namespace.as_bytes());
    match write() {
        Err(HostError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            create_directories(root)?;
            write()
        }
        written => written,
    }
}

/// Removes the allocation of a device, unless it names another namespace.
pub(super) fn remove_allocation(
    root: &HostRoot,
    device: PciAddress,
    namespace: &str,
) -> Result<(), HostError> {
    match read_allocation(root, device)? {
        Some(found) if found == namespace || found.is_empty() => {
            atomic_file::remove_unsynced(&allocations(root).join(device.to_string())).map(drop)
        }
        _ => Ok(()),
    }
}

/// Returns the path of a cache; `None` if no file can have the name, because the ID of the container is too long.
fn cache_path(root: &HostRoot, plugin: Plugin, name: &str) -> Result<Option<PathBuf>, HostError> {
    let path = root.go_cni(plugin.name()).join(name);
    if !is_file_name(name) {
        return Err(HostError::PathNotAllowed { path });
    }
    Ok(Some(path).filter(|_| name.len() <= MAX_FILE_NAME))
}

/// Lists the names of the caches of a plugin, sorted.
pub(super) fn list_caches(root: &HostRoot, plugin: Plugin) -> Result<Vec<String>, HostError> {
    let directory = root.go_cni(plugin.name());
    let mut names = sysfs::list_names_if_exists(&directory)?;
    names.retain(|name| is_file_name(name) && directory.join(name).is_file());
    Ok(names)
}

/// Reads a cache; `None` if there is none.
pub(super) fn read_cache(root: &HostRoot, plugin: Plugin, name: &str) -> Result<Option<Vec<u8>>, HostError> {
    cache_path(root, plugin, name)?.map_or(Ok(None), |path| atomic_file::read(&path))
}

/// Removes a cache, if there is one.
pub(super) fn remove_cache(root: &HostRoot, plugin: Plugin, name: &str) -> Result<(), HostError> {
    cache_path(root, plugin, name)?.map_or(Ok(()), |path| atomic_file::remove(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::test_tree::TestTree;

    const CACHE: &str = "/var/lib/cni/sriov/0123-net1";

    fn device() -> PciAddress {
        "0000:01:10.0".parse().unwrap()
    }

    #[test]
    fn an_allocation_is_removed_only_with_its_own_namespace() {
        let tree = TestTree::new();
        assert_eq!(read_allocation(tree.root(), device()).unwrap(), None);
        remove_allocation(tree.root(), device(), "/run/netns/a").unwrap();
        write_allocation(tree.root(), device(), "/run/netns/a").unwrap();
        assert_eq!(tree.read("/var/lib/cni/sriov/pci/0000:01:10.0"), "/run/netns/a");
        remove_allocation(tree.root(), device(), "/run/netns/b").unwrap();
        assert_eq!(read_allocation(tree.root(), device()).unwrap().as_deref(), Some("/run/netns/a"));
        remove_allocation(tree.root(), device(), "/run/netns/a").unwrap();
        assert_eq!(read_allocation(tree.root(), device()).unwrap(), None);
        tree.write("/var/lib/cni/sriov/pci/0000:01:10.0", "");
        assert_eq!(read_allocation(tree.root(), device()).unwrap().as_deref(), Some(""));
        remove_allocation(tree.root(), device(), "/run/netns/a").unwrap();
        assert_eq!(read_allocation(tree.root(), device()).unwrap(), None, "a file that was cut off");
    }

    #[test]
    fn caches_are_listed_without_directories_and_drafts() {
        let tree = TestTree::new();
        assert!(list_caches(tree.root(), Plugin::Sriov).unwrap().is_empty());
        write_allocation(tree.root(), device(), "/run/netns/a").unwrap();
        tree.write(CACHE, "{}");
        tree.write("/var/lib/cni/sriov/.draft", "");
        assert_eq!(list_caches(tree.root(), Plugin::Sriov).unwrap(), ["0123-net1"]);
        assert!(list_caches(tree.root(), Plugin::Rdma).unwrap().is_empty());
        assert_eq!(read_cache(tree.root(), Plugin::Sriov, "0123-net1").unwrap().unwrap(), b"{}");
        // The ID of a container has no limit: a DEL for one that no file can have must not fail.
        let long = format!("{}-net1", "c".repeat(300));
        assert_eq!(read_cache(tree.root(), Plugin::Sriov, &long).unwrap(), None);
        remove_cache(tree.root(), Plugin::Sriov, &long).unwrap();
        for name in ["../sriov/0123-net1", "", ".", "..", "pci/x"] {
            let error = read_cache(tree.root(), Plugin::Sriov, name).unwrap_err();
            assert_eq!(error.reason(), "PathNotAllowed", "{name}");
        }
        for _ in 0..2 {
            remove_cache(tree.root(), Plugin::Sriov, "0123-net1").unwrap();
            assert_eq!(read_cache(tree.root(), Plugin::Sriov, "0123-net1").unwrap(), None);
        }
    }
}

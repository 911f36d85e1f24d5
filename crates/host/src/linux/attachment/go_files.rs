//! Files of the Go CNI plugins, which may run on the same node or have run on it.
//!
//! The Go plugins do not write atomically: a file may be empty or cut off.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::getuid;
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
/// Directory of the caches of the plugins for Open vSwitch in that of all plugins.
const OVS_CACHES: &str = "ovs-cni/cache";
/// Directory of the caches of earlier versions of the plugins for Open vSwitch.
const EARLIER_OVS_CACHES: &str = "tmp/ovscache";
/// Ends of the names of caches of the plugins for mirrors.
const PRODUCER: &str = "_prod";
const CONSUMER: &str = "_cons";
/// Lock of the VLANs of uplinks in the directory of the plugin `accelerated-bridge`.
pub(super) const UPLINK_LOCK: &str = "vlan-uplink.lock";
/// Permissions of others than the owner to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

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

/// Writes the allocation of a device.
pub(super) fn write_allocation(
    root: &HostRoot,
    device: PciAddress,
    namespace: &str,
) -> Result<(), HostError> {
    create_directories(root)?;
    let path = allocations(root).join(device.to_string());
    atomic_file::replace(&path, namespace.as_bytes(), atomic_file::PRIVATE)
}

/// Removes the allocation of a device, unless it names another namespace.
pub(super) fn remove_allocation(
    root: &HostRoot,
    device: PciAddress,
    namespace: &str,
) -> Result<(), HostError> {
    match read_allocation(root, device)? {
        Some(found) if found == namespace || found.is_empty() => {
            atomic_file::remove(&allocations(root).join(device.to_string()))
        }
        _ => Ok(()),
    }
}

/// Returns the directories of the caches of a plugin, the present one first.
fn cache_directories(root: &HostRoot, plugin: Plugin) -> Vec<PathBuf> {
    if !plugin.needs_ovs() {
        return vec![root.go_cni(plugin.name())];
    }
    let earlier = Some(root.at(EARLIER_OVS_CACHES)).filter(|directory| is_private(directory));
    [root.go_cni(OVS_CACHES)].into_iter().chain(earlier).collect()
}

/// Returns whether a directory belongs to root and nobody else can write to it. It is one that everybody can create.
fn is_private(directory: &Path) -> bool {
    let is_private = |found: Metadata| {
        found.is_dir() && found.uid() == getuid().as_raw() && found.mode() & WRITABLE_BY_OTHERS == 0
    };
    directory.symlink_metadata().is_ok_and(is_private)
}

/// Returns whether a file is the cache of a plugin, by its name.
fn is_cache(plugin: Plugin, name: &str) -> bool {
    let (is_producer, is_consumer) = (name.ends_with(PRODUCER), name.ends_with(CONSUMER));
    match plugin {
        Plugin::Sriov | Plugin::Infiniband | Plugin::Rdma => true,
        Plugin::Ovs => !is_producer && !is_consumer,
        Plugin::OvsMirrorProducer => is_producer,
        Plugin::OvsMirrorConsumer => is_consumer,
        Plugin::AcceleratedBridge => name != UPLINK_LOCK,
    }
}

/// Returns the paths at which a cache may be; none if no file can have the name, because the ID of the container is too long.
fn cache_paths(root: &HostRoot, plugin: Plugin, name: &str) -> Result<Vec<PathBuf>, HostError> {
    let paths = cache_directories(root, plugin).into_iter().map(|directory| directory.join(name));
    if !is_file_name(name) {
        return Err(HostError::PathNotAllowed { path: root.go_cni(plugin.name()).join(name) });
    }
    Ok(paths.filter(|_| name.len() <= MAX_FILE_NAME).collect())
}

/// Lists the names of the caches of a plugin, sorted.
pub(super) fn list_caches(root: &HostRoot, plugin: Plugin) -> Result<Vec<String>, HostError> {
    let mut names = Vec::new();
    for directory in cache_directories(root, plugin) {
        let is_file = |name: &String| is_file_name(name) && directory.join(name).is_file();
        names.extend(sysfs::list_names_if_exists(&directory)?.into_iter().filter(is_file));
    }
    names.retain(|name| is_cache(plugin, name));
    names.sort();
    names.dedup();
    Ok(names)
}

/// Reads a cache; `None` if there is none.
pub(super) fn read_cache(root: &HostRoot, plugin: Plugin, name: &str) -> Result<Option<Vec<u8>>, HostError> {
    for path in cache_paths(root, plugin, name)? {
        if let Some(content) = atomic_file::read(&path)? {
            return Ok(Some(content));
        }
    }
    Ok(None)
}

/// Removes a cache, if there is one.
pub(super) fn remove_cache(root: &HostRoot, plugin: Plugin, name: &str) -> Result<(), HostError> {
    cache_paths(root, plugin, name)?.iter().try_for_each(|path| atomic_file::remove(path))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

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

    #[test]
    fn caches_of_plugins_for_open_vswitch_share_two_directories() {
        let tree = TestTree::new();
        tree.write("/var/lib/cni/ovs-cni/cache/0123-net1", "new");
        tree.write("/var/lib/cni/ovs-cni/cache/0123-net1_prod", "producer");
        tree.write("/var/lib/cni/ovs-cni/cache/0123-net1_cons", "consumer");
        tree.write("/tmp/ovscache/0123-net1", "old");
        tree.write("/tmp/ovscache/4567-net1", "other");
        fs::set_permissions(tree.path("/tmp/ovscache"), Permissions::from_mode(0o700)).unwrap();
        let list = |plugin| list_caches(tree.root(), plugin).unwrap();
        let read = |name| read_cache(tree.root(), Plugin::Ovs, name).unwrap();
        assert_eq!(list(Plugin::Ovs), ["0123-net1", "4567-net1"]);
        assert_eq!(list(Plugin::OvsMirrorProducer), ["0123-net1_prod"]);
        assert_eq!(list(Plugin::OvsMirrorConsumer), ["0123-net1_cons"]);
        assert_eq!((read("0123-net1"), read("4567-net1")), (Some(b"new".to_vec()), Some(b"other".to_vec())));
        // Everybody can create a directory there.
        fs::set_permissions(tree.path("/tmp/ovscache"), Permissions::from_mode(0o777)).unwrap();
        assert_eq!((list(Plugin::Ovs), read("4567-net1")), (vec!["0123-net1".to_owned()], None));
        fs::set_permissions(tree.path("/tmp/ovscache"), Permissions::from_mode(0o755)).unwrap();
        remove_cache(tree.root(), Plugin::Ovs, "0123-net1").unwrap();
        assert_eq!(list(Plugin::Ovs), ["4567-net1"]);
        assert_eq!(list(Plugin::OvsMirrorProducer), ["0123-net1_prod"]);
    }

    #[test]
    fn the_lock_of_uplinks_is_no_cache() {
        let tree = TestTree::new();
        tree.write("/var/lib/cni/accelerated-bridge/net-a-0123-net1", "{}");
        tree.write("/var/lib/cni/accelerated-bridge/vlan-uplink.lock", "");
        assert_eq!(list_caches(tree.root(), Plugin::AcceleratedBridge).unwrap(), ["net-a-0123-net1"]);
    }
}

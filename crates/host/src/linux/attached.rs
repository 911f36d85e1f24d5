//! Devices that CNI plugins have attached to pods, by the files that they keep on the node.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;

use vfleet_api::PciAddress;
use vfleet_plan::cni::facts::HolderNamespace;
use vfleet_plan::{Fact, HostFacts, UnreadAttachments, VfAttachment};

use super::attachment::{parse_file_name, parse_journal};
use super::root::HostRoot;
use super::{atomic_file, sysfs};
use crate::{HostError, format_error_chain};

/// Directory of the allocations of the Go plugin `sriov` in that of its state.
const GO_PLUGIN: &str = "sriov";
const GO_ALLOCATIONS: &str = "pci";

/// Attachments by device.
pub(super) type AttachedDevices = BTreeMap<PciAddress, VfAttachment>;

/// Returns the directories whose files say which devices are attached.
pub(super) fn directories(root: &HostRoot) -> [std::path::PathBuf; 2] {
    [root.journals(), root.go_cni(GO_PLUGIN).join(GO_ALLOCATIONS)]
}

/// Reads which devices are attached in the boot `boot_id`. A journal that cannot be read holds the device in its name.
pub(super) fn read(root: &HostRoot, boot_id: &str) -> Result<AttachedDevices, HostError> {
    let [journals, allocations] = directories(root);
    let mut attached = AttachedDevices::new();
    for name in sysfs::list_names_if_exists(&allocations)? {
        let Ok(device) = name.parse::<PciAddress>() else { continue };
        // The plugin does not write atomically: the file may be empty. It may also be removed meanwhile.
        let Some(path) = atomic_file::read_text(&allocations.join(name))? else { continue };
        let attachment = VfAttachment::of_go_allocation(namespace_at(root, path.trim()));
        attached.extend(attachment.map(|attachment| (device, attachment)));
    }
    for name in sysfs::list_names_if_exists(&journals)? {
        let Some(key) = parse_file_name(&name) else { continue };
        let attachment = match atomic_file::read(&journals.join(&name)) {
            Ok(None) => None,
            Ok(Some(bytes)) => parse_journal(&bytes)
                .map_or(Some(VfAttachment::Journal), |journal| VfAttachment::of_journal(&journal, boot_id)),
            Err(_) => Some(VfAttachment::Journal),
        };
        attached.extend(key.device.zip(attachment));
    }
    Ok(attached)
}

/// Returns the state of the namespace at a path. That of another pod may be there by now, which holds the device too.
fn namespace_at(root: &HostRoot, path: &str) -> HolderNamespace {
    let found = fs::metadata(root.namespace(path));
    let is_missing =
        found.is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory));
    if path.is_empty() || is_missing { HolderNamespace::Gone } else { HolderNamespace::Unknown }
}

/// Adds the attachments to the facts of VFs. They are unknown if the files cannot be read.
pub(super) fn add(facts: &mut HostFacts, read: Result<AttachedDevices, HostError>) {
    let attached = read
        .map_err(|error| {
            let (reason, error) = (error.reason(), format_error_chain(&error));
            facts.unread_attachments = Some(UnreadAttachments { error, reason });
        })
        .ok();
    for vf in facts.pfs.iter_mut().flat_map(|pf| &mut pf.vfs) {
        vf.attachment = match &attached {
            Some(attached) => attached.get(&vf.address).copied().into(),
            None => Fact::Unknown,
        };
    }
}

#[cfg(test)]
mod tests {
    use vfleet_plan::cni::facts::{Namespace, NamespaceId};
    use vfleet_plan::cni::journal::{
        AttachmentKey, DeviceChanges, JOURNAL_VERSION, Journal, Phase, Plugin, RdmaChanges,
    };

    use super::*;
    use crate::linux::test_tree::TestTree;

    const BOOT: &str = "5f0c5cde-0000-4000-8000-000000000001";

    fn device(number: u8) -> PciAddress {
        PciAddress::new(0, 1, 16, number).unwrap()
    }

    fn write_journal(tree: &TestTree, device: PciAddress, phase: Phase, boot_id: &str) {
        let journal = Journal {
            version: JOURNAL_VERSION,
            key: AttachmentKey {
                plugin: Plugin::Sriov,
                container_id: "c1".to_owned(),
                interface: "net1".to_owned(),
                device: Some(device),
            },
            network: "n".to_owned(),
            namespace: Namespace {
                path: "/run/netns/gone".to_owned(),
                id: NamespaceId { device: 4, inode: 1, cookie: None },
            },
            boot_id: boot_id.to_owned(),
            phase,
            pod: None,
            config: serde_json::Value::Null,
            cni_path: String::new(),
            changes: DeviceChanges::Rdma(RdmaChanges { rdma: "mlx5_2".to_owned() }),
            result: None,
        };
        let path = format!("/var/lib/cni/vfleet/sriov:c1:net1:{device}");
        tree.write(&path, &serde_json::to_string(&journal).unwrap());
    }

    #[test]
    fn journals_of_this_boot_hold_their_devices_until_these_are_returned() {
        let tree = TestTree::new();
        assert_eq!(read(tree.root(), BOOT).unwrap(), AttachedDevices::new());
        let phases = [Phase::Attaching, Phase::Attached, Phase::Releasing, Phase::Returned];
        for (number, phase) in (0..).zip(phases) {
            write_journal(&tree, device(number), phase, BOOT);
        }
        write_journal(&tree, device(4), Phase::Attached, "another boot");
        tree.write("/var/lib/cni/vfleet/.draft", "{");
        let held = [0, 1, 2].map(|number| (device(number), VfAttachment::Journal));
        assert_eq!(read(tree.root(), BOOT).unwrap(), held.into());
    }

    #[test]
    fn a_damaged_journal_holds_its_device() {
        let tree = TestTree::new();
        tree.write("/var/lib/cni/vfleet/sriov:c1:net1:0000:01:10.0", "{");
        assert_eq!(read(tree.root(), BOOT).unwrap(), [(device(0), VfAttachment::Journal)].into());
    }

    #[test]
    fn an_allocation_of_the_go_plugin_holds_its_device_while_the_namespace_exists() {
        let tree = TestTree::new();
        tree.write("/run/netns/pod", "");
        for (number, path) in (0..).zip(["/var/run/netns/pod\n", "/run/netns/gone", "/run/netns/pod/x", ""]) {
            tree.write(&format!("/var/lib/cni/sriov/pci/{}", device(number)), path);
        }
        tree.write("/var/lib/cni/sriov/pci/vf_lock/x.lock", "");
        assert_eq!(read(tree.root(), BOOT).unwrap(), [(device(0), VfAttachment::GoAllocation)].into());
        // The journal says more.
        write_journal(&tree, device(0), Phase::Attached, BOOT);
        assert_eq!(read(tree.root(), BOOT).unwrap()[&device(0)], VfAttachment::Journal);
    }

    #[test]
    fn files_that_cannot_be_read_are_not_no_attachments() {
        let tree = TestTree::new();
        tree.write("/var/lib/cni/vfleet", "no directory");
        let mut facts = HostFacts::default();
        add(&mut facts, read(tree.root(), BOOT));
        let unread = facts.unread_attachments.unwrap();
        let words = [
            "/var/lib/cni/vfleet",
            "Not a directory",
            "no VF counts as free",
            "repair this file or directory",
        ];
        assert!(words.iter().all(|word| unread.to_string().contains(word)), "{unread}");
    }
}

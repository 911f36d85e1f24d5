//! Facts of the PCI function of an attachment.

use std::collections::BTreeSet;
use std::path::Path;

use vfleet_api::PciAddress;
use vfleet_plan::LinkKind;
use vfleet_plan::cni::facts::{DeviceFacts, DevicePart, InterfaceFacts, ParentPf, VfSettings};

use crate::HostError;
use crate::linux::netlink::rtnl::{InterfaceAddress, Link, Rtnl};
use crate::linux::root::HostRoot;
use crate::linux::{netdev, pci, rdma, sysfs};

/// Reads a function, with its interface if that is in this namespace. If something vanishes meanwhile, this is an error: see
/// [`crate::linux::stable_read`].
pub(super) fn read(root: &HostRoot, address: PciAddress, rtnl: &mut Rtnl) -> Result<DeviceFacts, HostError> {
    let path = root.device(address);
    let link = netdev::of_device(&path)?.map(|own| rtnl.link(own.index)).transpose()?;
    Ok(DeviceFacts {
        address,
        exists: path.try_exists().map_err(|source| sysfs::failed("look for", &path, source))?,
        driver: pci::bus_device(root, address).driver()?,
        pf: read_parent(root, address, rtnl)?,
        link: link.map(|link| interface(&link, &[])),
        rdma: rdma::names_of_device(&path)?,
    })
}

/// Returns whether these parts of the function at `path` are in the network namespace of this thread.
pub(super) fn has_parts(path: &Path, parts: &BTreeSet<DevicePart>) -> Result<bool, HostError> {
    for part in parts {
        let is_here = match part {
            DevicePart::Interface => netdev::of_device(path)?.is_some(),
            DevicePart::RdmaDevice => !rdma::names_of_device(path)?.is_empty(),
        };
        if !is_here {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads the PF of a VF with the settings of the VF. A PF without an interface stores none.
fn read_parent(root: &HostRoot, address: PciAddress, rtnl: &mut Rtnl) -> Result<Option<ParentPf>, HostError> {
    let Some(vf) = pci::read_parent(root, address)? else { return Ok(None) };
    let Some(netdev) = netdev::of_device(&root.device(vf.pf))? else {
        let name = String::new();
        return Ok(Some(ParentPf { vf, name, index: 0, mtu: 0, is_up: false, settings: None }));
    };
    let pf = rtnl.link(netdev.index)?;
    let settings = pf.vfs.get(&vf.index.into()).map(|settings| match pf.kind {
        // The field of the MAC address is meaningless.
        LinkKind::Infiniband => VfSettings { mac: None, ..*settings },
        _ => *settings,
    });
    let Link { name, index, mtu, is_up, .. } = pf;
    Ok(Some(ParentPf { vf, name, index, mtu, is_up, settings }))
}

/// Returns the facts of an interface, with its IP addresses among those of its namespace.
pub(super) fn interface(link: &Link, addresses: &[InterfaceAddress]) -> InterfaceFacts {
    let own = addresses.iter().filter(|address| address.index == link.index && address.is_global);
    let mut ips: Vec<String> =
        own.filter_map(|address| Some(format!("{}/{}", address.ip?, address.prefix_length))).collect();
    ips.sort();
    InterfaceFacts {
        index: link.index,
        name: link.name.clone(),
        alt_names: link.alt_names.clone(),
        address: link.address.clone(),
        mtu: link.mtu,
        min_mtu: link.min_mtu,
        max_mtu: link.max_mtu,
        is_up: link.is_up,
        device: link.device,
        ips,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::linux::test_tree::TestTree;

    #[test]
    fn a_device_that_cannot_be_looked_for_is_not_a_missing_one() {
        let tree = TestTree::new();
        let device: PciAddress = "0000:01:10.0".parse().unwrap();
        let mut rtnl = Rtnl::open().unwrap();
        assert!(!read(tree.root(), device, &[], &mut rtnl).unwrap().exists);
        tree.write("/sys/bus/pci/devices/other", "");
        symlink(device.to_string(), tree.path(&format!("/sys/bus/pci/devices/{device}"))).unwrap();
        assert!(read(tree.root(), device, &[], &mut rtnl).is_err());
    }
}

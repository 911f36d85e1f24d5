//! vDPA devices of VFs.

use std::ffi::OsStr;
use std::fs;

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::VdpaKind;

use super::driver::BusDevice;
use super::netlink::generic::Family;
use super::netlink::invalid_answer;
use super::netlink::vdpa::{self as wire, VdpaConfig};
use super::root::HostRoot;
use super::sysfs;
use crate::HostError;

const ENOENT: i32 = 2;
const ENODEV: i32 = 19;
const EOPNOTSUPP: i32 = 95;

/// Queue pairs of a device. Programs use as many as they have processors.
const QUEUE_PAIRS: u16 = 32;

/// Returns the vDPA device of the VF at `vf`, which need not exist.
pub(super) fn device(root: &HostRoot, vf: PciAddress) -> BusDevice {
    BusDevice::new(root.vdpa(), name(vf))
}

fn name(vf: PciAddress) -> String {
    format!("vdpa:{vf}")
}

/// Reads the kind of the vDPA device of a VF; `None` if there is no device, or it has no driver.
pub(super) fn read_kind(root: &HostRoot, vf: PciAddress) -> Result<Option<VdpaKind>, HostError> {
    let driver = device(root, vf).driver()?;
    let is_bound = |kind: &VdpaKind| driver.as_deref() == Some(kind.driver());
    Ok([VdpaKind::Virtio, VdpaKind::Vhost].into_iter().find(is_bound))
}

/// Creates the vDPA device of a VF.
pub(super) fn create(vf: PciAddress, attempt: &str) -> Result<(), HostError> {
    create_on(Some("pci"), &vf.to_string(), &name(vf), attempt)
}

/// Creates a vDPA device of this name on the device `parent` of a bus.
pub(super) fn create_on(bus: Option<&str>, parent: &str, name: &str, attempt: &str) -> Result<(), HostError> {
    let mut vdpa = Family::open(wire::FAMILY)?.ok_or_else(not_loaded)?;
    match vdpa.change(&wire::create(name, bus, parent, Some(QUEUE_PAIRS)), attempt) {
        // Not every card supports a chosen number of queues.
        Err(error) if error.errno() == Some(EOPNOTSUPP) => {
            vdpa.change(&wire::create(name, bus, parent, None), attempt)
        }
        result => result,
    }
}

/// Removes the vDPA device of a VF, if there is one.
pub(super) fn remove(vf: PciAddress, attempt: &str) -> Result<(), HostError> {
    let Some(mut vdpa) = Family::open(wire::FAMILY)? else { return Ok(()) };
    match vdpa.change(&wire::remove(&name(vf)), attempt) {
        Err(error) if matches!(error.errno(), Some(ENOENT | ENODEV)) => Ok(()),
        removed => removed,
    }
}

/// Lists the names of all vDPA devices of a function, whoever created them.
pub(super) fn list_names(root: &HostRoot, parent: PciAddress) -> Result<Vec<String>, HostError> {
    let devices = root.vdpa().join("devices");
    let parent = parent.to_string();
    let mut found = Vec::new();
    for name in sysfs::list_names_if_exists(&devices)? {
        let link = devices.join(&name);
        let target = fs::read_link(&link).map_err(|source| sysfs::failed("read", &link, source))?;
        if target.parent().and_then(|path| path.file_name()) == Some(OsStr::new(&parent)) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Returns the vDPA device with this name, which need not exist.
pub(super) fn named(root: &HostRoot, name: &str) -> BusDevice {
    BusDevice::new(root.vdpa(), name.to_owned())
}

/// Reads the configuration of a vDPA device.
pub(super) fn read_config(name: &str) -> Result<VdpaConfig, HostError> {
    let attempt = format!("read the configuration of vDPA device {name}");
    let mut vdpa = Family::open(wire::FAMILY)?.ok_or_else(not_loaded)?;
    let answer = vdpa.get(&wire::get_config(name), &attempt)?;
    VdpaConfig::parse(&answer).ok_or_else(|| invalid_answer(&attempt))
}

/// Sets the MAC address of a vDPA device (Linux 6.12).
pub(super) fn set_mac(name: &str, mac: MacAddr, attempt: &str) -> Result<(), HostError> {
    let mut vdpa = Family::open(wire::FAMILY)?.ok_or_else(not_loaded)?;
    vdpa.change(&wire::set_mac(name, mac), attempt)
}

fn not_loaded() -> HostError {
    HostError::DriverNotLoaded { driver: "vdpa".to_owned() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::linux::test_tree::TestTree;

    #[test]
    fn the_devices_of_a_function_are_found_by_their_place() {
        let tree = TestTree::new();
        let vf: PciAddress = "0000:01:10.0".parse().unwrap();
        assert!(list_names(tree.root(), vf).unwrap().is_empty());
        fs::create_dir_all(tree.path("/sys/bus/vdpa/devices")).unwrap();
        for (name, parent) in
            [("vdpa0", "0000:01:10.0"), ("vdpa:x", "0000:01:10.0"), ("vdpa1", "0000:01:10.2")]
        {
            let target = format!("../../../devices/pci0000:00/0000:00:02.0/{parent}/{name}");
            symlink(target, tree.path(&format!("/sys/bus/vdpa/devices/{name}"))).unwrap();
        }
        symlink("../../../devices/vdpasim_net/vdpa2", tree.path("/sys/bus/vdpa/devices/vdpa2")).unwrap();
        assert_eq!(list_names(tree.root(), vf).unwrap(), ["vdpa0", "vdpa:x"]);
    }
}

//! Execution of steps of attachments on the simulated kernel, with the same requests as on a real host.

mod return_to_host;
mod switch;

use std::io;

use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_plan::cni::facts::{Namespace, VfSettings};
use vfleet_plan::cni::step::{CniStep, IpPrefix};
use vfleet_plan::is_userspace_driver;

use super::super::devices::SimLink;
use super::super::host::{SimHost, lock};
use super::super::kernel::Kernel;
use super::super::namespaces::NamespacePath;
use super::super::requests::Refusal;
use crate::HostError;

const ENOENT: i32 = 2;
const EADDRNOTAVAIL: i32 = 99;

pub(super) fn execute(host: &SimHost, step: &CniStep) -> Result<(), HostError> {
    match step {
        CniStep::SetVf { vf, settings } => set_vf(host, *vf, settings),
        CniStep::SetInterfaceMac { device, mac } => {
            host.visible_link(*device)?;
            set_mac(host, *device, *mac).map(drop)
        }
        CniStep::MoveToPod { device, namespace, name, drop_alt_names } => {
            move_to_pod(host, *device, namespace, name, drop_alt_names)
        }
        CniStep::SetUpInPod { namespace, name, mtu, mac } => set_up(host, namespace, name, *mtu, *mac),
        CniStep::AddAddresses { namespace, name, addresses } => {
            let ips: Vec<String> = addresses.ips.iter().map(format_prefix).collect();
            if let Some(inode) = host.virtual_namespace(namespace, name)? {
                return host.request(&format!("add addresses to {name}"), |kernel| {
                    kernel.change_virtual_link(inode, name, |link| {
                        link.ips
                            .extend(ips.into_iter().filter(|ip| !link.ips.contains(ip)).collect::<Vec<_>>());
                    })
                });
            }
            let device = host.device_in(namespace, name)?;
            host.request(&format!("add addresses to {name}"), |kernel| kernel.add_ips(device, &ips))
        }
        CniStep::Announce { .. } => Ok(()),
        CniStep::ReturnToHost { device, namespace, pod_name, original } => {
            return_to_host::execute(host, *device, namespace.as_ref(), pod_name, original)
        }
        CniStep::SetVfGuid { vf, guid } => {
            host.request(&format!("set the GUID of {vf}"), |kernel| kernel.set_vf_guid(*vf, *guid))
        }
        CniStep::SetVfLinkState { vf, state } => {
            let settings = VfSettings { link_state: Some(*state), ..VfSettings::default() };
            set_vf(host, *vf, &settings)
        }
        CniStep::Rebind { device } => rebind(host, *device),
        CniStep::MoveRdmaToPod { device, rdma, namespace } => {
            let inode = host.inode_of(namespace)?;
            rename_rdma(host, *device, rdma)?;
            host.request(&format!("move {rdma}"), |kernel| kernel.move_rdma(*device, Some(inode)))
        }
        CniStep::ReturnRdmaToHost { device, rdma, .. } => {
            host.request(&format!("return {rdma}"), |kernel| kernel.move_rdma(*device, None))?;
            rename_rdma(host, *device, rdma)
        }
        CniStep::WriteGoAllocation { device, path } => {
            host.effect("write an allocation", |kernel| kernel.cni.write_allocation(*device, path))
        }
        CniStep::RemoveGoAllocation { device, path } => host.effect("remove an allocation", |kernel| {
            if kernel.cni.go_allocations.get(device) == Some(path) {
                kernel.cni.go_allocations.remove(device);
            }
            Ok(())
        }),
        CniStep::Switch(step) => switch::execute(host, step),
    }
}

fn set_vf(host: &SimHost, vf: VfRef, settings: &VfSettings) -> Result<(), HostError> {
    host.request(&format!("set {settings:?} of {vf}"), |kernel| kernel.set_vf_settings(vf, settings))
}

/// Sets the MAC of an interface. Binds the device again if the driver refuses it: returns whether that was done.
fn set_mac(host: &SimHost, device: PciAddress, mac: MacAddr) -> Result<bool, HostError> {
    if host.link(device)?.mac == mac {
        return Ok(false);
    }
    match host.request(&format!("set the MAC of {device}"), |kernel| kernel.set_own_mac(device, mac)) {
        Err(error) if error.errno() == Some(EADDRNOTAVAIL) => {}
        result => return result.map(|()| false),
    }
    rebind(host, device)?;
    match host.link(device)?.mac {
        found if found == mac => Ok(true),
        found => Err(HostError::NotVerified {
            attempt: format!("set the MAC of {device}"),
            expected: mac.to_string(),
            found: found.to_string(),
        }),
    }
}

fn move_to_pod(
    host: &SimHost,
    device: PciAddress,
    namespace: &Namespace,
    name: &str,
    drop_alt_names: &[String],
) -> Result<(), HostError> {
    let inode = host.inode_of(namespace)?;
    if host.namespace_of(device)? == Some(inode) {
        return host.request(&format!("rename {device}"), |kernel| kernel.rename_link(device, name));
    }
    let link = host.visible_link(device)?;
    for alt_name in drop_alt_names.iter().filter(|alt_name| link.alt_names.contains(alt_name)) {
        host.request(&format!("remove {alt_name}"), |kernel| kernel.remove_alt_name(device, alt_name))?;
    }
    let moved = host.request(&format!("move {} as {name}", link.name), |kernel| {
        kernel.move_link(device, Some(inode), Some(name))
    });
    if moved.is_err() && host.namespace_of(device).is_ok_and(|found| found == Some(inode)) {
        let back = |kernel: &mut Kernel| kernel.move_link(device, None, Some(&link.name));
        host.request(&format!("move {} back", link.name), back)?;
    }
    moved
}

fn set_up(
    host: &SimHost,
    namespace: &Namespace,
    name: &str,
    mtu: Option<u32>,
    mac: Option<MacAddr>,
) -> Result<(), HostError> {
    if let Some(inode) = host.virtual_namespace(namespace, name)? {
        return host.request(&format!("set {name} up"), |kernel| {
            kernel.change_virtual_link(inode, name, |link| {
                link.mtu = mtu.unwrap_or(link.mtu);
                link.mac = mac.unwrap_or(link.mac);
                link.is_up = true;
            })
        });
    }
    let device = host.device_in(namespace, name)?;
    let link = host.link(device)?;
    if let Some(mtu) = mtu.filter(|mtu| *mtu != link.mtu) {
        host.request(&format!("set the MTU of {name}"), |kernel| kernel.set_own_mtu(device, mtu))?;
    }
    if let Some(mac) = mac.filter(|mac| *mac != link.mac) {
        host.request(&format!("set the MAC of {name}"), |kernel| kernel.set_own_mac(device, mac))?;
    }
    host.request(&format!("set {name} up"), |kernel| kernel.set_own_up(device, true))
}

/// Binds a device to its driver again, or to the one that the kernel chooses if it has none.
fn rebind(host: &SimHost, device: PciAddress) -> Result<(), HostError> {
    let (vf, driver, autoprobe) = host.read_state(|kernel| {
        let no_vf = || HostError::NoInterface { device: device.to_string() };
        let vf = kernel.vf_at(device).ok_or_else(no_vf)?;
        let driver = kernel.device_vf(device).and_then(|vf| vf.driver.clone());
        Ok((vf, driver, kernel.pf(vf.pf).is_some_and(|pf| pf.autoprobe)))
    })?;
    let needs_override = !autoprobe || driver.as_deref().is_some_and(is_userspace_driver);
    let named = driver.as_deref().filter(|_| needs_override);
    if named.is_some() {
        host.request("set the override", |kernel| kernel.set_override(vf, named))?;
    }
    if driver.is_some() {
        host.request(&format!("unbind {device}"), |kernel| kernel.unbind(vf))?;
    }
    host.request(&format!("probe {device}"), |kernel| kernel.probe(vf))?;
    if named.is_some() {
        host.request("reset the override", |kernel| kernel.set_override(vf, None))?;
    }
    let found = host.read_state(|kernel| Ok(kernel.device_vf(device).and_then(|vf| vf.driver.clone())))?;
    if found.is_some() && (driver.is_none() || found == driver) {
        return Ok(());
    }
    Err(HostError::NotVerified {
        attempt: format!("bind {device}"),
        expected: driver.unwrap_or_else(|| "a driver".to_owned()),
        found: found.unwrap_or_else(|| "no driver".to_owned()),
    })
}

fn rename_rdma(host: &SimHost, device: PciAddress, name: &str) -> Result<(), HostError> {
    let present = host.read_state(|kernel| {
        let rdma = kernel.device_vf(device).and_then(|vf| vf.rdma.as_ref());
        Ok(rdma.map(|rdma| rdma.device.clone()))
    })?;
    if present.as_deref() == Some(name) {
        return Ok(());
    }
    host.request(&format!("rename the RDMA device of {device}"), |kernel| kernel.rename_rdma(device, name))
}

fn format_prefix(prefix: &IpPrefix) -> String {
    format!("{}/{}", prefix.address, prefix.length)
}

impl SimHost {
    /// Sends a request to the kernel.
    fn request<T>(
        &self,
        attempt: &str,
        request: impl FnOnce(&mut Kernel) -> Result<T, Refusal>,
    ) -> Result<T, HostError> {
        let refused = |refusal: Refusal| HostError::Netlink {
            attempt: attempt.to_owned(),
            message: refusal.message.map(str::to_owned),
            source: io::Error::from_raw_os_error(refusal.errno),
        };
        self.effect(attempt, |kernel| request(kernel).map_err(refused))
    }

    /// Reads the kernel in the middle of a step.
    fn read_state<T>(&self, read: impl FnOnce(&Kernel) -> Result<T, HostError>) -> Result<T, HostError> {
        let kernel = lock(&self.machine.kernel);
        lock(&self.process).check_alive("read the machine", kernel.boots)?;
        read(&kernel)
    }

    /// Returns the interface of a device, in whatever namespace it is.
    fn link(&self, device: PciAddress) -> Result<SimLink, HostError> {
        let none = || HostError::NoInterface { device: device.to_string() };
        self.read_state(|kernel| kernel.device_link(device).cloned().ok_or_else(none))
    }

    /// Returns the interface of a device in the host's namespace.
    fn visible_link(&self, device: PciAddress) -> Result<SimLink, HostError> {
        match self.namespace_of(device)? {
            None => self.link(device),
            Some(_) => Err(HostError::NoInterface { device: device.to_string() }),
        }
    }

    /// Returns the inode of the namespace of the interface of a device; `None` is the host's.
    fn namespace_of(&self, device: PciAddress) -> Result<Option<u64>, HostError> {
        self.read_state(|kernel| Ok(kernel.device_vf(device).and_then(|vf| vf.namespace)))
    }

    /// Opens the namespace of a pod. Returns its inode.
    fn inode_of(&self, namespace: &Namespace) -> Result<u64, HostError> {
        let missing = || HostError::Io {
            attempt: "open",
            path: namespace.path.clone().into(),
            source: io::Error::from_raw_os_error(ENOENT),
        };
        self.read_state(|kernel| match kernel.namespaces.paths.get(&namespace.path) {
            Some(NamespacePath::Namespace(inode)) if kernel.identify(*inode).is_same(&namespace.id) => {
                Ok(*inode)
            }
            _ => Err(missing()),
        })
    }

    /// Returns the inode of the namespace of a pod, if its interface with this name is one end of a veth pair.
    fn virtual_namespace(&self, namespace: &Namespace, name: &str) -> Result<Option<u64>, HostError> {
        let inode = self.inode_of(namespace)?;
        self.read_state(|kernel| {
            let link = kernel.virtual_link(inode, name);
            Ok(link.is_some_and(|link| link.peer.is_some()).then_some(inode))
        })
    }

    /// Returns the VF whose interface has this name in the namespace of a pod.
    fn device_in(&self, namespace: &Namespace, name: &str) -> Result<PciAddress, HostError> {
        let inode = self.inode_of(namespace)?;
        self.read_state(|kernel| {
            let is_named =
                |device: &PciAddress| kernel.device_link(*device).is_some_and(|link| link.name == name);
            let found = kernel.links_in(Some(inode)).find(is_named);
            found.ok_or_else(|| HostError::NoInterface { device: name.to_owned() })
        })
    }
}

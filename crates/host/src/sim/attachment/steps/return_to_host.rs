//! Return of an interface from the namespace of a pod.

use vfleet_api::PciAddress;
use vfleet_plan::cni::facts::Namespace;
use vfleet_plan::cni::step::OriginalInterface;

use super::set_mac;
use crate::HostError;
use crate::sim::host::SimHost;
use crate::sim::kernel::Kernel;

pub(super) fn execute(
    host: &SimHost,
    device: PciAddress,
    namespace: Option<&Namespace>,
    pod_name: &str,
    original: &OriginalInterface,
) -> Result<(), HostError> {
    if host.namespace_of(device)?.is_some() {
        move_to_host(host, device, namespace, original)?;
    }
    if let Some(mac) = original.mac {
        set_mac(host, device, mac)?;
    }
    restore_names(host, device, pod_name, original)?;
    let link = host.visible_link(device)?;
    if let Some(mtu) = original.mtu.filter(|mtu| *mtu != link.mtu) {
        host.request(&format!("set the MTU of {}", link.name), |kernel| kernel.set_own_mtu(device, mtu))?;
    }
    Ok(())
}

/// Moves the interface under its original name, or if that is not free, under the present one or that of its index.
fn move_to_host(
    host: &SimHost,
    device: PciAddress,
    namespace: Option<&Namespace>,
    original: &OriginalInterface,
) -> Result<(), HostError> {
    let inode = namespace.map(|namespace| host.inode_of(namespace)).transpose()?;
    if host.namespace_of(device)? != inode {
        return Err(HostError::NoInterface { device: device.to_string() });
    }
    let link = host.link(device)?;
    host.request(&format!("set {} down", link.name), |kernel| kernel.set_own_up(device, false))?;
    let (clashes, is_free, index) = host.read_state(|kernel| {
        let clashes = |name: &&String| kernel.is_name_used(None, name) || **name == original.name;
        let clashing: Vec<String> = link.alt_names.iter().filter(clashes).cloned().collect();
        Ok((clashing, !kernel.is_name_used(None, &original.name), kernel.index_of(device)))
    })?;
    for name in clashes {
        host.request(&format!("remove {name}"), |kernel| kernel.remove_alt_name(device, &name))?;
    }
    let fallback = format!("dev{index}");
    let move_link = |kernel: &mut Kernel| {
        if is_free {
            return kernel.move_link(device, None, Some(&original.name));
        }
        let has_clash = kernel.is_name_used(None, &link.name);
        kernel.move_link(device, None, has_clash.then_some(fallback.as_str()))
    };
    host.request(&format!("move {} to the host", link.name), move_link)
}

/// Gives the interface its original name and alternative names, unless other interfaces have them.
fn restore_names(
    host: &SimHost,
    device: PciAddress,
    pod_name: &str,
    original: &OriginalInterface,
) -> Result<(), HostError> {
    let link = host.visible_link(device)?;
    let is_own = |name: &str| link.alt_names.iter().any(|alt_name| alt_name == name);
    let is_used = |name: &str| host.read_state(|kernel| Ok(kernel.is_name_used(None, name)));
    if link.name != original.name {
        if is_own(&original.name) {
            host.request(&format!("remove {}", original.name), |kernel| {
                kernel.remove_alt_name(device, &original.name)
            })?;
        }
        if !is_used(&original.name)? {
            host.request(&format!("rename {} to {}", link.name, original.name), |kernel| {
                kernel.rename_link(device, &original.name)
            })?;
        }
    }
    if is_own(pod_name) && !original.alt_names.iter().any(|name| name == pod_name) {
        host.request(&format!("remove {pod_name}"), |kernel| kernel.remove_alt_name(device, pod_name))?;
    }
    for name in original.alt_names.iter().filter(|name| !is_own(name)) {
        if !is_used(name)? {
            host.request(&format!("add {name}"), |kernel| kernel.add_alt_name(device, name))?;
        }
    }
    Ok(())
}

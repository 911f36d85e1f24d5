//! Interface of a device: on the host, in a pod, or on its way between them.

use crate::cni::facts::{
    AttachmentFacts, DeviceFacts, DevicePart, InterfaceFacts, ParentPf, VfSettings,
};
use crate::cni::journal::Journal;
use crate::cni::protocol::{CniError, ErrorCode};
use crate::cni::step::{CniStep, OriginalInterface};
use crate::prelude::*;

use super::ReleasePlan;
use super::pod::{PodNamespace, open_pod};
use super::release::ReleasedVf;

/// Returns the interface of the device on the host, which a device with a driver of the kernel must have.
pub(in crate::cni) fn require_interface(device: &DeviceFacts) -> Result<&InterfaceFacts, CniError> {
    let try_later = |problem, remedy: &str| {
        CniError::new(ErrorCode::TryAgainLater, format!("device {} {problem}", device.address))
            .with_details(remedy)
    };
    match (&device.link, &device.driver) {
        (Some(link), _) => Ok(link),
        (None, Some(driver)) => Err(try_later(
            format!("has driver {driver}, but no interface on the host"),
            "another namespace has the interface, or the driver has not created it yet",
        )),
        (None, None) => Err(try_later(
            "has neither an interface nor a driver".to_owned(),
            "bind it to its driver, or to vfio-pci, uio_pci_generic or igb_uio",
        )),
    }
}

/// Returns the device, which must exist.
pub(in crate::cni) fn require_device(facts: &AttachmentFacts) -> Result<&DeviceFacts, CniError> {
    let Some(device) = &facts.device else {
        return Err(CniError::invalid_config("deviceID", "is missing"));
    };
    if device.exists {
        return Ok(device);
    }
    Err(CniError::invalid_config("deviceID", format!("device {} does not exist", device.address))
        .with_details("the number of VFs was changed since the device plugin assigned it"))
}

/// Returns the settings that the PF stores for a VF, some of which are to be changed.
pub(in crate::cni) fn require_settings(pf: &ParentPf) -> Result<VfSettings, CniError> {
    pf.settings.ok_or_else(|| {
        CniError::new(
            ErrorCode::DeviceFailed,
            format!("PF {} reports no settings of VF {}", pf.name, pf.vf.index),
        )
        .with_details("remove the settings from the network if the driver of the PF does not support them")
    })
}

/// Returns the alternative names that an interface cannot keep when it gets the name `name` in the pod.
pub(in crate::cni) fn find_clashing_alt_names(
    link: &InterfaceFacts,
    name: &str,
    pod: &PodNamespace<'_>,
) -> Vec<String> {
    link.alt_names.iter().filter(|alt_name| *alt_name == name || pod.has_name(alt_name)).cloned().collect()
}

/// Returns the interface of the device in the pod. Kernels that do not report the device of an interface leave only the
/// name, which is reliable as long as the host does not have the interface: ADD refuses names that the pod has already.
pub(in crate::cni) fn find_in_pod<'a>(
    device: &DeviceFacts,
    pod: PodNamespace<'a>,
    name: &str,
) -> Option<&'a InterfaceFacts> {
    pod.links.iter().find(|link| link.device == Some(device.address)).or_else(|| {
        let is_on_host = device.link.is_some();
        pod.links.iter().find(|link| link.device.is_none() && link.name == name && !is_on_host)
    })
}

/// Origin of the interface that a device has at its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cni) enum InterfaceOrigin {
    /// It is the one that was attached.
    Attached,
    /// The steps before create it again on the host.
    CreatedAgain,
    /// It belongs to a new VF.
    NewVf,
}

impl InterfaceOrigin {
    /// Returns the origin of the interface of a VF, which steps before create again, or not.
    pub(in crate::cni) const fn new(vf: ReleasedVf<'_>, is_created_again: bool) -> Self {
        match vf {
            ReleasedVf::Replaced => Self::NewVf,
            ReleasedVf::Same(_) | ReleasedVf::Orphan if is_created_again => Self::CreatedAgain,
            ReleasedVf::Same(_) | ReleasedVf::Orphan => Self::Attached,
        }
    }
}

/// Adds the return of the interface of a device to a plan, from wherever it is.
pub(in crate::cni) fn return_interface(
    original: &OriginalInterface,
    journal: &Journal,
    device: &DeviceFacts,
    facts: &AttachmentFacts,
    origin: InterfaceOrigin,
    plan: &mut ReleasePlan,
) {
    let name = &journal.key.interface;
    let step = |namespace, pod_name: &str| CniStep::ReturnToHost {
        device: device.address,
        namespace,
        pod_name: pod_name.to_owned(),
        original: original.clone(),
    };
    let pod = open_pod(facts).ok();
    if let Some((pod, link)) = pod.and_then(|pod| Some((pod, find_in_pod(device, pod, name)?))) {
        return plan.steps.push(step(Some(pod.namespace.clone()), &link.name));
    }
    match (origin, &device.link, &device.driver) {
        (InterfaceOrigin::NewVf, ..) => {}
        (InterfaceOrigin::CreatedAgain, ..) => plan.steps.push(step(None, name)),
        (InterfaceOrigin::Attached, Some(link), _) => {
            if differs(link, original, name, facts) || may_change_mac(&plan.steps, original) {
                plan.steps.push(step(None, name));
            }
            if link.name != original.name && facts.host_names.contains(&original.name) {
                plan.notes.push(format!(
                    "interface {} keeps its name: another interface is called {}",
                    link.name, original.name
                ));
            }
        }
        (InterfaceOrigin::Attached, None, Some(_)) if !device.is_for_userspace() => {
            plan.waits_for.insert(DevicePart::Interface);
        }
        (InterfaceOrigin::Attached, None, driver) => plan.notes.push(format!(
            "device {} has no interface any more: its driver is {}",
            device.address,
            driver.as_deref().unwrap_or("none")
        )),
    }
}

/// Returns whether the MAC of the interface may differ from the original after these steps: some drivers give it the
/// administrative MAC at once.
fn may_change_mac(steps: &[CniStep], original: &OriginalInterface) -> bool {
    let sets_other_mac = |step: &CniStep| matches!(step, CniStep::SetVf { settings, .. } if settings.mac.is_some() && settings.mac != original.mac);
    original.mac.is_some() && steps.iter().any(sets_other_mac)
}

/// Returns whether an interface on the host differs from the original in something that can be restored.
fn differs(
    link: &InterfaceFacts,
    original: &OriginalInterface,
    pod_name: &str,
    facts: &AttachmentFacts,
) -> bool {
    let is_free = |name: &String| !facts.host_names.contains(name);
    let lacks = |name: &&String| !link.is_called(name) && is_free(name);
    let has_name_of_pod = link.alt_names.iter().any(|name| name == pod_name)
        && !original.alt_names.iter().any(|name| name == pod_name);
    (link.name != original.name && is_free(&original.name))
        || original.alt_names.iter().any(|name| lacks(&name))
        || has_name_of_pod
        || original.mac.is_some_and(|mac| link.mac() != Some(mac))
        || original.mtu.is_some_and(|mtu| link.mtu != mtu)
}

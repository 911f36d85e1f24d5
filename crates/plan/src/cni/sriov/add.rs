//! ADD of the plugin `sriov`.

use vfleet_api::MacAddr;

use crate::cni::attachment::{
    AddContext, AddPlan, PodNamespace, find_clashing_alt_names, open_pod, refuse_holders, require_device,
    require_interface, require_settings,
};
use crate::cni::config::SriovConfig;
use crate::cni::facts::{AttachmentFacts, DeviceFacts, InterfaceFacts, ParentPf, VfSettings};
use crate::cni::journal::{AttachmentKey, DeviceChanges, VfChanges};
use crate::cni::protocol::CniError;
use crate::cni::protocol::result::ResultInterface;
use crate::cni::step::{CniStep, OriginalInterface};
use crate::prelude::*;

/// Plans an ADD.
pub fn plan_add(
    config: &SriovConfig,
    context: AddContext<'_>,
    facts: &AttachmentFacts,
) -> Result<AddPlan, CniError> {
    let pod = open_pod(facts)?;
    let planned = plan_vf(config, &context.key, &pod, facts)?;
    let has_interface = planned.changes.interface.is_some();
    let journal = context.journal(&pod, DeviceChanges::Sriov(planned.changes));
    Ok(AddPlan::new(journal, planned.steps, vec![planned.interface], has_interface))
}

/// Plan for an Ethernet VF, whatever its representor is attached to.
#[derive(Clone, Debug)]
pub(in crate::cni) struct PlannedVf {
    /// Steps.
    pub(in crate::cni) steps: Vec<CniStep>,
    /// Interface of the result.
    pub(in crate::cni) interface: ResultInterface,
    /// Changes for the journal.
    pub(in crate::cni) changes: VfChanges,
}

/// Plans the settings of a VF and the move of its interface to the pod.
pub(in crate::cni) fn plan_vf(
    config: &SriovConfig,
    key: &AttachmentKey,
    pod: &PodNamespace<'_>,
    facts: &AttachmentFacts,
) -> Result<PlannedVf, CniError> {
    pod.check_name(&key.interface)?;
    let device = require_device(facts)?;
    let pf = require_vf(device)?;
    refuse_holders(facts, key)?;
    let link = if device.is_for_userspace() { None } else { Some(require_interface(device)?) };
    check_mtu(config, link, device)?;
    let settings = complete_settings(config, pf)?;
    let current = pf.settings.unwrap_or_default();

    let mut steps = Vec::new();
    let differing = settings.differing_from(&current);
    if !differing.is_empty() {
        steps.push(CniStep::SetVf { vf: pf.vf, settings: differing });
    }
    if let Some(link) = link {
        plan_interface(config, &key.interface, link, pod, &mut steps);
    }
    let interface = ResultInterface {
        name: key.interface.clone(),
        mac: reported_mac(config, link, &current).map(|mac| mac.to_string()),
        mtu: Some(link.map_or(pf.mtu, |link| config.mtu.unwrap_or(link.mtu))),
        sandbox: Some(pod.namespace.path.clone()),
        ..ResultInterface::default()
    };
    let changes = VfChanges {
        vf: pf.vf,
        changed: settings,
        original: current,
        interface: link.map(|link| OriginalInterface {
            name: link.name.clone(),
            alt_names: link.alt_names.clone(),
            mac: link.mac(),
            mtu: Some(link.mtu),
        }),
    };
    Ok(PlannedVf { steps, interface, changes })
}

/// Returns the PF of the device, which must be an Ethernet VF.
fn require_vf(device: &DeviceFacts) -> Result<&ParentPf, CniError> {
    let Some(pf) = &device.pf else {
        return Err(CniError::invalid_config(
            "deviceID",
            format!("device {} is not a VF of this machine", device.address),
        )
        .with_details("use the plugin host-device for a PF, and in a virtual machine"));
    };
    if device.link.as_ref().is_some_and(InterfaceFacts::is_infiniband) {
        return Err(CniError::invalid_config(
            "deviceID",
            format!("device {} is an InfiniBand VF", device.address),
        )
        .with_details("use the plugin ib-sriov"));
    }
    Ok(pf)
}

fn check_mtu(
    config: &SriovConfig,
    link: Option<&InterfaceFacts>,
    device: &DeviceFacts,
) -> Result<(), CniError> {
    let Some(mtu) = config.mtu else { return Ok(()) };
    let Some(link) = link else {
        let driver = device.driver.as_deref().unwrap_or_default();
        return Err(CniError::invalid_config(
            "mtu",
            format!("device {} has driver {driver} and no interface", device.address),
        )
        .with_details("remove mtu: the program in the pod sets it"));
    };
    if let Some(limit) = link.min_mtu.filter(|limit| mtu < *limit) {
        let problem = format!("{mtu} is below {limit}, the lowest MTU of interface {}", link.name);
        return Err(CniError::invalid_config("mtu", problem));
    }
    if let Some(limit) = link.max_mtu.filter(|limit| mtu > *limit) {
        let problem = format!("{mtu} is above {limit}, the highest MTU of interface {}", link.name);
        return Err(CniError::invalid_config("mtu", problem));
    }
    Ok(())
}

/// Returns the requested settings. The kernel sets both rates in one request: the one that is not given stays as it is.
fn complete_settings(config: &SriovConfig, pf: &ParentPf) -> Result<VfSettings, CniError> {
    let mut settings = config.settings;
    if settings.is_empty() {
        return Ok(settings);
    }
    let current = require_settings(pf)?;
    if settings.min_tx_rate.is_some() || settings.max_tx_rate.is_some() {
        let min = settings.min_tx_rate.or(current.min_tx_rate).unwrap_or(0);
        let max = settings.max_tx_rate.or(current.max_tx_rate).unwrap_or(0);
        if max != 0 && min > max {
            let (key, other) = if settings.min_tx_rate.is_some() {
                ("min_tx_rate", "max_tx_rate")
            } else {
                ("max_tx_rate", "min_tx_rate")
            };
            let problem = format!("the minimum of {min} Mbit/s is above the maximum of {max} Mbit/s");
            return Err(CniError::invalid_config(key, problem)
                .with_details(format!("if {other} is not given, the VF keeps the one that it has")));
        }
        settings.min_tx_rate = Some(min);
        settings.max_tx_rate = Some(max);
    }
    Ok(settings)
}

/// Adds the steps of an interface: the MAC where the driver can still be bound again, then the move.
fn plan_interface(
    config: &SriovConfig,
    name: &str,
    link: &InterfaceFacts,
    pod: &PodNamespace<'_>,
    steps: &mut Vec<CniStep>,
) {
    let device = config.device;
    let new_mac = config.mac.filter(|mac| link.mac() != Some(*mac));
    if let Some(mac) = new_mac {
        steps.push(CniStep::SetInterfaceMac { device, mac });
    }
    steps.push(CniStep::MoveToPod {
        device,
        namespace: pod.namespace.clone(),
        name: name.to_owned(),
        drop_alt_names: find_clashing_alt_names(link, name, pod),
    });
    steps.push(CniStep::SetUpInPod {
        namespace: pod.namespace.clone(),
        name: name.to_owned(),
        // A driver that is bound again for the MAC forgets the MTU.
        mtu: config.mtu.or(new_mac.map(|_| link.mtu)),
        mac: config.mac,
    });
}

/// Returns the MAC of the result: the requested one, else that of the interface, else, for a program in the pod, the
/// administrative one.
fn reported_mac(
    config: &SriovConfig,
    link: Option<&InterfaceFacts>,
    current: &VfSettings,
) -> Option<MacAddr> {
    let present = match link {
        Some(link) => link.mac(),
        None => current.mac.filter(|mac| *mac != MacAddr::ZERO),
    };
    config.mac.or(present)
}

//! ADD of the plugin `ib-sriov`.

use crate::cni::attachment::{
    AddContext, AddPlan, EXCLUSIVE_MODE_REMEDY, PodNamespace, find_clashing_alt_names, open_pod,
    refuse_holders, require_device, require_interface, require_rdma, require_settings,
};
use crate::cni::config::InfinibandConfig;
use crate::cni::facts::{AttachmentFacts, DeviceFacts, InterfaceFacts, ParentPf};
use crate::cni::journal::{DeviceChanges, InfinibandChanges};
use crate::cni::protocol::CniError;
use crate::cni::protocol::result::ResultInterface;
use crate::cni::step::{CniStep, OriginalInterface};
use crate::prelude::*;

use super::{NO_GUID, UNSET_GUID, VFIO};

/// Plans an ADD.
pub fn plan_add(
    config: &InfinibandConfig,
    context: AddContext<'_>,
    facts: &AttachmentFacts,
) -> Result<AddPlan, CniError> {
    let pod = open_pod(facts)?;
    pod.check_name(&context.key.interface)?;
    let device = require_device(facts)?;
    check_driver(config, device)?;
    if config.rdma_isolation && !facts.has_exclusive_rdma {
        return Err(CniError::invalid_config("rdmaIsolation", "the RDMA subsystem is in shared mode")
            .with_details(EXCLUSIVE_MODE_REMEDY));
    }
    refuse_holders(facts, &context.key)?;
    let mut steps = Vec::new();
    let changes = match &device.pf {
        Some(pf) => plan_vf(config, &context, pf, &pod, device, &mut steps)?,
        // A PF belongs to the program in the pod as it is.
        None => InfinibandChanges::default(),
    };
    let has_interface = changes.interface.is_some();
    let interface = ResultInterface {
        name: context.key.interface.clone(),
        sandbox: Some(pod.namespace.path.clone()),
        ..ResultInterface::default()
    };
    let journal = context.journal(&pod, DeviceChanges::Infiniband(changes));
    Ok(AddPlan::new(journal, steps, vec![interface], has_interface))
}

/// Checks that the driver of the device is one that the plugin supports for it.
fn check_driver(config: &InfinibandConfig, device: &DeviceFacts) -> Result<(), CniError> {
    let driver = device.driver.as_deref().unwrap_or("none");
    if driver == VFIO {
        return Ok(());
    }
    if config.vfio {
        let problem = format!("the driver of device {} is {driver}, not {VFIO}", device.address);
        return Err(CniError::invalid_config("vfioPciMode", problem)
            .with_details(format!("bind the device to {VFIO}, or remove vfioPciMode")));
    }
    if device.pf.is_none() {
        let problem =
            format!("device {} is not a VF of this machine, and its driver is {driver}", device.address);
        return Err(CniError::invalid_config("deviceID", problem)
            .with_details(format!("use a VF, or bind the PF to {VFIO}")));
    }
    if device.is_for_userspace() {
        let problem = format!("device {} has driver {driver}", device.address);
        return Err(CniError::invalid_config("deviceID", problem)
            .with_details(format!("bind it to the driver of the kernel, or to {VFIO}")));
    }
    Ok(())
}

/// Adds the steps of a VF, and returns what they change.
fn plan_vf(
    config: &InfinibandConfig,
    context: &AddContext<'_>,
    pf: &ParentPf,
    pod: &PodNamespace<'_>,
    facts: &DeviceFacts,
    steps: &mut Vec<CniStep>,
) -> Result<InfinibandChanges, CniError> {
    let device = facts.address;
    let is_vfio = facts.driver.as_deref() == Some(VFIO);
    let link = if is_vfio { None } else { Some(require_interface(facts)?) };
    if link.is_some_and(|link| !link.is_infiniband()) {
        return Err(CniError::invalid_config("deviceID", format!("device {device} is an Ethernet VF"))
            .with_details("use the plugin sriov"));
    }
    check_guid(config, link)?;
    let has_settings = config.guid.is_some() || config.link_state.is_some();
    let original = if has_settings { require_settings(pf)? } else { pf.settings.unwrap_or_default() };
    let rdma = if config.rdma_isolation && !is_vfio { Some(require_rdma(facts)?) } else { None };

    if let Some(state) = config.link_state.filter(|state| original.link_state != Some(*state)) {
        steps.push(CniStep::SetVfLinkState { vf: pf.vf, state });
    }
    let effective = link.and_then(InterfaceFacts::guid);
    if let Some(guid) = config.guid.filter(|guid| effective != Some(*guid)) {
        if original.node_guid != Some(guid) || original.port_guid != Some(guid) {
            steps.push(CniStep::SetVfGuid { vf: pf.vf, guid });
        }
        if link.is_some() {
            steps.push(CniStep::Rebind { device });
        }
    }
    if let Some(rdma) = rdma {
        // The interface is created again when the RDMA device moves, so that it is moved later.
        steps.push(CniStep::MoveRdmaToPod {
            device,
            rdma: rdma.to_owned(),
            namespace: pod.namespace.clone(),
        });
    }
    if let Some(link) = link {
        let name = &context.key.interface;
        steps.push(CniStep::MoveToPod {
            device,
            namespace: pod.namespace.clone(),
            name: name.clone(),
            drop_alt_names: find_clashing_alt_names(link, name, pod),
        });
        let namespace = pod.namespace.clone();
        steps.push(CniStep::SetUpInPod { namespace, name: name.clone(), mtu: None, mac: None });
    }
    let stored = effective.or(original.port_guid).filter(|guid| *guid != NO_GUID);
    Ok(InfinibandChanges {
        vf: Some(pf.vf),
        guid: config.guid,
        original_guid: config.guid.map(|_| stored.unwrap_or(UNSET_GUID)),
        original,
        link_state: config.link_state,
        interface: link.map(|link| OriginalInterface {
            name: link.name.clone(),
            alt_names: link.alt_names.clone(),
            mac: None,
            mtu: None,
        }),
        rdma: rdma.map(ToOwned::to_owned),
    })
}

/// Checks that the interface has a GUID or gets one.
fn check_guid(config: &InfinibandConfig, link: Option<&InterfaceFacts>) -> Result<(), CniError> {
    let remedy =
        "let ib-kubernetes or runtimeConfig.infinibandGUID give one, or assign GUIDs when VFs are created";
    if config.guid.is_some() {
        return Ok(());
    }
    if config.ib_kubernetes {
        return Err(CniError::invalid_config("ibKubernetesEnabled", "there is no GUID for the VF")
            .with_details(remedy));
    }
    let Some((link, guid)) = link.and_then(|link| Some((link, link.guid()?))) else { return Ok(()) };
    if matches!(guid, NO_GUID | UNSET_GUID) {
        let problem = format!("none is given, and interface {} has none: {guid}", link.name);
        return Err(CniError::invalid_config("infinibandGUID", problem).with_details(remedy));
    }
    Ok(())
}

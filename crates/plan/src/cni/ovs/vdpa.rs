//! vDPA device of a VF, which a program in the pod uses.

use serde_json::Value;
use vfleet_api::{MacAddr, VfRef};

use crate::cni::attachment::{PodNamespace, refuse_holders, require_device};
use crate::cni::config::OvsConfig;
use crate::cni::facts::{AttachmentFacts, DeviceFacts, FileFacts, SwitchFacts, VdpaDeviceFacts};
use crate::cni::journal::{AttachmentKey, VdpaChanges};
use crate::cni::protocol::result::ResultInterface;
use crate::cni::protocol::{CniError, ErrorCode};
use crate::cni::step::{CniStep, SwitchStep};
use crate::prelude::*;

/// Driver on the bus of vDPA devices that programs in pods use.
const VHOST: &str = "vhost_vdpa";

/// Plan for a vDPA device.
#[derive(Clone, Debug)]
pub(super) struct PlannedVdpa {
    /// Steps.
    pub(super) steps: Vec<CniStep>,
    /// Interface of the result.
    pub(super) interface: ResultInterface,
    /// Changes for the journal.
    pub(super) changes: VdpaChanges,
}

/// Returns whether the device-info file says that the device of the attachment is a vDPA one.
pub(super) fn is_requested(switch: &SwitchFacts) -> Result<bool, CniError> {
    let content = match &switch.device_info {
        None | Some(FileFacts::Missing { .. }) => return Ok(false),
        Some(FileFacts::Unreadable { path, reason }) => {
            return Err(CniError::new(ErrorCode::Io, format!("cannot read {path}: {reason}")));
        }
        Some(FileFacts::Present { path, content }) => {
            serde_json::from_str::<Value>(content).map_err(|error| {
                let problem = format!("{path} is not JSON: {error}");
                CniError::invalid_config("runtimeConfig.CNIDeviceInfoFile", problem)
            })?
        }
    };
    Ok(content["type"] == "vdpa" && content["vdpa"].is_object())
}

/// Plans the settings of the vDPA device.
pub(super) fn plan_vdpa(
    config: &OvsConfig,
    key: &AttachmentKey,
    pod: &PodNamespace<'_>,
    facts: &AttachmentFacts,
    switch: &SwitchFacts,
) -> Result<PlannedVdpa, CniError> {
    pod.check_name(&key.interface)?;
    let device = require_device(facts)?;
    let address = device.address;
    let vf = device.pf.as_ref().map(|pf| pf.vf).ok_or_else(|| {
        CniError::invalid_config("deviceID", format!("device {address} is not a VF of this machine"))
    })?;
    refuse_holders(facts, key)?;
    let original_mtu = find_original_mtu(config, device)?;
    let vdpa = require_vdpa(&vf, device, switch)?;

    let mut steps: Vec<CniStep> = Vec::new();
    if let Some(mac) = config.mac.filter(|mac| vdpa.mac != Some(*mac)) {
        steps.push(SwitchStep::SetVdpaMac { device: address, name: vdpa.name.clone(), mac }.into());
    }
    if let Some(mtu) = config.mtu.filter(|mtu| original_mtu != Some(*mtu)) {
        steps.push(SwitchStep::SetDeviceMtu { device: address, mtu }.into());
    }
    let interface = ResultInterface {
        name: key.interface.clone(),
        mac: config.mac.or(vdpa.mac).map(|mac: MacAddr| mac.to_string()),
        mtu: config.mtu.or(vdpa.mtu),
        sandbox: Some(pod.namespace.path.clone()),
        ..ResultInterface::default()
    };
    let changes = VdpaChanges {
        vf,
        name: vdpa.name.clone(),
        mac: config.mac,
        original_mac: vdpa.mac.filter(|_| config.mac.is_some()),
        original_mtu,
    };
    Ok(PlannedVdpa { steps, interface, changes })
}

/// Returns the vDPA device of the VF, which must be the only one.
fn require_vdpa<'a>(
    vf: &VfRef,
    facts: &DeviceFacts,
    switch: &'a SwitchFacts,
) -> Result<&'a VdpaDeviceFacts, CniError> {
    let address = facts.address;
    let failed = |problem: String| {
        CniError::new(ErrorCode::DeviceFailed, format!("device {address} ({vf}) {problem}"))
    };
    match switch.vdpa.as_slice() {
        [device] if device.driver.as_deref() == Some(VHOST) => Ok(device),
        [device] => {
            let driver = device.driver.as_deref().unwrap_or("none");
            Err(failed(format!("has the vDPA device {} with driver {driver}", device.name))
                .with_details("set vdpaType: vhost in the policy of the device"))
        }
        [] => Err(failed("has no vDPA device".to_owned())
            .with_details("the device-info file says that it has one: set vdpaType: vhost in the policy")),
        several => Err(failed(format!("has {} vDPA devices", several.len()))
            .with_details("only a device with one vDPA device can be attached")),
    }
}

/// Returns the MTU of the interface of the VF, if it is to be changed: the vDPA device takes it over.
fn find_original_mtu(config: &OvsConfig, device: &DeviceFacts) -> Result<Option<u32>, CniError> {
    if config.mtu.is_none() {
        return Ok(None);
    }
    match &device.link {
        Some(link) => Ok(Some(link.mtu)),
        None => {
            let problem = format!("device {} has no interface on the host", device.address);
            Err(CniError::invalid_config("mtu", problem).with_details("remove mtu from the network"))
        }
    }
}

//! ADD of the plugin `accelerated-bridge`.

use crate::cni::attachment::{AddContext, AddPlan, open_pod, require_device};
use crate::cni::config::{AcceleratedBridgeConfig, SriovConfig};
use crate::cni::facts::{
    AttachmentFacts, BridgeVlan, DeviceFacts, SwitchBridge, SwitchFacts, SwitchPort, UplinkVlans,
};
use crate::cni::journal::{AcceleratedBridgeChanges, DeviceChanges};
use crate::cni::protocol::{CniError, ErrorCode};
use crate::cni::representor;
use crate::cni::sriov::plan_vf;
use crate::cni::step::{CniStep, SwitchStep};
use crate::prelude::*;

use super::uplink::SharedUplink;
use super::{bridge, device_info};

/// The driver of devices that a program or a virtual machine in the pod uses.
const VFIO: &str = "vfio-pci";

/// Plans an ADD: the representor first, then its VF.
pub fn plan_add(
    config: &AcceleratedBridgeConfig,
    context: AddContext<'_>,
    facts: &AttachmentFacts,
) -> Result<AddPlan, CniError> {
    let pod = open_pod(facts)?;
    let no_switch = SwitchFacts::default();
    let switch = facts.switch.as_ref().unwrap_or(&no_switch);
    let device = require_device(facts)?;
    check_driver(device)?;
    let is_for_userspace = device.is_for_userspace();
    let mtu_of_vf = config.mtu.filter(|_| !is_for_userspace);
    let vf_config = SriovConfig::of_mac_and_mtu(config.device, config.mac, mtu_of_vf);
    let planned = plan_vf(&vf_config, &context.key, &pod, facts)?;
    let vf = planned.changes.vf;
    let representor = representor::require_representor(vf, device, switch)?;
    representor::check_mtu(config.mtu, representor)?;
    let bridge = bridge::choose(&config.bridge, facts, switch)?;
    check_master(representor, bridge)?;
    let vlans = port_vlans(config);
    let (uplink, add_vlans) = plan_uplink(config, bridge, switch)?;

    let mut notes = Vec::new();
    if vlans.is_some() && !bridge.filters_vlans {
        notes.push(format!("bridge {} does not filter VLANs: vlan and trunk have no effect", bridge.name));
    }
    let configure = representor::configure(vf, representor, config.mtu, true);
    let attach = SwitchStep::AttachBridgePort {
        representor: representor::refer(vf, representor),
        bridge: bridge.name.clone(),
        vlans: vlans.clone(),
    };
    let switch_steps = configure.into_iter().chain([attach]).chain(add_vlans).map(CniStep::from);
    let steps = switch_steps.chain(planned.steps).collect();
    let mut interface = planned.interface;
    if is_for_userspace {
        interface.mtu = Some(config.mtu.unwrap_or(representor.mtu));
    }
    let noted = device_info::plan_note(switch.device_info.as_ref(), &representor.name).unwrap_or_else(|note| {
        notes.push(note);
        None
    });
    let changes = AcceleratedBridgeChanges {
        bridge: bridge.name.clone(),
        vlans,
        uplink,
        vf: planned.changes,
        representor: representor::record(representor, config.mtu),
    };
    let has_interface = changes.vf.interface.is_some();
    let journal = context.journal(&pod, DeviceChanges::AcceleratedBridge(changes));
    Ok(AddPlan {
        last: noted.map(CniStep::from).into_iter().collect(),
        notes,
        ..AddPlan::new(journal, steps, vec![interface], has_interface)
    })
}

/// Checks that the driver is one of the kernel, or the only one for userspace that the plugin supports.
fn check_driver(device: &DeviceFacts) -> Result<(), CniError> {
    match device.driver.as_deref() {
        Some(driver) if device.is_for_userspace() && driver != VFIO => {
            let problem = format!("device {} has driver {driver}", device.address);
            Err(CniError::invalid_config("deviceID", problem)
                .with_details(format!("bind it to the driver of the kernel, or to {VFIO}")))
        }
        _ => Ok(()),
    }
}

/// Checks that the representor is free. As a port of the same bridge it is what another plugin left behind.
fn check_master(representor: &SwitchPort, bridge: &SwitchBridge) -> Result<(), CniError> {
    let Some(master) = representor.master.as_ref().filter(|master| master.name != bridge.name) else {
        return Ok(());
    };
    let name = &representor.name;
    let message =
        format!("representor {name} is a port of {} already, not of bridge {}", master.name, bridge.name);
    let remedy = match master.kind.as_str() {
        "openvswitch" => format!("`ovs-vsctl del-port {name}` removes it"),
        _ => format!("`ip link set {name} nomaster` removes it"),
    };
    Err(CniError::new(ErrorCode::DeviceFailed, message).with_details(remedy))
}

/// Returns the VLANs of the port; `None` for those that the bridge gives to a new port.
fn port_vlans(config: &AcceleratedBridgeConfig) -> Option<Vec<BridgeVlan>> {
    if config.vlan == 0 && config.trunk.is_empty() {
        return None;
    }
    let mut vlans: BTreeMap<u16, BridgeVlan> =
        config.trunk.iter().map(|id| (*id, BridgeVlan::tagged(*id))).collect();
    if config.vlan > 0 {
        vlans.insert(config.vlan, BridgeVlan::native(config.vlan));
    }
    Some(vlans.into_values().collect())
}

/// Returns the VLANs that the attachment needs on the uplink, and the step that adds them.
fn plan_uplink(
    config: &AcceleratedBridgeConfig,
    bridge: &SwitchBridge,
    switch: &SwitchFacts,
) -> Result<(Option<UplinkVlans>, Option<SwitchStep>), CniError> {
    let vlan = Some(config.vlan).filter(|vlan| *vlan > 0);
    let needed: BTreeSet<u16> = config.trunk.iter().copied().chain(vlan).collect();
    if !config.sets_uplink_vlans || needed.is_empty() {
        return Ok((None, None));
    }
    let invalid = |problem: String| {
        CniError::invalid_config("setUplinkVlan", problem)
            .with_details("use the bridge of the uplink, or remove setUplinkVlan")
    };
    let Some(found) = &switch.uplink else {
        return Err(invalid("the PF has no interface".to_owned()));
    };
    if bridge::bridge_of(found, switch).is_none_or(|other| other.name != bridge.name) {
        let problem = format!("the uplink {} is no port of bridge {}", found.port().name, bridge.name);
        return Err(invalid(problem));
    }
    let members = found.bond.as_ref().map(|bond| bond.members.as_slice()).unwrap_or_default();
    let (vlans, step) = SharedUplink::new(found.port(), members, &switch.peers).plan_needed(needed);
    Ok((Some(vlans), step))
}

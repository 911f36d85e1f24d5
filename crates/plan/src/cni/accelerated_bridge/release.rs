//! Release of the plugin `accelerated-bridge`.

use crate::cni::attachment::ReleasePlan;
use crate::cni::facts::{AttachmentFacts, DeviceFacts, SwitchFacts, SwitchPort, UplinkFacts, UplinkVlans};
use crate::cni::journal::{AcceleratedBridgeChanges, Journal};
use crate::cni::step::{CniStep, SwitchStep};
use crate::cni::{representor, sriov};

use super::uplink::SharedUplink;

/// Plans the removal of VLANs from the uplink. It does not depend on the device, which may be gone.
pub(in crate::cni) fn plan_uplink_release(
    changes: &AcceleratedBridgeChanges,
    switch: &SwitchFacts,
) -> Option<SwitchStep> {
    let vlans = changes.uplink.as_ref()?;
    let port = find_uplink(vlans, switch)?;
    SharedUplink::new(port, members(switch), &switch.peers).plan_unneeded(vlans)
}

/// Returns the uplink to which the VLANs were added. It may have got another name since; the Go plugin records only the name
/// of the PF.
pub(super) fn find_uplink<'a>(vlans: &UplinkVlans, switch: &'a SwitchFacts) -> Option<&'a SwitchPort> {
    let current = switch.uplink.as_ref().map(UplinkFacts::port);
    if vlans.index == 0 {
        let is_same = |port: &&SwitchPort| port.name == vlans.name || members(switch).contains(&vlans.name);
        return current.filter(is_same);
    }
    switch.interfaces.iter().chain(current).find(|port| port.index == vlans.index)
}

/// Returns the members of the bond that the PF belongs to.
fn members(switch: &SwitchFacts) -> &[String] {
    let bond = switch.uplink.as_ref().and_then(|uplink| uplink.bond.as_ref());
    bond.map(|bond| bond.members.as_slice()).unwrap_or_default()
}

/// Plans the return of the VF: its representor leaves the bridge first.
pub(in crate::cni) fn plan_device_release(
    changes: &AcceleratedBridgeChanges,
    journal: &Journal,
    device: &DeviceFacts,
    facts: &AttachmentFacts,
    switch: &SwitchFacts,
) -> ReleasePlan {
    let vf = changes.vf.vf;
    let plan = sriov::plan_release(&changes.vf, journal, device, facts);
    let plan = representor::restore_before(plan, vf, &changes.representor, device, switch);
    let is_same_vf = device.pf.as_ref().is_some_and(|pf| pf.vf == vf);
    let is_port = |representor: &&SwitchPort| {
        representor.master.as_ref().is_some_and(|master| master.name == changes.bridge)
    };
    let Some(representor) = switch.representor.as_ref().filter(is_port).filter(|_| is_same_vf) else {
        return plan;
    };
    let detach = SwitchStep::DetachBridgePort {
        representor: representor::refer(vf, representor),
        bridge: changes.bridge.clone(),
    };
    ReleasePlan { steps: [CniStep::from(detach)].into_iter().chain(plan.steps).collect(), ..plan }
}

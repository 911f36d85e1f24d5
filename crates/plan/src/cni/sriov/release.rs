//! Release of the plugin `sriov`.

use vfleet_api::MacAddr;

use crate::cni::attachment::{InterfaceOrigin, ReleasePlan, ReleasedVf, find_vf, return_interface};
use crate::cni::facts::{AttachmentFacts, DeviceFacts, LinkState, ParentPf, VfSettings, VfVlan};
use crate::cni::journal::{Journal, VfChanges};
use crate::cni::step::CniStep;
use crate::prelude::*;

/// Plans the release of a VF: its settings first, since some drivers refuse changes of the interface later.
pub(in crate::cni) fn plan_release(
    changes: &VfChanges,
    journal: &Journal,
    device: &DeviceFacts,
    facts: &AttachmentFacts,
) -> ReleasePlan {
    let mut plan = ReleasePlan::default();
    let vf = find_vf(changes.vf, device, &mut plan);
    if let ReleasedVf::Same(pf) = vf {
        restore_settings(changes, pf, &mut plan.steps);
    }
    let Some(original) = &changes.interface else { return plan };
    // An interruption while ADD bound the driver again for the MAC leaves the VF without one.
    let needs_driver =
        matches!(vf, ReleasedVf::Same(_)) && device.driver.is_none() && changes.changed.mac.is_some();
    if needs_driver {
        plan.steps.push(CniStep::Rebind { device: device.address });
    }
    let origin = InterfaceOrigin::new(vf, needs_driver);
    return_interface(original, journal, device, facts, origin, &mut plan);
    plan
}

/// Restores the settings that ADD changed, and the administrative MAC, which other programs may have changed while the pod
/// ran.
fn restore_settings(changes: &VfChanges, pf: &ParentPf, steps: &mut Vec<CniStep>) {
    let current = pf.settings.unwrap_or_default();
    let settings = original_settings(changes).differing_from(&current);
    // Some drivers refuse the MAC as long as spoof checking is not restored, and the kernel, which applies the settings of
    // a request in an order of its own, sets the MAC first.
    let is_split = settings.mac.is_some() && settings.spoof_check.is_some();
    let (first, second) = if is_split {
        let before =
            VfSettings { vlan: settings.vlan, spoof_check: settings.spoof_check, ..VfSettings::default() };
        (before, VfSettings { vlan: None, spoof_check: None, ..settings })
    } else {
        (settings, VfSettings::default())
    };
    let requests = [first, second].into_iter().filter(|settings| !settings.is_empty());
    steps.extend(requests.map(|settings| CniStep::SetVf { vf: pf.vf, settings }));
}

/// Returns the settings to restore. One that the driver did not report gets the value of a new VF.
fn original_settings(changes: &VfChanges) -> VfSettings {
    let VfChanges { changed, original, .. } = changes;
    let has_rate = changed.min_tx_rate.is_some() || changed.max_tx_rate.is_some();
    VfSettings {
        mac: original.mac.or(changed.mac.map(|_| MacAddr::ZERO)),
        vlan: changed.vlan.map(|_| original.vlan.unwrap_or(VfVlan::default())),
        spoof_check: changed.spoof_check.map(|_| original.spoof_check.unwrap_or(true)),
        trust: changed.trust.map(|_| original.trust.unwrap_or(false)),
        min_tx_rate: has_rate.then(|| original.min_tx_rate.unwrap_or(0)),
        max_tx_rate: has_rate.then(|| original.max_tx_rate.unwrap_or(0)),
        link_state: changed.link_state.map(|_| original.link_state.unwrap_or(LinkState::Auto)),
        node_guid: None,
        port_guid: None,
    }
}

//! One VF of a wanted PF: its address, driver and MTU. A VF that no group asks for is never touched.

use vfleet_api::{MacAddr, VfRef};

use super::planned;
use super::wanted::{WantedPf, WantedVfs};
use crate::facts::{LinkKind, PfFacts, VfFacts};
use crate::mac::vf_mac;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step, VfDriver, is_userspace_driver};

/// The steps for a VF that is about to be made.
pub(super) fn plan_new_vf(wanted: &WantedPf, pf: &PfFacts, index: u16) -> Vec<PlannedStep> {
    let Some(group) = wanted.vf(index) else { return Vec::new() };
    let vf = VfRef { pf: wanted.address, index };
    let mut steps = Vec::new();
    if let Some(mac) = own_mac(pf, index) {
        steps.push(planned(Step::SetVfMac { vf, mac }, Disruption::Vf, "an address that stays"));
    }
    steps.extend(bind(vf, group, Disruption::Vf, format!("wanted by policy {}", group.policy)));
    steps
}

/// The steps for a VF whose making was cut off: as for a new one, except what is done already. A VF that is bound
/// as wanted may be in use by now.
pub(super) fn plan_unfinished_vf(wanted: &WantedPf, pf: &PfFacts, found: &VfFacts) -> Vec<PlannedStep> {
    let Some(group) = wanted.vf(found.index) else { return Vec::new() };
    let vf = VfRef { pf: wanted.address, index: found.index };
    let mac = own_mac(pf, found.index);
    if found.driver.as_ref().is_some_and(|driver| is_wanted(driver, &group.driver)) {
        let is_done = found
            .link
            .as_ref()
            .is_none_or(|link| mac.is_none() || (found.admin_mac == mac && link.mac == mac));
        if is_done {
            return change_mtu(vf, group, found).into_iter().collect();
        }
    }
    let mut steps = Vec::new();
    if let Some(mac) = mac.filter(|mac| found.admin_mac != Some(*mac)) {
        steps.push(planned(Step::SetVfMac { vf, mac }, Disruption::Vf, "an address that stays"));
    }
    let disruption = if found.driver.is_some() { Disruption::Drain } else { Disruption::Vf };
    steps.extend(bind(vf, group, disruption, "its making was cut off".to_owned()));
    steps
}

/// The steps for a VF that is there.
pub(super) fn plan_existing_vf(wanted: &WantedPf, pf: &PfFacts, found: &VfFacts) -> Vec<PlannedStep> {
    let Some(group) = wanted.vf(found.index) else { return Vec::new() };
    let vf = VfRef { pf: wanted.address, index: found.index };
    let stays_bound = found.driver.as_ref().is_some_and(|driver| is_wanted(driver, &group.driver));
    let mut steps = Vec::new();
    if let Some(mac) = missing_mac(pf, found, stays_bound) {
        steps.push(planned(Step::SetVfMac { vf, mac }, Disruption::Vf, "the PF keeps no address for it"));
    }
    match &found.driver {
        Some(_) if stays_bound => steps.extend(change_mtu(vf, group, found)),
        Some(driver) => {
            steps.extend(bind(vf, group, Disruption::Drain, format!("it is bound to {driver}")));
        }
        None => steps.extend(bind(vf, group, Disruption::Vf, "it is bound to no driver".to_owned())),
    }
    steps
}

/// The address for a VF for which the PF keeps none: the one that it has now, so that nobody who uses it notices. A
/// VF that somebody holds elsewhere has one that is not known here, and is left alone.
fn missing_mac(pf: &PfFacts, found: &VfFacts, stays_bound: bool) -> Option<MacAddr> {
    if found.admin_mac != Some(MacAddr::ZERO) {
        return None;
    }
    match &found.link {
        Some(link) => link.mac.filter(|mac| mac.is_usable()).or_else(|| own_mac(pf, found.index)),
        None if stays_bound => None,
        None => own_mac(pf, found.index),
    }
}

fn own_mac(pf: &PfFacts, index: u16) -> Option<MacAddr> {
    let link = pf.link.as_ref().filter(|link| link.kind == LinkKind::Ethernet)?;
    Some(vf_mac(link.mac?, pf.address, index))
}

fn is_wanted(driver: &str, wanted: &VfDriver) -> bool {
    match wanted {
        VfDriver::Kernel => !is_userspace_driver(driver),
        VfDriver::Named(name) => driver == name,
    }
}

fn bind(vf: VfRef, group: &WantedVfs, disruption: Disruption, why: String) -> Vec<PlannedStep> {
    let mut steps = vec![planned(Step::BindVf { vf, driver: group.driver.clone() }, disruption, why)];
    if let (VfDriver::Kernel, Some(mtu)) = (&group.driver, group.mtu) {
        steps.push(planned(
            Step::SetVfMtu { vf, mtu },
            Disruption::Vf,
            format!("wanted by policy {}", group.policy),
        ));
    }
    steps
}

/// Without an interface there is no MTU to change: a pod holds it, or a program does.
fn change_mtu(vf: VfRef, group: &WantedVfs, found: &VfFacts) -> Option<PlannedStep> {
    let (mtu, link) = (group.mtu?, found.link.as_ref()?);
    if link.mtu == mtu {
        return None;
    }
    Some(planned(Step::SetVfMtu { vf, mtu }, Disruption::Drain, format!("it has {}", link.mtu)))
}

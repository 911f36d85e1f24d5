//! Steps for Linux bridges.

use vfleet_api::PciAddress;

use super::desired::LinuxSettings;
use super::{BridgeFault, BridgePf, GoStore, Removal, check_attachable};
use crate::bridge_port;
use crate::facts::{BridgeKind, LinkFacts, LinuxBridgeFacts, LinuxPortFacts};
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, LinuxBridgeState, PlannedStep, Step};

fn is_ours(bridge: &LinuxBridgeFacts, pf: PciAddress) -> bool {
    bridge.alias.as_deref() == Some(LinuxBridgeFacts::alias_of(pf).as_str())
}

/// Returns whether vfleet created the bridge for this PF.
pub(super) fn is_owned(bridge: &LinuxBridgeFacts, pf: &BridgePf<'_>) -> bool {
    let is_recorded = || {
        let recorded = pf.recorded().filter(|recorded| recorded.kind == BridgeKind::Linux);
        recorded.is_some_and(|recorded| recorded.name == bridge.name)
    };
    is_ours(bridge, pf.address) || is_begun(bridge) && is_recorded()
}

/// Returns whether an interrupted step created the bridge.
fn is_begun(bridge: &LinuxBridgeFacts) -> bool {
    bridge.alias.is_none() && bridge.group == LinuxBridgeFacts::NEW_GROUP
}

/// Adds the steps that remove our Linux bridges of a PF other than `desired`.
pub(super) fn plan_removal(desired: Option<&str>, pf: &BridgePf<'_>, removal: &mut Removal) {
    let is_other = |bridge: &&LinuxBridgeFacts| desired != Some(bridge.name.as_str());
    let ours = pf.facts.bridges.linux.iter().filter(is_other).filter(|bridge| is_owned(bridge, pf));
    for bridge in ours {
        remove(bridge, pf, removal);
    }
}

fn remove(bridge: &LinuxBridgeFacts, pf: &BridgePf<'_>, removal: &mut Removal) {
    let name = &bridge.name;
    let is_uplink = |port: &LinuxPortFacts| pf.link().is_some_and(|link| link.name == port.name);
    let (uplinks, others): (Vec<_>, Vec<_>) = bridge.ports.iter().partition(|port| is_uplink(port));
    if let Some(in_use) = pf.observed.and_then(|observed| pf.protection.pf(observed)) {
        removal.is_left = true;
        removal.faults.push(BridgeFault::BridgeUsedByNode { bridge: name.clone(), in_use });
        return;
    }
    let why = "no policy requests the bridge anymore";
    let disruption = if others.is_empty() { Disruption::Pf } else { Disruption::Drain };
    if !uplinks.is_empty() {
        let step = Step::DetachUplink { pf: pf.address, bridge: name.clone() };
        removal.steps.push(planned(step, disruption, why));
    }
    let Some(port) = others.first() else {
        let alias = LinuxBridgeFacts::alias_of(pf.address);
        let step = Step::RemoveLinuxBridge { pf: pf.address, name: name.clone(), alias };
        removal.steps.push(planned(step, disruption, why));
        return;
    };
    removal.is_left = true;
    if uplinks.is_empty() {
        removal.faults.push(BridgeFault::StillUsed {
            bridge: name.clone(),
            kind: BridgeKind::Linux,
            port: port.name.clone(),
        });
    }
}

/// Returns the steps that create and configure a Linux bridge.
pub(super) fn plan(
    name: &str,
    settings: &LinuxSettings,
    pf: &BridgePf<'_>,
    go_store: &GoStore,
) -> Result<Vec<PlannedStep>, BridgeFault> {
    let existing = pf.facts.bridges.linux_bridge(name);
    let usable = existing.filter(|bridge| is_ours(bridge, pf.address) || is_begun(bridge));
    if existing.is_some() && usable.is_none() {
        return Err(BridgeFault::NameTaken { bridge: name.to_owned(), kind: BridgeKind::Linux });
    }
    super::ovs::check_name(name, pf, go_store)?;
    let ours = usable.filter(|bridge| is_ours(bridge, pf.address));
    let uplink = find_uplink(name, pf);
    let link = match uplink {
        Some((link, _)) => link,
        None => check_attachable(name, BridgeKind::Linux, pf, go_store)?,
    };
    let mut steps = Vec::new();
    if ours.is_none() {
        let step = Step::CreateLinuxBridge {
            pf: pf.address,
            name: name.to_owned(),
            alias: LinuxBridgeFacts::alias_of(pf.address),
        };
        steps.push(planned(step, Disruption::Pf, "a policy requests the bridge"));
    }
    let state = LinuxBridgeState {
        vlan_filtering: settings.vlan_filtering,
        vlan_protocol: settings.vlan_protocol,
        mtu: pf.mtu.map_or(link.mtu, |mtu| mtu.max(link.mtu)),
    };
    if !ours.is_some_and(|bridge| is_configured(bridge, state)) {
        let step = Step::SetLinuxBridge { pf: pf.address, name: name.to_owned(), settings: state };
        steps.push(planned(step, Disruption::Pf, "the settings differ"));
    }
    if uplink.is_none() {
        let step = Step::AttachUplink { pf: pf.address, bridge: name.to_owned() };
        steps.push(planned(step, Disruption::Pf, "the PF is the uplink of the bridge"));
    }
    let changed = changed_port_settings(settings, uplink.map(|(_, port)| port), link, pf);
    if !changed.is_empty() {
        let step = Step::SetBridgePort { pf: pf.address, bridge: name.to_owned(), settings: changed };
        steps.push(planned(step, Disruption::Pf, "the settings of the uplink differ"));
    }
    Ok(steps)
}

/// Returns the interface of a PF that is attached to our bridge, and its port.
pub(super) fn find_uplink<'a>(name: &str, pf: &BridgePf<'a>) -> Option<(&'a LinkFacts, &'a LinuxPortFacts)> {
    let link = pf.link()?;
    let bridge = pf.facts.bridges.linux_bridge(name).filter(|bridge| is_ours(bridge, pf.address))?;
    Some((link, bridge.ports.iter().find(|port| port.name == link.name)?))
}

fn is_configured(bridge: &LinuxBridgeFacts, state: LinuxBridgeState) -> bool {
    bridge.vlan_filtering == state.vlan_filtering
        && bridge.vlan_protocol == Some(state.vlan_protocol)
        && bridge.mtu == state.mtu
        && bridge.admin_up
        && !bridge.accepts_ra
        && bridge.group == 0
}

/// Returns the settings of the uplink to change: desired ones that differ, and ones that a policy gave up, which get the
/// kernel's default. A new port has the defaults, and a setting that the kernel does not report does not exist.
fn changed_port_settings(
    settings: &LinuxSettings,
    port: Option<&LinuxPortFacts>,
    link: &LinkFacts,
    pf: &BridgePf<'_>,
) -> BTreeMap<String, String> {
    let given_up = given_up_settings(settings, pf)
        .filter(|name| port.is_some_and(|port| port.settings.contains_key(*name)))
        .filter(|name| !is_default_unknown(name, link))
        .filter_map(|name| Some((name.clone(), bridge_port::default_value(name, link.speed)?)));
    let desired = settings.port.iter().map(|(name, value)| (name.clone(), value.clone()));
    let differs = |(name, value): &(String, String)| {
        let observed = port.and_then(|port| port.settings.get(name));
        observed != Some(value) && !is_down_state(name, value, link)
    };
    desired.chain(given_up).filter(differs).collect()
}

/// Returns the settings of the uplink that a policy gave up, and that cannot get the kernel's default yet.
pub(super) fn postponed_settings(
    name: &str,
    settings: &LinuxSettings,
    pf: &BridgePf<'_>,
) -> BTreeSet<String> {
    let Some((link, _)) = find_uplink(name, pf) else { return BTreeSet::new() };
    given_up_settings(settings, pf).filter(|name| is_default_unknown(name, link)).cloned().collect()
}

fn given_up_settings<'a>(settings: &'a LinuxSettings, pf: &BridgePf<'a>) -> impl Iterator<Item = &'a String> {
    let recorded = pf.recorded().filter(|recorded| recorded.kind == BridgeKind::Linux);
    let recorded = recorded.into_iter().flat_map(|recorded| &recorded.port_settings);
    recorded.filter(move |name| !settings.port.contains_key(*name))
}

/// Returns whether the default of a setting is not known: the cost depends on the speed, which the card reports while
/// it has a carrier. A cost that is set does not follow the speed anymore.
fn is_default_unknown(name: &str, link: &LinkFacts) -> bool {
    name == "cost" && !link.has_carrier
}

/// Returns whether a port state cannot be set, since the kernel keeps ports without a carrier disabled.
fn is_down_state(name: &str, value: &str, link: &LinkFacts) -> bool {
    name == "state" && value != "disabled" && !link.has_carrier
}

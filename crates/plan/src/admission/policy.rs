//! Policies: what each says by itself. What it means on the nodes of the cluster is in `policy/fleet.rs`.

mod beside;
mod fleet;
mod on_card;

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::keys::{IGNORED_POLICY, SUPPORTED_NIC_IDS};
use vfleet_api::node_policy::NicSelector;

use super::texts::NOT_CHECKED;
use super::{Findings, Installation, NameFault, PolicyFacts, Request, judge, resource_name};
use crate::prelude::*;
use crate::{NamedPolicy, NicIds, PolicyFault, policy};

/// What is wrong with a policy. `facts` is `None` while the cluster is not completely known.
pub fn check_policy(
    request: &Request<'_, SriovNetworkNodePolicySpec>,
    home: &Installation<'_>,
    facts: Option<&PolicyFacts<'_>>,
) -> Findings {
    judge(request, PartialEq::eq, |asked| {
        let Some(spec) = asked.new else { return Findings::default() };
        let is_at_home = asked.namespace == home.namespace;
        let mut findings = Findings::default();
        if !is_at_home {
            let message =
                format!("policies count in namespace {} only: this one is not used", home.namespace);
            findings.warning("P02", "OtherNamespace", "metadata.namespace", message);
        } else if asked.name == IGNORED_POLICY {
            let message = "a policy named default is not followed: give it another name";
            findings.warning("P01", "IgnoredName", "metadata.name", message);
            return findings;
        }
        check_spec(&mut findings, spec, home, facts);
        if asked.name == IGNORED_POLICY {
            return findings;
        }
        let Some(facts) = facts else {
            findings.warning("G02", "NotChecked", "", NOT_CHECKED);
            return findings;
        };
        // They are about the nodes that the new version selects. If the old one does not select all of those, it says
        // nothing of what was wrong there before.
        if request.new.is_some_and(|new| selects_all_of(spec, new)) {
            fleet::check(&mut findings, NamedPolicy { name: asked.name, spec }, facts);
        }
        findings
    })
}

/// Whether a policy selects all nodes that another one selects.
fn selects_all_of(spec: &SriovNetworkNodePolicySpec, other: &SriovNetworkNodePolicySpec) -> bool {
    spec.node_selector.iter().all(|(key, value)| other.node_selector.get(key) == Some(value))
}

/// What is wrong with it wherever it is used.
fn check_spec(
    findings: &mut Findings,
    spec: &SriovNetworkNodePolicySpec,
    home: &Installation<'_>,
    facts: Option<&PolicyFacts<'_>>,
) {
    check_name(findings, spec);
    check_selector(findings, spec);
    let listed = facts.and_then(|facts| facts.nic_ids).filter(|ids| !home.dev_mode && !ids.is_empty());
    if let Some(listed) = listed {
        check_kind_of_card(findings, &spec.nic_selector, listed);
    }
    if spec.num_vfs == 0 {
        let message = "numVfs is 0: say how many VFs each PF gets, or delete the policy";
        findings.error("P21", "NoVfs", "spec.numVfs", message);
    }
    // Whether the gate is on is not known without facts, and then it is no fault.
    let manage_software_bridges = facts.is_none_or(|facts| facts.manage_software_bridges);
    for (field, fault) in policy::faults(spec, manage_software_bridges) {
        let message = match &fault {
            PolicyFault::Invalid { invalid, .. } => invalid.to_string(),
            fault => fault.to_string(),
        };
        findings.error(rule_of(&fault), fault.reason(), format!("spec.{field}"), message);
    }
    check_mtu_request(findings, spec);
    if spec.override_host_protection == Some(true) && !policy::names_pfs(&spec.nic_selector) {
        let message = "the protection of what nodes themselves use is overridden only for PFs that are named: name them in pfNames or rootDevices";
        findings.warning("P34", "OverrideNotUsed", "spec.overrideHostProtection", message);
    }
}

fn check_name(findings: &mut Findings, spec: &SriovNetworkNodePolicySpec) {
    let Some(fault) = resource_name(&spec.resource_name) else { return };
    let rule = match fault {
        NameFault::Empty => "P03",
        NameFault::TooLong { .. } => "P04",
        NameFault::Signs { .. } => "P05",
    };
    findings.error(rule, "InvalidResourceName", "spec.resourceName", fault.to_string());
}

fn check_selector(findings: &mut Findings, spec: &SriovNetworkNodePolicySpec) {
    let nic = &spec.nic_selector;
    if policy::is_empty(nic) {
        let message = "nicSelector is empty, and so selects no PF: name a vendor, deviceID, rootDevices, pfNames or netFilter";
        findings.error("P06", "EmptySelector", "spec.nicSelector", message);
    }
    if given(nic.net_filter.as_ref()).is_some() {
        check_virtual(findings, spec);
    }
}

/// A policy for VFs that a virtual platform gave to a machine without their PF.
fn check_virtual(findings: &mut Findings, spec: &SriovNetworkNodePolicySpec) {
    let nic = &spec.nic_selector;
    let others = [
        ("vendor", given(nic.vendor.as_ref()).is_some()),
        ("deviceID", given(nic.device_id.as_ref()).is_some()),
        ("rootDevices", nic.root_devices.as_ref().is_some_and(|list| !list.is_empty())),
        ("pfNames", nic.pf_names.as_ref().is_some_and(|list| !list.is_empty())),
    ];
    let others: Vec<_> = others.into_iter().filter_map(|(name, given)| given.then_some(name)).collect();
    if !others.is_empty() {
        let message = format!("netFilter selects by network alone: remove {}", others.join(", "));
        findings.error("P07", "InvalidSelector", "spec.nicSelector.netFilter", message);
    }
    if spec.e_switch_mode.is_some() {
        let message =
            "a virtual platform gives VFs without their PF, which has no mode there: remove eSwitchMode";
        findings.error("P08", "EswitchModeNotPossible", "spec.eSwitchMode", message);
    }
    if policy::wants_bridge(spec) {
        let message =
            "a virtual platform gives VFs without their PF, which could be no uplink: remove bridge";
        findings.error("P09", "InvalidBridge", "spec.bridge", message);
    }
    if spec.link_type.is_some_and(|kind| kind.upper() != "ETH") {
        let message = "netFilter is for Ethernet: remove linkType, or set it to eth";
        findings.error("P10", "LinkTypeNotPossible", "spec.linkType", message);
    }
}

/// Whether such cards are reported at all. What cannot be read as an id is another fault.
fn check_kind_of_card(findings: &mut Findings, nic: &NicSelector, listed: &NicIds) {
    let (vendor, device) = (given(nic.vendor.as_ref()), given(nic.device_id.as_ref()));
    let are_ids = [vendor, device].into_iter().flatten().all(policy::is_pci_id);
    if !are_ids || listed.lists_pf(vendor, device) {
        return;
    }
    let (rule, field, message) = match (vendor, device) {
        (None, None) => return,
        (Some(vendor), None) => (
            "P14",
            "spec.nicSelector.vendor",
            format!(
                "no card of vendor {vendor} is in the ConfigMap {SUPPORTED_NIC_IDS}, so none is reported: add it there, or correct vendor"
            ),
        ),
        (Some(vendor), Some(device)) => (
            "P15",
            "spec.nicSelector.deviceID",
            format!(
                "{vendor} {device} is not in the ConfigMap {SUPPORTED_NIC_IDS}: add it there, or correct it"
            ),
        ),
        (None, Some(device)) => (
            "P16",
            "spec.nicSelector.deviceID",
            format!("{device} is not in the ConfigMap {SUPPORTED_NIC_IDS}: add it there, or correct it"),
        ),
    };
    findings.error(rule, "UnknownCard", field, message);
}

/// The MTU of a policy goes before the one that its bridge asks for.
fn check_mtu_request(findings: &mut Findings, spec: &SriovNetworkNodePolicySpec) {
    let uplink = spec.bridge.as_ref().and_then(|bridge| bridge.ovs.as_ref()?.uplink.as_ref());
    let request = uplink.and_then(|uplink| uplink.interface.as_ref()?.mtu_request);
    if let (Some(request), Some(mtu @ 1..)) = (request, spec.mtu)
        && request != mtu
    {
        let message = format!("mtu {mtu} counts, and not mtuRequest {request}: remove one of them");
        let field = "spec.bridge.ovs.uplink.interface.mtuRequest";
        findings.warning("P31", "MtuRequestNotUsed", field, message);
    }
}

fn rule_of(fault: &PolicyFault) -> &'static str {
    match fault {
        PolicyFault::Invalid { field: "netFilter", .. } => "P11",
        PolicyFault::Invalid { field: "vendor", .. } => "P12",
        PolicyFault::Invalid { field: "deviceID", .. } => "P13",
        PolicyFault::Invalid { field: "rootDevices", .. } => "P17",
        PolicyFault::Invalid { .. } => "P18",
        PolicyFault::RangeBeyondCount { .. } => "P20",
        PolicyFault::TooManyVfs { .. } => "P22",
        PolicyFault::NegativeVfs { .. } => "P23",
        PolicyFault::RdmaWithoutKernelDriver => "P24",
        PolicyFault::RdmaWithVdpa => "P32",
        PolicyFault::SwitchdevNotEthernet => "P25",
        PolicyFault::VdpaNotPossible => "P26",
        PolicyFault::MtuNotPossible { .. } => "P33",
        PolicyFault::TwoBridges => "P27",
        PolicyFault::BridgeWithoutSwitchdev => "P28",
        PolicyFault::BridgeManagedOutside => "P29",
        PolicyFault::FeatureGateOff => "P30",
        // Never a fault of the policy alone.
        PolicyFault::HeldBack { .. } => "D13",
    }
}

fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

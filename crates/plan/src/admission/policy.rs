//! Admission rules of policies. Rules that need the nodes of the cluster are in `policy/fleet.rs`.

mod card;
mod conflicts;
mod fleet;

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::keys::{IGNORED_POLICY, SUPPORTED_NIC_IDS};
use vfleet_api::node_policy::NicSelector;

use super::messages::NOT_CHECKED;
use super::{Findings, Installation, NameFault, PolicyFacts, Request, check_resource_name, evaluate};
use crate::prelude::*;
use crate::{NamedPolicy, NicIds, PolicyFault, policy};

/// Returns the findings about a policy. `facts` is `None` until the cluster has been read.
pub fn check_policy(
    request: &Request<'_, SriovNetworkNodePolicySpec>,
    home: &Installation<'_>,
    facts: Option<&PolicyFacts<'_>>,
) -> Findings {
    evaluate(request, PartialEq::eq, |checked| {
        let Some(spec) = checked.new else { return Findings::default() };
        let is_own_namespace = checked.namespace == home.namespace;
        let mut findings = Findings::default();
        if !is_own_namespace {
            let message =
                format!("policies are used only in namespace {}: create the policy there", home.namespace);
            findings.warning("P02", "OtherNamespace", "metadata.namespace", message);
        } else if checked.name == IGNORED_POLICY {
            let message = "a policy named default is ignored: give it another name";
            findings.warning("P01", "IgnoredName", "metadata.name", message);
            return findings;
        }
        check_spec(&mut findings, spec, home, facts);
        if checked.name == IGNORED_POLICY {
            return findings;
        }
        let Some(facts) = facts else {
            findings.warning("G02", "NotChecked", "", NOT_CHECKED);
            return findings;
        };
        // The facts are about the nodes that the new version selects. If the stored version does not select all of
        // them, it tells nothing about earlier errors there.
        if request.new.is_some_and(|new| selects_all_of(spec, new)) {
            fleet::check(&mut findings, NamedPolicy { name: checked.name, spec }, facts);
        }
        findings
    })
}

/// Returns whether a policy selects all nodes that another one selects.
fn selects_all_of(spec: &SriovNetworkNodePolicySpec, other: &SriovNetworkNodePolicySpec) -> bool {
    spec.node_selector.iter().all(|(key, value)| other.node_selector.get(key) == Some(value))
}

/// Adds findings that do not depend on nodes.
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
        check_card_ids(findings, &spec.nic_selector, listed);
    }
    if spec.num_vfs == 0 {
        let message = "numVfs is 0: set the number of VFs of each PF, or delete the policy";
        findings.error("P21", "NoVfs", "spec.numVfs", message);
    }
    // Without facts the feature gate is not known and counts as on.
    let manage_software_bridges = facts.is_none_or(|facts| facts.manage_software_bridges);
    for (field, fault) in policy::find_faults(spec, manage_software_bridges) {
        let message = match &fault {
            PolicyFault::Invalid { invalid, .. } => invalid.to_string(),
            fault => fault.to_string(),
        };
        findings.error(rule_of(&fault), fault.reason(), format!("spec.{field}"), message);
    }
    check_mtu_request(findings, spec);
    if spec.override_host_protection == Some(true) && !policy::names_pfs(&spec.nic_selector) {
        let message = "overrideHostProtection has an effect only on PFs that are named: name them in pfNames or rootDevices";
        findings.warning("P34", "OverrideHasNoEffect", "spec.overrideHostProtection", message);
    }
}

fn check_name(findings: &mut Findings, spec: &SriovNetworkNodePolicySpec) {
    let Some(fault) = check_resource_name(&spec.resource_name) else { return };
    let rule = match fault {
        NameFault::Empty => "P03",
        NameFault::TooLong { .. } => "P04",
        NameFault::Characters { .. } => "P05",
    };
    findings.error(rule, "InvalidResourceName", "spec.resourceName", fault.to_string());
}

fn check_selector(findings: &mut Findings, spec: &SriovNetworkNodePolicySpec) {
    let nic = &spec.nic_selector;
    if policy::is_empty(nic) {
        let message =
            "nicSelector is empty and selects no PF: set vendor, deviceID, rootDevices, pfNames or netFilter";
        findings.error("P06", "EmptySelector", "spec.nicSelector", message);
    }
    if non_empty(nic.net_filter.as_ref()).is_some() {
        check_net_filter(findings, spec);
    }
}

/// Checks a policy for lone VFs, whose PF is not visible in the virtual machine.
fn check_net_filter(findings: &mut Findings, spec: &SriovNetworkNodePolicySpec) {
    let nic = &spec.nic_selector;
    let others = [
        ("vendor", non_empty(nic.vendor.as_ref()).is_some()),
        ("deviceID", non_empty(nic.device_id.as_ref()).is_some()),
        ("rootDevices", nic.root_devices.as_ref().is_some_and(|list| !list.is_empty())),
        ("pfNames", nic.pf_names.as_ref().is_some_and(|list| !list.is_empty())),
    ];
    let others: Vec<_> = others.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect();
    if !others.is_empty() {
        let message =
            format!("netFilter cannot be combined with other selectors: remove {}", others.join(", "));
        findings.error("P07", "InvalidSelector", "spec.nicSelector.netFilter", message);
    }
    if spec.e_switch_mode.is_some() {
        let message = "VFs of a virtual machine have no PF there whose mode could be set: remove eSwitchMode";
        findings.error("P08", "EswitchModeNotSupported", "spec.eSwitchMode", message);
    }
    if policy::requests_bridge(spec) {
        let message = "VFs of a virtual machine have no PF there that could be the uplink: remove bridge";
        findings.error("P09", "InvalidBridge", "spec.bridge", message);
    }
    if spec.link_type.is_some_and(|kind| kind.upper() != "ETH") {
        let message = "netFilter selects only Ethernet: remove linkType, or set it to eth";
        findings.error("P10", "LinkTypeNotSupported", "spec.linkType", message);
    }
}

/// Checks that cards with these PCI IDs are reported at all. Invalid IDs are a different fault.
fn check_card_ids(findings: &mut Findings, nic: &NicSelector, listed: &NicIds) {
    let (vendor, device) = (non_empty(nic.vendor.as_ref()), non_empty(nic.device_id.as_ref()));
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
                "ConfigMap {SUPPORTED_NIC_IDS} lists no card of vendor {vendor}, so none is reported: add the card there, or correct vendor"
            ),
        ),
        (Some(vendor), Some(device)) => (
            "P15",
            "spec.nicSelector.deviceID",
            format!(
                "ConfigMap {SUPPORTED_NIC_IDS} does not list card {vendor} {device}: add it there, or correct vendor and deviceID"
            ),
        ),
        (None, Some(device)) => (
            "P16",
            "spec.nicSelector.deviceID",
            format!(
                "ConfigMap {SUPPORTED_NIC_IDS} does not list device {device}: add it there, or correct deviceID"
            ),
        ),
    };
    findings.error(rule, "UnknownCard", field, message);
}

/// Checks P31: the MTU of the policy takes precedence over the MTU of its bridge.
fn check_mtu_request(findings: &mut Findings, spec: &SriovNetworkNodePolicySpec) {
    let uplink = spec.bridge.as_ref().and_then(|bridge| bridge.ovs.as_ref()?.uplink.as_ref());
    let request = uplink.and_then(|uplink| uplink.interface.as_ref()?.mtu_request);
    if let (Some(request), Some(mtu @ 1..)) = (request, spec.mtu)
        && request != mtu
    {
        let message = format!(
            "mtuRequest {request} has no effect, because mtu {mtu} takes precedence: remove one of them"
        );
        let field = "spec.bridge.ovs.uplink.interface.mtuRequest";
        findings.warning("P31", "MtuRequestHasNoEffect", field, message);
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
        PolicyFault::VdpaNotSupported => "P26",
        PolicyFault::MtuNotSupported { .. } => "P33",
        PolicyFault::TwoBridges => "P27",
        PolicyFault::BridgeWithoutSwitchdev => "P28",
        PolicyFault::BridgeExternallyManaged => "P29",
        PolicyFault::FeatureGateOff => "P30",
        PolicyFault::InvalidPortSetting(_) | PolicyFault::InvalidMtuRequest { .. } => "P35",
        // A fault of several policies.
        PolicyFault::BlockedByInvalidPolicy { .. } => "D13",
    }
}

fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

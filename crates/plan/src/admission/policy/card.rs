//! Rules about a policy on one card that it selects.

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::node_policy::EswitchMode as DesiredMode;
use vfleet_api::node_state::InterfaceExt;

use super::super::Severity;
use crate::external::{self, DesiredExternalPf, ExternalFault, ObservedExternalPf};
use crate::facts::EswitchMode;
use crate::firmware::{MAX_VFS, MELLANOX};
use crate::node::Cause;
use crate::prelude::*;

/// Finding about a policy on one card.
#[derive(Clone, Debug)]
pub(super) struct CardFinding {
    pub(super) rule: &'static str,
    pub(super) reason: &'static str,
    pub(super) severity: Severity,
    pub(super) field: &'static str,
    pub(super) message: String,
}

/// Returns the findings about a policy on a card. Fields that the card does not report are not checked.
pub(super) fn check_on_card(spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt) -> Vec<CardFinding> {
    let vendor = card.vendor.as_deref().and_then(|vendor| u16::from_str_radix(vendor, 16).ok());
    let vdpa = vendor.and_then(|vendor| check_vdpa(spec, vendor));
    if spec.externally_managed == Some(true) {
        return check_externally_managed(spec, card).into_iter().chain(vdpa).collect();
    }
    let vfs = vendor.and_then(|vendor| check_vf_count(spec, card, vendor));
    let link_type = vendor.filter(|vendor| *vendor != MELLANOX).and_then(|_| check_link_type(spec, card));
    [vfs, link_type, vdpa].into_iter().flatten().collect()
}

fn error(rule: &'static str, reason: &'static str, field: &'static str, message: String) -> CardFinding {
    CardFinding { rule, reason, severity: Severity::Error, field, message }
}

/// Checks D06 and D07. More VFs can be enabled in Mellanox firmware, but not from inside a virtual machine.
fn check_vf_count(
    spec: &SriovNetworkNodePolicySpec,
    card: &InterfaceExt,
    vendor: u16,
) -> Option<CardFinding> {
    let requested = spec.num_vfs;
    let is_virtual = card.net_filter.is_some();
    if vendor == MELLANOX && !is_virtual {
        let message = format!("Mellanox cards have at most {MAX_VFS} VFs on a PF: lower numVfs");
        return (requested > i64::from(MAX_VFS)).then(|| error("D07", "TooManyVfs", "spec.numVfs", message));
    }
    let total = u16::try_from(card.totalvfs?).ok()?;
    let cause = Cause::TooManyVfs { requested, total };
    (requested > i64::from(total)).then(|| error("D06", cause.reason(), "spec.numVfs", cause.to_string()))
}

/// Checks D08 to D11.
fn check_externally_managed(spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt) -> Vec<CardFinding> {
    // Other numbers are faults of the policy itself.
    let Ok(num_vfs) = u16::try_from(spec.num_vfs) else { return Vec::new() };
    let desired = DesiredExternalPf {
        num_vfs,
        mtu: spec.mtu,
        link_type: spec.link_type.map(|kind| kind.upper().to_owned()).unwrap_or_default(),
        eswitch: match spec.e_switch_mode.unwrap_or_default() {
            DesiredMode::Legacy => EswitchMode::Legacy,
            DesiredMode::Switchdev => EswitchMode::Switchdev,
        },
    };
    let finding = |fault: ExternalFault| {
        let (rule, field) = match fault {
            ExternalFault::TooFewVfs { .. } => ("D08", "spec.numVfs"),
            ExternalFault::Mtu { .. } => ("D09", "spec.mtu"),
            ExternalFault::LinkType { .. } => ("D10", "spec.linkType"),
            ExternalFault::Eswitch { .. } => ("D11", "spec.eSwitchMode"),
        };
        error(rule, fault.reason(), field, fault.to_string())
    };
    external::check(&desired, &ObservedExternalPf::from(card)).into_iter().map(finding).collect()
}

/// Checks D12.
fn check_vdpa(spec: &SriovNetworkNodePolicySpec, vendor: u16) -> Option<CardFinding> {
    let is_possible = spec.vdpa_type.is_none() || vendor == MELLANOX;
    let message = || {
        format!(
            "vDPA devices need a Mellanox card, and the card is of vendor {vendor:04x}: remove vdpaType, or select other PFs"
        )
    };
    (!is_possible).then(|| error("D12", "VdpaNotSupported", "spec.vdpaType", message()))
}

/// Checks D19: the link type cannot be changed. It is a warning, because the card may be replaced.
fn check_link_type(spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt) -> Option<CardFinding> {
    let requested = spec.link_type?.upper();
    let is_observed =
        |kind: &&str| card.link_type.as_deref().is_some_and(|observed| observed.eq_ignore_ascii_case(kind));
    let observed = ["ETH", "IB"].into_iter().find(is_observed)?;
    let cause = Cause::LinkType { requested: requested.to_owned(), observed };
    (requested != observed).then(|| CardFinding {
        rule: "D19",
        reason: cause.reason(),
        severity: Severity::Warning,
        field: "spec.linkType",
        message: cause.to_string(),
    })
}

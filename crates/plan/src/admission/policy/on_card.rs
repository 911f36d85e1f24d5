//! A policy on one card that it selects.

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::node_policy::EswitchMode as WantedMode;
use vfleet_api::node_state::InterfaceExt;

use super::super::Severity;
use crate::external::{self, ExternalFault, ExternalFound, ExternalWish};
use crate::facts::EswitchMode;
use crate::firmware::{MELLANOX, MOST_VFS};
use crate::node::Cause;
use crate::prelude::*;

/// What is found on a card.
#[derive(Clone, Debug)]
pub(super) struct CardFinding {
    pub(super) rule: &'static str,
    pub(super) reason: &'static str,
    pub(super) severity: Severity,
    pub(super) field: &'static str,
    pub(super) message: String,
}

/// What the card cannot be. What it does not report is not judged.
pub(super) fn on_card(spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt) -> Vec<CardFinding> {
    let vendor = card.vendor.as_deref().and_then(|vendor| u16::from_str_radix(vendor, 16).ok());
    let vdpa = vendor.and_then(|vendor| vdpa(spec, vendor));
    if spec.externally_managed == Some(true) {
        return outside(spec, card).into_iter().chain(vdpa).collect();
    }
    let vfs = vendor.and_then(|vendor| vfs(spec, card, vendor));
    let link_type = vendor.filter(|vendor| *vendor != MELLANOX).and_then(|_| link_type(spec, card));
    [vfs, link_type, vdpa].into_iter().flatten().collect()
}

fn error(rule: &'static str, reason: &'static str, field: &'static str, message: String) -> CardFinding {
    CardFinding { rule, reason, severity: Severity::Error, field, message }
}

/// The firmware of Mellanox can be told to show more VFs, but not from inside of a virtual machine.
fn vfs(spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt, vendor: u16) -> Option<CardFinding> {
    let asked = spec.num_vfs;
    let is_virtual = card.net_filter.is_some();
    if vendor == MELLANOX && !is_virtual {
        let message = format!("cards of Mellanox have at most {MOST_VFS} VFs on a PF: lower numVfs");
        return (asked > i64::from(MOST_VFS)).then(|| error("D07", "TooManyVfs", "spec.numVfs", message));
    }
    let total = u16::try_from(card.totalvfs?).ok()?;
    let cause = Cause::TooManyVfs { asked, total };
    (asked > i64::from(total)).then(|| error("D06", cause.reason(), "spec.numVfs", cause.to_string()))
}

fn outside(spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt) -> Vec<CardFinding> {
    // Another number is a fault of the policy itself.
    let Ok(num_vfs) = u16::try_from(spec.num_vfs) else { return Vec::new() };
    let wish = ExternalWish {
        num_vfs,
        mtu: spec.mtu,
        link_type: spec.link_type.map(|kind| kind.upper().to_owned()).unwrap_or_default(),
        eswitch: match spec.e_switch_mode.unwrap_or_default() {
            WantedMode::Legacy => EswitchMode::Legacy,
            WantedMode::Switchdev => EswitchMode::Switchdev,
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
    external::check(&wish, &ExternalFound::from(card)).into_iter().map(finding).collect()
}

fn vdpa(spec: &SriovNetworkNodePolicySpec, vendor: u16) -> Option<CardFinding> {
    let is_possible = spec.vdpa_type.is_none() || vendor == MELLANOX;
    let message = || {
        format!(
            "vDPA devices can be made on cards of Mellanox only, and this one is of vendor {vendor:04x}: remove vdpaType, or select other PFs"
        )
    };
    (!is_possible).then(|| error("D12", "VdpaNotPossible", "spec.vdpaType", message()))
}

/// A link type that cannot be changed. The node says so, too, but its port may be another one by then.
fn link_type(spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt) -> Option<CardFinding> {
    let asked = spec.link_type?.upper();
    let known = ["ETH", "IB"].into_iter();
    let found = known
        .clone()
        .find(|kind| card.link_type.as_deref().is_some_and(|is| is.eq_ignore_ascii_case(kind)))?;
    let cause = Cause::LinkType { asked: asked.to_owned(), found };
    (asked != found).then(|| CardFinding {
        rule: "D19",
        reason: cause.reason(),
        severity: Severity::Warning,
        field: "spec.linkType",
        message: cause.to_string(),
    })
}

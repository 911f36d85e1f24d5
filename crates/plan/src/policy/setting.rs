//! Settings of a PF as a whole, which all policies on the PF share.

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::node_policy::{EswitchMode, LinkType};

use super::bridges::have_same_bridge;
use crate::facts::BridgeKind;

/// Setting of a PF for which two policies request different values. `applied` is the value of the winner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PfSetting {
    EswitchMode {
        requested: EswitchMode,
        applied: EswitchMode,
    },
    LinkType {
        requested: LinkType,
        applied: LinkType,
    },
    /// Software bridge, as the object of a sentence.
    Bridge {
        requested: &'static str,
        applied: &'static str,
    },
}

impl PfSetting {
    /// Returns the field of the setting in the spec of a policy.
    pub const fn field(self) -> &'static str {
        match self {
            Self::EswitchMode { .. } => "eSwitchMode",
            Self::LinkType { .. } => "linkType",
            Self::Bridge { .. } => "bridge",
        }
    }

    /// Returns the requested and the applied value.
    pub const fn values(self) -> (&'static str, &'static str) {
        match self {
            Self::EswitchMode { requested, applied } => (requested.as_str(), applied.as_str()),
            Self::LinkType { requested, applied } => (requested.upper(), applied.upper()),
            Self::Bridge { requested, applied } => (requested, applied),
        }
    }
}

/// Returns the settings for which the loser requests another value than the winner. An absent eSwitchMode means legacy, and
/// an absent linkType or bridge accepts any.
pub(super) fn differing_settings(
    loser: &SriovNetworkNodePolicySpec,
    winner: &SriovNetworkNodePolicySpec,
) -> impl Iterator<Item = PfSetting> + use<> {
    let modes = PfSetting::EswitchMode { requested: mode(loser), applied: mode(winner) };
    let link_types = loser.link_type.zip(winner.link_type);
    let link_types = link_types.map(|(requested, applied)| PfSetting::LinkType { requested, applied });
    [Some(modes), link_types, differing_bridge(loser, winner)].into_iter().flatten().filter(|setting| {
        let (requested, applied) = setting.values();
        requested != applied
    })
}

fn differing_bridge(
    loser: &SriovNetworkNodePolicySpec,
    winner: &SriovNetworkNodePolicySpec,
) -> Option<PfSetting> {
    let (requested, other) = match bridge_kind(loser)? {
        BridgeKind::Ovs => ("an ovs bridge", "an ovs bridge with other settings"),
        BridgeKind::Linux => ("a linux bridge", "a linux bridge with other settings"),
    };
    let applied = match bridge_kind(winner) {
        None => "no bridge",
        Some(_) if have_same_bridge(loser, winner) => requested,
        kind if kind == bridge_kind(loser) => other,
        Some(BridgeKind::Ovs) => "an ovs bridge",
        Some(BridgeKind::Linux) => "a linux bridge",
    };
    Some(PfSetting::Bridge { requested, applied })
}

/// Returns the kind of the requested bridge; `None` if none is requested.
fn bridge_kind(spec: &SriovNetworkNodePolicySpec) -> Option<BridgeKind> {
    let bridge = spec.bridge.as_ref()?;
    let ovs = bridge.ovs.as_ref().map(|_| BridgeKind::Ovs);
    ovs.or_else(|| bridge.linux.as_ref().map(|_| BridgeKind::Linux))
}

/// Returns whether the loser requests vDPA devices and the winner a mode other than switchdev.
pub(super) fn lacks_switchdev_for_vdpa(
    loser: &SriovNetworkNodePolicySpec,
    winner: &SriovNetworkNodePolicySpec,
) -> bool {
    loser.vdpa_type.is_some() && mode(winner) != EswitchMode::Switchdev
}

fn mode(spec: &SriovNetworkNodePolicySpec) -> EswitchMode {
    spec.e_switch_mode.unwrap_or_default()
}

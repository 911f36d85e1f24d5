//! What holds for a PF as a whole, and so cannot be as each of two policies on it wants.

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::node_policy::{EswitchMode, LinkType};

/// A setting of a PF that two policies want to be different: as the one asked that does not get it, and as the PF is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PfSetting {
    EswitchMode { asked: EswitchMode, given: EswitchMode },
    LinkType { asked: LinkType, given: LinkType },
}

impl PfSetting {
    /// Its field in the spec of a policy.
    pub const fn field(self) -> &'static str {
        match self {
            Self::EswitchMode { .. } => "eSwitchMode",
            Self::LinkType { .. } => "linkType",
        }
    }

    /// What was asked for, and what the PF is.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::EswitchMode { asked, given } => (asked.as_str(), given.as_str()),
            Self::LinkType { asked, given } => (asked.upper(), given.upper()),
        }
    }
}

/// All settings of a PF in which it is not as the loser wants. Who says nothing of a mode means legacy; who says nothing
/// of a link type takes any.
pub(super) fn differing(
    loser: &SriovNetworkNodePolicySpec,
    winner: &SriovNetworkNodePolicySpec,
) -> impl Iterator<Item = PfSetting> + use<> {
    let modes = PfSetting::EswitchMode { asked: mode(loser), given: mode(winner) };
    let kinds = loser.link_type.zip(winner.link_type);
    let kinds = kinds.map(|(asked, given)| PfSetting::LinkType { asked, given });
    [Some(modes), kinds].into_iter().flatten().filter(|setting| {
        let (asked, given) = setting.words();
        asked != given
    })
}

/// Whether the loser wants vDPA devices, and the winner a mode in which there are none.
pub(super) fn vdpa_has_no_switchdev(
    loser: &SriovNetworkNodePolicySpec,
    winner: &SriovNetworkNodePolicySpec,
) -> bool {
    loser.vdpa_type.is_some() && mode(winner) != EswitchMode::Switchdev
}

fn mode(spec: &SriovNetworkNodePolicySpec) -> EswitchMode {
    spec.e_switch_mode.unwrap_or_default()
}

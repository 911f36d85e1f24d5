//! Externally managed PFs: check that the PF meets the requirements of the policies for its VFs.

use thiserror::Error;
use vfleet_api::node_state::InterfaceExt;

use crate::facts::{EswitchMode, Fact, PfFacts};
use crate::prelude::*;

/// Requirements for an externally managed PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredExternalPf {
    /// Minimum number of VFs.
    pub num_vfs: u16,
    /// Minimum MTU.
    pub mtu: Option<i64>,
    /// Required link type, ETH or IB in upper or lower case; empty if any is accepted.
    pub link_type: String,
    /// Required eswitch mode.
    pub eswitch: EswitchMode,
}

/// Observed state of an externally managed PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedExternalPf {
    /// Number of VFs.
    pub num_vfs: usize,
    /// MTU, if known.
    pub mtu: Option<u32>,
    /// Link type: ETH, IB, or empty if unknown.
    pub link_type: String,
    /// Eswitch mode: legacy for a card without eswitch, `None` if the driver does not report the mode.
    pub eswitch: Option<EswitchMode>,
}

impl From<&InterfaceExt> for ObservedExternalPf {
    /// Reads the state from the status of a node state.
    fn from(card: &InterfaceExt) -> Self {
        let count = card.num_vfs.unwrap_or(0);
        let is_switchdev = card.e_switch_mode.as_deref() == Some(EswitchMode::Switchdev.as_str());
        Self {
            num_vfs: usize::try_from(count).unwrap_or(0),
            mtu: card.mtu.and_then(|mtu| u32::try_from(mtu).ok()),
            link_type: card.link_type.clone().unwrap_or_default(),
            eswitch: Some(if is_switchdev { EswitchMode::Switchdev } else { EswitchMode::Legacy }),
        }
    }
}

impl From<&PfFacts> for ObservedExternalPf {
    /// Reads the state from host facts.
    fn from(pf: &PfFacts) -> Self {
        Self {
            num_vfs: pf.vfs.len(),
            mtu: pf.link.as_ref().map(|link| link.mtu),
            link_type: pf.link.as_ref().map_or("", |link| link.kind.as_api()).to_owned(),
            eswitch: match pf.eswitch {
                Fact::Value(mode) => Some(mode),
                Fact::None => Some(EswitchMode::Legacy),
                Fact::Unknown => None,
            },
        }
    }
}

/// Requirement that an externally managed PF does not meet. The message contains the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExternalFault {
    #[error(
        "{requested} VFs are requested, but the externally managed PF has {observed}: create more VFs, or lower numVfs"
    )]
    TooFewVfs { requested: u16, observed: usize },
    #[error(
        "MTU {requested} is requested, but the externally managed PF has {observed}: raise the MTU of the PF, or lower mtu"
    )]
    Mtu { requested: i64, observed: u32 },
    #[error(
        "link type {requested} is requested, but the externally managed PF has {observed}: select another PF, or correct linkType"
    )]
    LinkType { requested: String, observed: String },
    #[error(
        "eSwitchMode {} is requested, but the externally managed PF is in mode {}: change the mode of the PF, or correct eSwitchMode", requested.as_str(), observed.as_str()
    )]
    Eswitch { requested: EswitchMode, observed: EswitchMode },
}

impl ExternalFault {
    /// Returns the reason for conditions, Events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::TooFewVfs { .. } => "TooFewVfs",
            Self::Mtu { .. } => "MtuNotSupported",
            Self::LinkType { .. } => "LinkTypeNotSupported",
            Self::Eswitch { .. } => "EswitchModeNotSupported",
        }
    }
}

/// Returns the requirements that the PF does not meet. Used by admission and by the agent. Unknown values are no fault.
pub fn check(desired: &DesiredExternalPf, observed: &ObservedExternalPf) -> Vec<ExternalFault> {
    let vfs = (usize::from(desired.num_vfs) > observed.num_vfs)
        .then_some(ExternalFault::TooFewVfs { requested: desired.num_vfs, observed: observed.num_vfs });
    let mtu = match (desired.mtu, observed.mtu) {
        (Some(requested), Some(observed)) if requested > i64::from(observed) => {
            Some(ExternalFault::Mtu { requested, observed })
        }
        _ => None,
    };
    let is_known = !desired.link_type.is_empty() && !observed.link_type.is_empty();
    let link_type = (is_known && !desired.link_type.eq_ignore_ascii_case(&observed.link_type)).then(|| {
        ExternalFault::LinkType { requested: desired.link_type.clone(), observed: observed.link_type.clone() }
    });
    let eswitch = observed.eswitch.filter(|observed| *observed != desired.eswitch);
    let eswitch = eswitch.map(|observed| ExternalFault::Eswitch { requested: desired.eswitch, observed });
    [vfs, mtu, link_type, eswitch].into_iter().flatten().collect()
}

//! PFs that are managed outside: whether what somebody else made of a PF is enough for what is wanted of its VFs.

use thiserror::Error;
use vfleet_api::node_state::InterfaceExt;

use crate::facts::{EswitchMode, Fact, PfFacts};
use crate::prelude::*;

/// What is wanted of a PF that is managed outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalWish {
    /// How many VFs it must have at least.
    pub num_vfs: u16,
    /// The MTU that it must have at least.
    pub mtu: Option<i64>,
    /// The link type that it must have, in either case: ETH or IB. Empty when any will do.
    pub link_type: String,
    /// The mode that its embedded switch must have.
    pub eswitch: EswitchMode,
}

/// What somebody else made of a PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalFound {
    /// How many VFs it has.
    pub num_vfs: usize,
    /// Its MTU, where it is known.
    pub mtu: Option<u32>,
    /// Its link type: ETH, IB, or empty where it is not known.
    pub link_type: String,
    /// The mode of its embedded switch: legacy also where it has none, `None` where its driver does not tell.
    pub eswitch: Option<EswitchMode>,
}

impl From<&InterfaceExt> for ExternalFound {
    /// As a node state reports it.
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

impl From<&PfFacts> for ExternalFound {
    /// As the machine has it.
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

/// What is not enough. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExternalFault {
    #[error(
        "{asked} VFs are wanted on a PF that is managed outside, but it has {found}: create them there, or lower numVfs"
    )]
    TooFewVfs { asked: u16, found: usize },
    #[error(
        "MTU {asked} is wanted on a PF that is managed outside, but it has {found}: raise it there, or lower mtu"
    )]
    Mtu { asked: i64, found: u32 },
    #[error(
        "link type {asked} is wanted on a PF that is managed outside, but the port is {found}: select another PF, or correct linkType"
    )]
    LinkType { asked: String, found: String },
    #[error(
        "eSwitchMode {} is wanted on a PF that is managed outside, but it is in mode {}: change it there, or correct eSwitchMode", asked.as_str(), found.as_str()
    )]
    Eswitch { asked: EswitchMode, found: EswitchMode },
}

impl ExternalFault {
    /// In one word, for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::TooFewVfs { .. } => "TooFewVfs",
            Self::Mtu { .. } => "MtuNotPossible",
            Self::LinkType { .. } => "LinkTypeNotPossible",
            Self::Eswitch { .. } => "EswitchModeNotPossible",
        }
    }
}

/// All that is not enough. The one rule for admission and for the node. What is not known is no fault.
pub fn check(wanted: &ExternalWish, found: &ExternalFound) -> Vec<ExternalFault> {
    let vfs = (usize::from(wanted.num_vfs) > found.num_vfs)
        .then_some(ExternalFault::TooFewVfs { asked: wanted.num_vfs, found: found.num_vfs });
    let mtu = match (wanted.mtu, found.mtu) {
        (Some(asked), Some(found)) if asked > i64::from(found) => Some(ExternalFault::Mtu { asked, found }),
        _ => None,
    };
    let is_known = !wanted.link_type.is_empty() && !found.link_type.is_empty();
    let link_type = (is_known && !wanted.link_type.eq_ignore_ascii_case(&found.link_type))
        .then(|| ExternalFault::LinkType { asked: wanted.link_type.clone(), found: found.link_type.clone() });
    let eswitch = found.eswitch.filter(|found| *found != wanted.eswitch);
    let eswitch = eswitch.map(|found| ExternalFault::Eswitch { asked: wanted.eswitch, found });
    [vfs, mtu, link_type, eswitch].into_iter().flatten().collect()
}

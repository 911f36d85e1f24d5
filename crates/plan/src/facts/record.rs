use serde::{Deserialize, Serialize};
use vfleet_api::node_state::Interface;
use vfleet_api::{MacAddr, PciAddress};

use super::{CardIdentity, EswitchMode};
use crate::prelude::*;

/// What vfleet writes down about a PF before it changes it, so that any later process knows what is ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The PF.
    pub pf: PciAddress,
    /// What it was last wanted to be like.
    pub interface: Interface,
    /// What it was like before vfleet touched it.
    pub first_seen: FirstSeen,
    /// The MTU that vfleet raised it to, if it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub raised_mtu: Option<u32>,
    /// Addresses that somebody else gave to its VFs, by index: VFs that are made anew get them again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub vf_macs: BTreeMap<u16, MacAddr>,
    /// Its VFs are being made: whoever finds this goes on with setting them up.
    pub making: bool,
    /// Facts by which policies select the PF, as they were last known.
    #[serde(default)]
    pub identity: CardIdentity,
    /// Orders in which the kernel refused to bring the switch into switchdev mode (decision 17).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub refused_orders: Vec<RefusedOrder>,
    /// Indexes of VFs whose MTU is being changed. A pod may hold them, so that the kernel does not tell their MTU.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub mtu_changes: BTreeSet<u16>,
    /// udev was told once more to rename representors that had other names than the rules that are there give.
    #[serde(skip_serializing_if = "is_false", default)]
    pub representors_replayed: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// An attempt to bring a switch into switchdev mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeTrial {
    /// The order that is tried.
    pub order: ModeOrder,
    /// The boot in which it is tried.
    pub boot_id: String,
}

/// An attempt to bring a switch into switchdev mode that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedOrder {
    /// The attempt.
    #[serde(flatten)]
    pub trial: ModeTrial,
    /// What the kernel said.
    pub error: String,
}

/// Order of creating VFs and of changing the mode of the embedded switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ModeOrder {
    /// VFs are made in legacy mode. Into switchdev mode it goes with its VFs, while none of them has a driver.
    VfsFirst,
    /// The mode changes while there are no VFs.
    ModeFirst,
}

impl ModeOrder {
    /// Returns the order that is not this one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::VfsFirst => Self::ModeFirst,
            Self::ModeFirst => Self::VfsFirst,
        }
    }
}

impl Record {
    /// Notes that the kernel refused switchdev mode in this order, in place of an earlier note about it.
    pub fn note_refusal(&mut self, refused: RefusedOrder) {
        self.refused_orders.retain(|known| known.trial.order != refused.trial.order);
        self.refused_orders.push(refused);
    }

    /// A PF that the Go daemon had configured: its file keeps what was wanted, and not what was before.
    pub fn taken_over(pf: PciAddress, interface: Interface) -> Self {
        Self {
            pf,
            interface,
            first_seen: FirstSeen::default(),
            raised_mtu: None,
            vf_macs: BTreeMap::new(),
            making: false,
            identity: CardIdentity::default(),
            refused_orders: Vec::new(),
            mtu_changes: BTreeSet::new(),
            representors_replayed: false,
        }
    }

    /// Returns whether `other` has the same state of the PF, and another identity of the card. Such a difference is
    /// no unfinished work: names and networks change at any time, and the record follows.
    pub fn differs_only_in_identity(&self, other: &Self) -> bool {
        self.identity != other.identity && Self { identity: other.identity.clone(), ..self.clone() } == *other
    }

    /// Whether somebody else made the PF's VFs, when it was last configured.
    pub fn is_external(&self) -> bool {
        self.interface.externally_managed.unwrap_or(false)
    }
}

/// A PF before vfleet touched it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FirstSeen {
    /// MTU; absent when the PF had no interface, or when it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Whether the kernel bound its VFs by itself.
    pub drivers_autoprobe: bool,
    /// Mode of its embedded switch; absent when it had none, or when it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eswitch: Option<EswitchMode>,
}

impl Default for FirstSeen {
    fn default() -> Self {
        Self { mtu: None, drivers_autoprobe: true, eswitch: None }
    }
}

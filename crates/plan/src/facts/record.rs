use serde::{Deserialize, Serialize};
use vfleet_api::node_state::Interface;
use vfleet_api::{MacAddr, PciAddress};

use super::{CardIdentity, EswitchMode, RecordedBridge};
use crate::prelude::*;

/// State file of a PF, written before the PF is changed, so that every later process knows what vfleet changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// PCI address of the PF.
    pub pf: PciAddress,
    /// Desired state when the PF was last configured.
    pub interface: Interface,
    /// State of the PF before vfleet changed it.
    #[serde(rename = "firstSeen")]
    pub original: OriginalState,
    /// MTU to which vfleet raised the PF.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub raised_mtu: Option<u32>,
    /// MACs that something else gave to VFs, by index. VFs that are created again get them back.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub vf_macs: BTreeMap<u16, MacAddr>,
    /// VF creation has begun and not ended: the next process continues it.
    #[serde(rename = "making")]
    pub creating_vfs: bool,
    /// Last known facts by which policies select the PF.
    #[serde(default)]
    pub identity: CardIdentity,
    /// Orders in which the kernel refused switchdev mode (decision 17).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub refused_orders: Vec<RefusedOrder>,
    /// Indexes of VFs whose MTU is being changed. The kernel does not report the MTU of a VF that a pod holds.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub mtu_changes: BTreeSet<u16>,
    /// Software bridge that vfleet created for the PF, or is about to create.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bridge: Option<RecordedBridge>,
    /// udev was triggered again for representors whose names do not match the rules.
    #[serde(skip_serializing_if = "is_false", default)]
    pub representors_replayed: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by skip_serializing_if")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// Trial of setting switchdev mode in one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeTrial {
    /// Order of the trial.
    pub order: ModeOrder,
    /// Boot ID at the time of the trial.
    pub boot_id: String,
}

/// Trial of setting switchdev mode that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedOrder {
    /// The refused trial.
    #[serde(flatten)]
    pub trial: ModeTrial,
    /// Error of the kernel.
    pub error: String,
}

/// Order of creating VFs and setting the eswitch mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ModeOrder {
    /// VFs are created in legacy mode. Switchdev mode is set while they exist and none has a driver.
    VfsFirst,
    /// The mode is set while there are no VFs.
    ModeFirst,
}

impl ModeOrder {
    /// Returns the opposite order.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::VfsFirst => Self::ModeFirst,
            Self::ModeFirst => Self::VfsFirst,
        }
    }
}

impl Record {
    /// Stores that the kernel refused switchdev mode in this order, replacing an earlier refusal of the same order.
    pub fn note_refusal(&mut self, refused: RefusedOrder) {
        self.refused_orders.retain(|earlier| earlier.trial.order != refused.trial.order);
        self.refused_orders.push(refused);
    }

    /// Returns the record of a PF that the Go daemon configured. Its file has the desired state, but not the original
    /// one.
    pub fn taken_over(pf: PciAddress, interface: Interface) -> Self {
        Self {
            pf,
            interface,
            original: OriginalState::default(),
            raised_mtu: None,
            vf_macs: BTreeMap::new(),
            creating_vfs: false,
            identity: CardIdentity::default(),
            refused_orders: Vec::new(),
            mtu_changes: BTreeSet::new(),
            bridge: None,
            representors_replayed: false,
        }
    }

    /// Returns whether the records have the same state of the PF and a different identity of the card. That is not
    /// unfinished work: names and networks change at any time, and the record follows.
    pub fn differs_only_in_identity(&self, other: &Self) -> bool {
        self.identity != other.identity && Self { identity: other.identity.clone(), ..self.clone() } == *other
    }

    /// Returns whether the PF was externally managed when it was last configured.
    pub fn is_external(&self) -> bool {
        self.interface.externally_managed.unwrap_or(false)
    }
}

/// State of a PF before vfleet changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OriginalState {
    /// MTU; `None` if the PF had no interface, or if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// `sriov_drivers_autoprobe`: the kernel bound new VFs to a driver.
    pub drivers_autoprobe: bool,
    /// Eswitch mode; `None` if the PF had no eswitch, or if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eswitch: Option<EswitchMode>,
}

impl Default for OriginalState {
    fn default() -> Self {
        Self { mtu: None, drivers_autoprobe: true, eswitch: None }
    }
}

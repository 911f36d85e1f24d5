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
}

impl Record {
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
        }
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

//! File in which the Go daemon remembers the Open vSwitch bridges that it created. vfleet takes these bridges over, and
//! still writes the file for a migration back.

use serde::{Deserialize, Serialize};
use vfleet_api::PciAddress;
use vfleet_api::bridge::{OvsConfigExt, OvsUplinkConfigExt};
use vfleet_api::keys::OVS_UPLINK;
use vfleet_api::node_state::Interface;

use super::desired::{DesiredBridge, DesiredSettings};
use super::ovs_keys::OvsKeys;
use crate::facts::{HostFacts, OvsBridgeFacts};
use crate::files::MANAGED_OVS_BRIDGES;
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, HostFile, PlannedStep, Step};

/// Open vSwitch bridges in the file, by name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GoStore {
    /// Bridges in the file; none without a file.
    Listed(BTreeMap<String, StoredBridge>),
    /// The file is not valid: it is unknown which bridges the Go daemon created.
    Invalid { error: String },
}

/// Bridge in the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredBridge {
    #[serde(flatten)]
    bridge: OvsConfigExt,
    /// vfleet wrote the entry: the bridge has our mark, and is not taken over if it lost it. The Go daemon ignores the
    /// field and does not write it.
    #[serde(rename = "vfleet", skip_serializing_if = "is_false", default)]
    is_marked: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by skip_serializing_if")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl GoStore {
    /// Reads the file of the Go daemon. An empty file and `null` list no bridges.
    pub(crate) fn read(facts: &HostFacts) -> Self {
        let text = facts.files.get(MANAGED_OVS_BRIDGES).map(|text| text.trim());
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Self::Listed(BTreeMap::new()) };
        match serde_json::from_str::<Option<_>>(text) {
            Ok(entries) => Self::Listed(entries.unwrap_or_default()),
            Err(error) => Self::Invalid { error: error.to_string() },
        }
    }

    fn entries(&self) -> impl Iterator<Item = (&String, &StoredBridge)> {
        let entries = match self {
            Self::Listed(entries) => Some(entries),
            Self::Invalid { .. } => None,
        };
        entries.into_iter().flatten()
    }

    /// Returns whether the Go daemon created the bridge for this PF; the error if that is unknown. A record of vfleet
    /// does not count: the Go daemon may have created the bridge again after a migration back.
    pub(super) fn lists(&self, bridge: &str, pf: PciAddress) -> Result<bool, &str> {
        match self {
            Self::Listed(entries) => Ok(entries.get(bridge).is_some_and(|entry| entry.is_of_go(pf))),
            Self::Invalid { error } => Err(error),
        }
    }

    /// Returns the bridge that the Go daemon created for this PF.
    pub(super) fn bridge_of(&self, pf: PciAddress) -> Option<&str> {
        self.entries().find(|(_, entry)| entry.is_of_go(pf)).map(|(name, _)| name.as_str())
    }

    /// Returns the keys that the Go daemon set on the bridge.
    pub(super) fn keys_of(&self, bridge: &str) -> OvsKeys {
        let entry = self.entries().find(|(name, entry)| *name == bridge && !entry.is_marked);
        entry.map(|(_, entry)| OvsKeys::of_go_bridge(&entry.bridge)).unwrap_or_default()
    }
}

impl Default for GoStore {
    fn default() -> Self {
        Self::Listed(BTreeMap::new())
    }
}

impl StoredBridge {
    /// Returns whether the Go daemon wrote the entry, for a bridge of this PF.
    fn is_of_go(&self, pf: PciAddress) -> bool {
        !self.is_marked && has_uplink(&self.bridge, pf)
    }

    /// Returns whether only the entry says whose bridge this is. It changes when the bridge has its mark or is removed,
    /// since the steps that do that may fail.
    fn is_needed(&self, name: &str, facts: &HostFacts) -> bool {
        let is_marked = |bridge: &OvsBridgeFacts| bridge.external_ids.contains_key(OVS_UPLINK);
        let database = facts.bridges.ovs.database();
        let has_mark = database.is_some_and(|ovs| ovs.bridge(name).is_none_or(is_marked));
        !self.is_marked && !has_mark
    }
}

fn has_uplink(entry: &OvsConfigExt, pf: PciAddress) -> bool {
    entry.uplinks.iter().flatten().any(|uplink| uplink.pci_address.value() == Ok(&pf))
}

/// Returns the step that updates the file. `bridges` has for each PF whose bridges are as desired after the steps its
/// bridge; `None` if there is none, or if the bridge belongs to somebody else. Bridges of PFs that are neither desired
/// nor recorded are removed from the file: a process was killed when it had reset the PF.
///
/// An invalid file is not changed.
pub(crate) fn plan_store<'a>(
    store: &GoStore,
    bridges: impl Iterator<Item = (PciAddress, Option<&'a DesiredBridge>)>,
    interfaces: &[Interface],
    facts: &HostFacts,
) -> Option<PlannedStep> {
    let GoStore::Listed(listed) = store else { return None };
    let mut entries = listed.clone();
    let is_known = |pf: &PciAddress| {
        interfaces.iter().any(|interface| interface.pci_address.value() == Ok(pf))
            || facts.record(*pf).is_some()
            || facts.unreadable_records.contains(pf)
    };
    let is_uplink_known = |uplink: &OvsUplinkConfigExt| uplink.pci_address.value().is_ok_and(is_known);
    entries.retain(|name, entry| {
        entry.is_needed(name, facts) || entry.bridge.uplinks.iter().flatten().any(is_uplink_known)
    });
    for (pf, desired) in bridges {
        entries.retain(|name, entry| entry.is_needed(name, facts) || !has_uplink(&entry.bridge, pf));
        if let Some(DesiredBridge { name, settings: DesiredSettings::Ovs(settings) }) = desired {
            let entry = StoredBridge { bridge: settings.spec.clone(), is_marked: true };
            if !entries.get(name).is_some_and(|entry| entry.is_needed(name, facts)) {
                entries.insert(name.clone(), entry);
            }
        }
    }
    if entries == *listed {
        return None;
    }
    let step = if entries.is_empty() {
        facts
            .files
            .contains_key(MANAGED_OVS_BRIDGES)
            .then(|| Step::RemoveFile { pf: None, path: MANAGED_OVS_BRIDGES.to_owned() })?
    } else {
        let text = serde_json::to_string(&entries).unwrap_or_default();
        let file = HostFile { path: MANAGED_OVS_BRIDGES.to_owned(), text, is_program: false };
        Step::WriteFile { pf: None, file }
    };
    Some(planned(step, Disruption::None, "list of bridges for a migration to the Go operator"))
}

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

/// Open vSwitch bridges in the file, by name. An unreadable file lists none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GoStore(BTreeMap<String, StoredBridge>);

/// Bridge in the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct StoredBridge {
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
    /// Reads the file of the Go daemon.
    pub(crate) fn read(facts: &HostFacts) -> Self {
        let text = facts.files.get(MANAGED_OVS_BRIDGES);
        Self(text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default())
    }

    /// Returns whether the Go daemon created the bridge for this PF.
    pub(super) fn lists(&self, bridge: &str, pf: PciAddress) -> bool {
        self.0.get(bridge).is_some_and(|entry| !entry.is_marked && has_uplink(&entry.bridge, pf))
    }

    /// Returns the bridge that the Go daemon created for this PF.
    pub(super) fn bridge_of(&self, pf: PciAddress) -> Option<&str> {
        self.0.keys().find(|name| self.lists(name, pf)).map(String::as_str)
    }

    /// Returns whether a bridge of this PF has no mark yet, so that only the file says whose it is. The file changes when
    /// the bridge has its mark or is removed, since the steps that do that may fail.
    pub(super) fn owns_unmarked(&self, pf: PciAddress, facts: &HostFacts) -> bool {
        let is_marked = |bridge: &OvsBridgeFacts| bridge.external_ids.contains_key(OVS_UPLINK);
        let bridge = self.bridge_of(pf).and_then(|name| facts.bridges.ovs.database()?.bridge(name));
        let recorded = facts.record(pf).and_then(|record| record.bridge.as_ref());
        recorded.is_none() && bridge.is_some_and(|bridge| !is_marked(bridge))
    }

    /// Returns the keys that the Go daemon set on the bridge.
    pub(super) fn keys_of(&self, bridge: &str) -> OvsKeys {
        let entry = self.0.get(bridge).filter(|entry| !entry.is_marked);
        entry.map(|entry| OvsKeys::of_go_bridge(&entry.bridge)).unwrap_or_default()
    }
}

fn has_uplink(entry: &OvsConfigExt, pf: PciAddress) -> bool {
    entry.uplinks.iter().flatten().any(|uplink| uplink.pci_address.value() == Ok(&pf))
}

/// Returns the step that updates the file. `bridges` has for each PF whose bridges are as desired after the steps its
/// bridge; `None` if there is none, or if the bridge belongs to somebody else. Bridges of PFs that are neither desired
/// nor recorded are removed from the file: a process was killed when it had reset the PF.
pub(crate) fn plan_store<'a>(
    store: &GoStore,
    bridges: impl Iterator<Item = (PciAddress, Option<&'a DesiredBridge>)>,
    interfaces: &[Interface],
    facts: &HostFacts,
) -> Option<PlannedStep> {
    let mut entries = store.0.clone();
    let is_known = |pf: &PciAddress| {
        interfaces.iter().any(|interface| interface.pci_address.value() == Ok(pf))
            || facts.record(*pf).is_some()
            || facts.unreadable_records.contains(pf)
    };
    let is_uplink_known = |uplink: &OvsUplinkConfigExt| uplink.pci_address.value().is_ok_and(is_known);
    entries.retain(|_, entry| entry.bridge.uplinks.iter().flatten().any(is_uplink_known));
    for (pf, desired) in bridges {
        entries.retain(|_, entry| !has_uplink(&entry.bridge, pf));
        if let Some(DesiredBridge { name, settings: DesiredSettings::Ovs(settings) }) = desired {
            let entry = StoredBridge { bridge: settings.spec.clone(), is_marked: true };
            entries.insert(name.clone(), entry);
        }
    }
    if entries == store.0 {
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

//! File in which the Go daemon remembers the Open vSwitch bridges that it created. vfleet takes these bridges over, and
//! still writes the file for a migration back.

use vfleet_api::PciAddress;
use vfleet_api::bridge::OvsConfigExt;

use super::desired::{DesiredBridge, DesiredSettings};
use super::ovs_keys::OvsKeys;
use crate::facts::{HostFacts, RecordedBridge};
use crate::files::MANAGED_OVS_BRIDGES;
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, HostFile, PlannedStep, Step};

/// Open vSwitch bridges of the Go daemon, by name. An unreadable file lists none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GoStore(BTreeMap<String, OvsConfigExt>);

impl GoStore {
    /// Reads the file of the Go daemon.
    pub(crate) fn read(facts: &HostFacts) -> Self {
        let text = facts.files.get(MANAGED_OVS_BRIDGES);
        Self(text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default())
    }

    /// Returns whether the Go daemon created the bridge for this PF.
    pub(super) fn lists(&self, bridge: &str, pf: PciAddress) -> bool {
        self.0.get(bridge).is_some_and(|entry| has_uplink(entry, pf))
    }

    /// Returns the bridge that the Go daemon created for this PF.
    pub(super) fn bridge_of(&self, pf: PciAddress) -> Option<&str> {
        self.0.iter().find(|(_, entry)| has_uplink(entry, pf)).map(|(name, _)| name.as_str())
    }

    /// Returns the keys that the Go daemon set on the bridge.
    pub(super) fn keys_of(&self, bridge: &str) -> OvsKeys {
        self.0.get(bridge).map(OvsKeys::of_go_bridge).unwrap_or_default()
    }
}

fn has_uplink(entry: &OvsConfigExt, pf: PciAddress) -> bool {
    entry.uplinks.iter().flatten().any(|uplink| uplink.pci_address.value() == Ok(&pf))
}

/// Returns the step that updates the file. `planned_bridges` has for each planned PF its desired bridge, unless that
/// belongs to somebody else, and its record after all steps.
pub(crate) fn plan_store<'a>(
    store: &GoStore,
    planned_bridges: impl Iterator<Item = (PciAddress, Option<&'a DesiredBridge>, Option<&'a RecordedBridge>)>,
    facts: &HostFacts,
) -> Option<PlannedStep> {
    let mut entries = store.0.clone();
    let is_taken_over =
        |finished: Option<&RecordedBridge>| finished.is_some_and(|finished| finished.is_taken_over);
    // The entry of a bridge that is not taken over yet has the keys that the Go daemon set.
    for (pf, desired, finished) in planned_bridges.filter(|(.., finished)| !is_taken_over(*finished)) {
        let is_left = |name: &String| finished.is_some_and(|finished| finished.name == *name);
        entries.retain(|name, entry| !has_uplink(entry, pf) || is_left(name));
        if let Some(DesiredBridge { name, settings: DesiredSettings::Ovs(settings) }) = desired {
            entries.insert(name.clone(), settings.spec.clone());
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

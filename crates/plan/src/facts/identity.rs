use serde::{Deserialize, Serialize};
use vfleet_api::node_state::{InterfaceExt, UnknownFact};

use super::{Fact, PfFacts, Record};
use crate::prelude::*;

/// Identity of a card: facts by which policies select it, besides its PCI address. Since they decide what a card is
/// used for, the last known value of each counts while it cannot be read (decision 16).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CardIdentity {
    /// PCI vendor ID, in the form of node states.
    #[serde(skip_serializing_if = "Fact::is_unknown")]
    pub vendor: Fact<String>,
    /// PCI device ID, in the form of node states.
    #[serde(skip_serializing_if = "Fact::is_unknown")]
    pub device_id: Fact<String>,
    /// Name of the interface.
    #[serde(skip_serializing_if = "Fact::is_unknown")]
    pub name: Fact<String>,
    /// Alternative names of the interface.
    #[serde(skip_serializing_if = "Fact::is_unknown")]
    pub alt_names: Fact<Vec<String>>,
    /// Network of the card according to the cloud.
    #[serde(skip_serializing_if = "Fact::is_unknown")]
    pub net_filter: Fact<String>,
}

impl CardIdentity {
    /// Returns the observed identity. The names of a card without an interface are unknown, not none: the card had them
    /// before the interface disappeared, and gets them back with it.
    pub fn observed(pf: &PfFacts) -> Self {
        let named = pf.link.as_ref().filter(|link| link.is_named);
        Self {
            vendor: Fact::Value(hex(pf.vendor)),
            device_id: Fact::Value(hex(pf.device)),
            name: named.map_or(Fact::Unknown, |link| Fact::Value(link.name.clone())),
            alt_names: named.map_or(Fact::Unknown, |link| Fact::Value(link.alt_names.clone())),
            net_filter: pf.net_filter.clone(),
        }
    }

    /// Returns the identity that was last known when the record was written. Records of the Go daemon have only the
    /// name.
    pub fn recorded(record: &Record) -> Self {
        let name = record.interface.name.clone().filter(|name| !name.is_empty());
        let name = name.map_or(Fact::Unknown, Fact::Value);
        Self { name: record.identity.name.clone().or_last(name), ..record.identity.clone() }
    }

    /// Returns the identity that a node state reports.
    pub fn reported(card: &InterfaceExt) -> Self {
        let text = |fact, value: &Option<String>| match value.clone() {
            None if card.is_unknown(fact) => Fact::Unknown,
            value => value.into(),
        };
        let alt_names = match card.alt_names.clone() {
            None if card.is_unknown(UnknownFact::AltNames) => Fact::Unknown,
            names => Fact::Value(names.unwrap_or_default()),
        };
        Self {
            vendor: text(UnknownFact::Vendor, &card.vendor),
            device_id: text(UnknownFact::DeviceId, &card.device_id),
            name: text(UnknownFact::Name, &card.name),
            alt_names,
            net_filter: text(UnknownFact::NetFilter, &card.net_filter),
        }
    }

    /// Returns the identity, with unknown facts replaced by those of `last`.
    #[must_use]
    pub fn or_last(self, last: Self) -> Self {
        Self {
            vendor: self.vendor.or_last(last.vendor),
            device_id: self.device_id.or_last(last.device_id),
            name: self.name.or_last(last.name),
            alt_names: self.alt_names.or_last(last.alt_names),
            net_filter: self.net_filter.or_last(last.net_filter),
        }
    }

    /// Returns the unknown facts.
    pub fn unknown(&self) -> Vec<UnknownFact> {
        let unknown = [
            (self.vendor.is_unknown(), UnknownFact::Vendor),
            (self.device_id.is_unknown(), UnknownFact::DeviceId),
            (self.name.is_unknown(), UnknownFact::Name),
            (self.alt_names.is_unknown(), UnknownFact::AltNames),
            (self.net_filter.is_unknown(), UnknownFact::NetFilter),
        ];
        unknown.into_iter().filter(|(is_unknown, _)| *is_unknown).map(|(_, fact)| fact).collect()
    }
}

/// Returns a PCI ID in the form of node states.
pub(crate) fn hex(id: u16) -> String {
    format!("{id:04x}")
}

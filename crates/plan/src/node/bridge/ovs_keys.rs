//! Keys of Open vSwitch maps that vfleet set. They are stored in the bridge itself, so that they change in the same
//! transaction as the values.

use serde::{Deserialize, Serialize};
use vfleet_api::bridge::{OvsBridgeConfig, OvsConfigExt, OvsInterfaceConfig};

use crate::prelude::*;
use crate::step::MapChange;

type Map = BTreeMap<String, String>;

/// Keys and columns of a bridge and its uplink that vfleet set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OvsKeys {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) bridge_external_ids: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) bridge_other_config: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) options: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) external_ids: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) other_config: BTreeSet<String>,
    /// `fail_mode` and `mtu_request`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) columns: BTreeSet<String>,
}

/// Column `fail_mode`.
pub(super) const FAIL_MODE: &str = "fail_mode";
/// Column `mtu_request`.
pub(super) const MTU_REQUEST: &str = "mtu_request";

impl OvsKeys {
    /// Returns the keys of these settings.
    pub(super) fn of(bridge: &OvsBridgeConfig, interface: &OvsInterfaceConfig) -> Self {
        let fail_mode = bridge.fail_mode.is_some().then(|| FAIL_MODE.to_owned());
        let mtu_request = interface.mtu_request.is_some().then(|| MTU_REQUEST.to_owned());
        Self {
            bridge_external_ids: keys(bridge.external_ids.as_ref()),
            bridge_other_config: keys(bridge.other_config.as_ref()),
            options: keys(interface.options.as_ref()),
            external_ids: keys(interface.external_ids.as_ref()),
            other_config: keys(interface.other_config.as_ref()),
            columns: fail_mode.into_iter().chain(mtu_request).collect(),
        }
    }

    /// Returns the keys that the Go daemon set.
    pub(super) fn of_go_bridge(bridge: &OvsConfigExt) -> Self {
        let settings = bridge.bridge.clone().unwrap_or_default();
        let uplink = bridge.uplinks.iter().flatten().next();
        Self::of(&settings, &uplink.and_then(|uplink| uplink.interface.clone()).unwrap_or_default())
    }

    /// Returns the keys that are stored as `text`. Unreadable text has none.
    pub(super) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Returns the text to store.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn keys(map: Option<&Map>) -> BTreeSet<String> {
    map.into_iter().flat_map(BTreeMap::keys).cloned().collect()
}

/// Returns the change that sets `desired` and removes keys that were set earlier.
pub(super) fn change(desired: Option<&Map>, earlier: &BTreeSet<String>) -> MapChange {
    let set = desired.cloned().unwrap_or_default();
    let remove = earlier.iter().filter(|key| !set.contains_key(*key)).cloned().collect();
    MapChange { set, remove }
}

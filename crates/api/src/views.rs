//! Views of objects with the parts that decisions need. The objects themselves have Kubernetes metadata and exist only
//! with the feature `crds`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::meta::Timestamp;
use crate::node_state::SriovNetworkNodeStateStatus;
use crate::pool_config::{SriovNetworkPoolConfigSpec, SriovNetworkPoolConfigStatus};

/// View of a `SriovNetworkNodeState`.
#[derive(Clone, Debug)]
pub struct NodeStateView<'a> {
    /// Annotations of the node state.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    /// Owners of fields according to server-side apply.
    pub owners: Vec<FieldOwner<'a>>,
    /// Status, if one was written.
    pub status: Option<&'a SriovNetworkNodeStateStatus>,
}

/// Entry of the managed fields of an object.
#[derive(Clone, Copy, Debug)]
pub struct FieldOwner<'a> {
    /// Name of the field manager.
    pub manager: Option<&'a str>,
    /// Time of the last write.
    pub time: Option<Timestamp>,
    /// Owned fields, as a tree of `f:` names.
    pub fields: Option<&'a Value>,
}

/// View of a `SriovNetworkPoolConfig`.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfigView<'a> {
    /// Spec of the pool.
    pub spec: &'a SriovNetworkPoolConfigSpec,
    /// Status, if one was written.
    pub status: Option<&'a SriovNetworkPoolConfigStatus>,
}

#[cfg(feature = "crds")]
mod from_objects {
    use super::{FieldOwner, NodeStateView, PoolConfigView};
    use crate::{SriovNetworkNodeState, SriovNetworkPoolConfig};

    impl<'a> From<&'a SriovNetworkNodeState> for NodeStateView<'a> {
        fn from(state: &'a SriovNetworkNodeState) -> Self {
            let entries = state.metadata.managed_fields.iter().flatten();
            let owners = entries.map(|entry| FieldOwner {
                manager: entry.manager.as_deref(),
                time: entry.time.as_ref().map(|time| time.0),
                fields: entry.fields_v1.as_ref().map(|fields| &fields.0),
            });
            Self {
                annotations: state.metadata.annotations.as_ref(),
                owners: owners.collect(),
                status: state.status.as_ref(),
            }
        }
    }

    impl<'a> From<&'a SriovNetworkPoolConfig> for PoolConfigView<'a> {
        fn from(pool: &'a SriovNetworkPoolConfig) -> Self {
            Self { spec: &pool.spec, status: pool.status.as_ref() }
        }
    }
}

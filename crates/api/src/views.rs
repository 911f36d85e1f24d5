//! Parts of objects that decisions look at, borrowed from them: the objects themselves have the metadata of a Kubernetes
//! client, and exist only with the feature `crds`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::meta::Timestamp;
use crate::node_state::SriovNetworkNodeStateStatus;
use crate::pool_config::{SriovNetworkPoolConfigSpec, SriovNetworkPoolConfigStatus};

/// View of a `SriovNetworkNodeState`.
#[derive(Clone, Debug)]
pub struct NodeStateView<'a> {
    /// Annotations of the object.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    /// Owners of its fields, as server-side apply keeps them.
    pub owners: Vec<FieldOwner<'a>>,
    /// Status, where one was written.
    pub status: Option<&'a SriovNetworkNodeStateStatus>,
}

/// Entry of an object's managed fields.
#[derive(Clone, Copy, Debug)]
pub struct FieldOwner<'a> {
    /// Name of the manager.
    pub manager: Option<&'a str>,
    /// Time of its last write.
    pub time: Option<Timestamp>,
    /// Fields that it owns, as a tree of `f:` names.
    pub fields: Option<&'a Value>,
}

/// View of a `SriovNetworkPoolConfig`.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfigView<'a> {
    /// Desired state.
    pub spec: &'a SriovNetworkPoolConfigSpec,
    /// Status, where one was written.
    pub status: Option<&'a SriovNetworkPoolConfigStatus>,
}

#[cfg(feature = "crds")]
mod of_objects {
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

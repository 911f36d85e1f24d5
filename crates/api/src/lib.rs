//! The `sriovnetwork.openshift.io/v1` API: every kind as a Rust type, the small words of the domain as
//! newtypes, and every label, annotation and finalizer key, each once.
//!
//! Guarantee: an object that the Go operator wrote survives a round trip through these types unchanged.
//! Everything that may be absent is an `Option`, so that "absent" and "empty" stay apart, and values with a
//! grammar of their own are [`Written`]: one misspelt PCI address in one policy must not make the whole
//! list unreadable.
//!
//! Specs and status are plain data. With the feature `crds` there are also the objects around them, with the metadata of a
//! Kubernetes client, and their definitions.
//!
//! No I/O, no client, no decisions: those live in `plan`, `host`, `operator` and `agent`.

pub mod bridge;
pub mod conditions;
#[cfg(feature = "crds")]
pub mod crds;
pub mod hardware;
pub mod keys;
pub mod meta;
pub mod network;
pub mod node_policy;
pub mod node_state;
pub mod operator_config;
pub mod pci;
pub mod pool_config;
pub mod vf;
pub mod views;
pub mod written;

pub use hardware::{Guid, MacAddr};
pub use node_policy::SriovNetworkNodePolicySpec;
pub use node_state::{SriovNetworkNodeStateSpec, SriovNetworkNodeStateStatus};
pub use pci::PciAddress;
pub use vf::{PfSelector, VfRange, VfRef};
pub use views::{NodeStateView, PoolConfigView};
pub use written::{Invalid, Written};

#[cfg(feature = "crds")]
pub use crds::{
    BridgeNetwork, OVSNetwork, SriovIBNetwork, SriovNetwork, SriovNetworkNodePolicy, SriovNetworkNodeState,
    SriovNetworkPoolConfig, SriovOperatorConfig,
};

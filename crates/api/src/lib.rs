//! Types of the API `sriovnetwork.openshift.io/v1`: specs and status of all kinds, newtypes for values such as PCI
//! addresses, and the names of labels, annotations and finalizers.
//!
//! Objects of the Go operator survive a round trip through these types unchanged. Optional fields are `Option`, so that
//! absent and empty values differ. Values with a text format are [`Parsed`]: one misspelled PCI address in one policy
//! must not make the whole list unreadable.
//!
//! Specs and status are plain data. The feature `crds` adds the objects with Kubernetes metadata and their
//! CustomResourceDefinitions.
//!
//! The crate has no I/O, no client and no decisions: see `plan`, `host`, `operator` and `agent`.

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
pub mod parsed;
pub mod pci;
pub mod pool_config;
pub mod vf;
pub mod views;

pub use hardware::{Guid, MacAddr};
pub use node_policy::SriovNetworkNodePolicySpec;
pub use node_state::{SriovNetworkNodeStateSpec, SriovNetworkNodeStateStatus};
pub use parsed::{ParseError, Parsed};
pub use pci::PciAddress;
pub use vf::{PfSelector, VfRange, VfRef};
pub use views::{NodeStateView, PoolConfigView};

#[cfg(feature = "crds")]
pub use crds::{
    BridgeNetwork, OVSNetwork, SriovIBNetwork, SriovNetwork, SriovNetworkNodePolicy, SriovNetworkNodeState,
    SriovNetworkPoolConfig, SriovOperatorConfig,
};

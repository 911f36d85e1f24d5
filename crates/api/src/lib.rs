//! The `sriovnetwork.openshift.io/v1` API: every kind as a Rust type, the small words of the domain as
//! newtypes, and every label, annotation and finalizer key, each once.
//!
//! Guarantee: an object that the Go operator wrote survives a round trip through these types unchanged.
//! Everything that may be absent is an `Option`, so that "absent" and "empty" stay apart, and values with a
//! grammar of their own are [`Written`]: one misspelt PCI address in one policy must not make the whole
//! list unreadable.
//!
//! No I/O, no client, no decisions: those live in `plan`, `host`, `operator` and `agent`.

pub mod bridge;
pub mod conditions;
pub mod crds;
pub mod hardware;
pub mod keys;
pub mod network;
pub mod node_policy;
pub mod node_state;
pub mod operator_config;
pub mod pci;
pub mod pool_config;
pub mod vf;
pub mod written;

pub use hardware::{Guid, MacAddr};
pub use network::{BridgeNetwork, OVSNetwork, SriovIBNetwork, SriovNetwork};
pub use node_policy::{SriovNetworkNodePolicy, SriovNetworkNodePolicySpec};
pub use node_state::{SriovNetworkNodeState, SriovNetworkNodeStateSpec, SriovNetworkNodeStateStatus};
pub use operator_config::SriovOperatorConfig;
pub use pci::PciAddress;
pub use pool_config::SriovNetworkPoolConfig;
pub use vf::{PfSelector, VfRange, VfRef};
pub use written::{Invalid, Written};

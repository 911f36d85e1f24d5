//! Network configuration of the plugins, from the JSON on standard input.
//!
//! Keys match regardless of case, `null` is the same as no key, unknown keys are ignored. Errors have the key in their
//! message. [`NetworkConfig`] is the part that all plugins and all commands share; the other types are for ADD and CHECK.

mod accelerated_bridge;
mod fields;
mod infiniband;
mod log;
mod mirror;
mod network;
mod ovs;
mod rdma;
mod sriov;
mod trunk;
mod vlan;

pub use accelerated_bridge::{AcceleratedBridgeConfig, BridgeChoice};
pub use infiniband::InfinibandConfig;
pub use log::{LogLevel, LogSettings};
pub use mirror::MirrorConfig;
pub use network::{IpamConfig, NetworkConfig, ValidAttachment};
pub use ovs::{OvsConfig, OvsFlatFile, flat_file_paths, read_ovs_socket};
pub use rdma::RdmaConfig;
pub use sriov::SriovConfig;

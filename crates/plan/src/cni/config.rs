//! Network configuration of the plugins, from the JSON on standard input.
//!
//! Keys match regardless of case, `null` is the same as no key, unknown keys are ignored. Errors have the key in their
//! message. [`NetworkConfig`] is the part that all plugins and all commands share; the other types are for ADD and CHECK.

mod fields;
mod infiniband;
mod log;
mod network;
mod rdma;
mod sriov;
mod vlan;

pub use infiniband::InfinibandConfig;
pub use log::{LogLevel, LogSettings};
pub use network::{IpamConfig, NetworkConfig, ValidAttachment};
pub use rdma::RdmaConfig;
pub use sriov::SriovConfig;

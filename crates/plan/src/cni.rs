//! CNI plugins: network configuration and facts => steps for ADD, DEL, CHECK and GC.
//!
//! - [`protocol`]: environment, versions and errors of the CNI specification
//! - [`config`]: network configuration of each plugin, from the JSON on standard input
//! - [`facts`]: one device, one namespace of a pod, and the holders of the device
//! - [`step`]: changes that the plugins make
//! - [`journal`]: attachment on disk, from before its first step until after its last
//! - [`go_cache`]: the same of the Go plugins
//! - [`attachment`]: frame of all plugins: plans for ADD, DEL, CHECK and GC
//! - [`programs`]: files of the plugins on a node
//! - [`sriov`], [`infiniband`], [`rdma`], [`ovs`], [`accelerated_bridge`], [`mirror`]: decisions of the plugins

pub mod accelerated_bridge;
pub mod attachment;
pub mod config;
pub mod facts;
pub mod go_cache;
pub mod infiniband;
pub mod journal;
pub mod mirror;
pub mod ovs;
pub mod programs;
pub mod protocol;
pub mod rdma;
mod representor;
pub mod sriov;
pub mod step;

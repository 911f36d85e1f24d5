//! Shared parts of the end-to-end tests: clusters on control planes, the contract suite of hosts, the VM lab,
//! benchmarks.

pub mod admission;
pub mod agent;
pub mod bench;
pub mod cluster;
pub mod contract;
pub mod drain;
pub mod lab;
pub mod networks;
pub mod objects;
pub mod on_kernel;
pub mod openshift;
pub mod plane;
pub mod pools;
pub mod ports;
pub mod programs;
pub mod takeover;

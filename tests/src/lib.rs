//! What the end-to-end tests share: the contract suite of hosts, and the way to the VM lab.

pub mod agent;
pub mod bench;
pub mod cluster;
pub mod contract;
pub mod door;
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

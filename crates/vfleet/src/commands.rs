//! Subcommands of vfleet.

pub(crate) mod agent;
pub(crate) mod boot;
pub(crate) mod bridges;
pub(crate) mod crds;
pub(crate) mod install_cni;
pub(crate) mod manifests;
pub(crate) mod node;
pub(crate) mod operator;
pub(crate) mod sim;
pub(crate) mod wait_for_config;

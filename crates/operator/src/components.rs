//! Components that the operator deploys, and the operator config that selects them.

pub(crate) mod config_watch;
pub(crate) mod go_device_plugin;
pub(crate) mod manifests;
pub(crate) mod operator_config;
pub mod permissions;

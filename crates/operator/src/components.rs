//! Components that the operator deploys, and the operator config that says which.

pub(crate) mod deployed;
pub(crate) mod go_device_plugin;
pub(crate) mod operator_config;
pub mod rights;
pub(crate) mod settings;

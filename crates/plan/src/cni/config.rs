//! Network configuration of the plugins.

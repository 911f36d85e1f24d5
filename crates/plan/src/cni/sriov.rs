//! Decisions of the plugin `sriov`.

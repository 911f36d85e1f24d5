//! Decisions of the plugin `ib-sriov`.

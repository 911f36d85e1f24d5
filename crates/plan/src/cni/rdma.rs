//! Decisions of the plugin `rdma`.

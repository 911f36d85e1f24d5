//! Parsers of files, options and environment variables, for `tests/fuzz/main.rs`. No other code uses them.

use std::net::IpAddr;
use std::time::Duration;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::HostFacts;

use crate::commands::{agent, node, operator};

/// Parses a file of policies, and derives the desired state of the machine `facts`.
pub fn node_policies(
    text: &str,
    labels: &[(String, String)],
    facts: &HostFacts,
) -> Result<SriovNetworkNodeStateSpec, String> {
    node::desired_spec(text, labels, facts).map_err(|error| format!("{error:#}"))
}

/// Parses `--label KEY=VALUE`.
pub fn label(text: &str) -> Result<(String, String), String> {
    node::parse_label(text)
}

/// Parses the lifetime of certificates.
pub fn lifetime(text: &str) -> Result<Duration, String> {
    operator::parse_lifetime(text)
}

/// Parses the number of minutes that node states of deleted nodes are kept.
pub fn minutes(text: &str) -> u64 {
    operator::parse_minutes(text)
}

/// Parses the node addresses that the operator passes to its agents.
pub fn node_addresses(text: &str) -> Vec<IpAddr> {
    agent::parse_node_addresses(text)
}

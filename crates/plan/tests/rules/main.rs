//! Tests of single rules of the planner. Decisions that a machine file and policies can describe are cases
//! (`../cases.rs`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

mod admission_pods;
mod admission_policies;
mod any_policies;
mod boot_texts;
mod bridge_resources;
mod cni;
mod drain;
mod drain_pods;
mod eswitch_order;
mod firmware;
mod guids;
mod in_use;
mod kept_macs;
mod kernel_arguments;
mod network_decisions;
mod network_json;
mod node;
mod pools;
mod properties;
mod reboots;
mod resources;
mod snapshot;
mod system;
mod targets;
mod udev;

use proptest::test_runner::Config;

/// Returns the configuration of property tests with this number of cases, or more if `PROPTEST_CASES` is higher.
fn config(cases: u32) -> Config {
    let default = Config::default();
    Config { cases: default.cases.max(cases), failure_persistence: None, ..default }
}

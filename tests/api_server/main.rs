//! Tests on a real API server. The operator and the agents run as programs, with their own rights; machines are
//! simulated.
//!
//! All tests are threads of one process. Modules share control planes unless their changes of the whole cluster would
//! interfere (`vfleet_tests::plane`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

#[allow(dead_code, reason = "the API server determines the kind of an object here, and nothing is patched")]
#[path = "../../crates/plan/tests/admission/case.rs"]
mod case;
#[allow(dead_code, reason = "the operator collects the input of the rules here")]
#[path = "../../crates/plan/tests/admission/world.rs"]
mod world;

mod admission;
mod admission_certificates;
mod admission_off;
mod admission_server;
mod admission_status;
mod admission_timing;
mod agent;
mod agent_drain;
mod agent_settings;
mod bridge_resources;
mod bridges;
mod device_plugin;
mod drain;
mod drain_fleet;
mod drain_migration;
mod drain_mishaps;
mod drain_single_node;
mod idle_connections;
mod networks;
mod operator_config;
mod plugin_hold;
mod policy_status;
mod pools;
mod replicas;
mod rights;
mod slice;
mod takeover;
mod troubles;

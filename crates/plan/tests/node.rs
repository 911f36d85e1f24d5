//! What is done on a machine whose state no machine file can describe: VFs in use, VFs that changed behind our back,
//! cards that cannot be read.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

#[path = "node/before_network.rs"]
mod before_network;
#[path = "node/disruption.rs"]
mod disruption;
#[path = "node/external.rs"]
mod external;
#[path = "node/infiniband.rs"]
mod infiniband;
#[path = "node/machine.rs"]
mod machine;
#[path = "node/protection.rs"]
mod protection;
#[path = "node/report.rs"]
mod report;
#[path = "node/vdpa.rs"]
mod vdpa;

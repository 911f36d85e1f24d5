//! Every decision, as pure functions over plain data: facts in, plan out.
//!
//! - [`policy`]: policies and a node's reported cards => what the node shall be like (node state spec)
//! - [`node`]: node state spec and host facts => steps
//! - [`network`]: a network => its NetworkAttachmentDefinition
//! - [`report`]: host facts => what the node is like (node state status)
//!
//! This room does no I/O, has no clock, no environment, no async and no logging. The crate is `no_std`, so that
//! the compiler says so: see `docs/decisions/0001-the-planner-is-no-std.md`.

#![no_std]

extern crate alloc;

pub mod facts;
pub mod network;
pub mod node;
pub mod policy;
pub mod report;
pub mod step;

mod mac;
mod prelude;

pub use facts::{FirstSeen, HostFacts, LinkFacts, LinkKind, PfFacts, Record, VfFacts};
pub use node::{Problem, plan_node};
pub use policy::{NamedPolicy, PolicyProblem, plan_node_spec};
pub use step::{Disruption, Plan, PlannedStep, Step, VfDriver, is_userspace_driver};

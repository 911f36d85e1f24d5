//! CNI plugins in one small program, selected by the name of the executable: no async runtime, no Kubernetes client.
//!
//! - [`program`]: arguments, environment and standard input => output and exit status
//! - [`call`]: one call of a plugin by a container runtime
//! - [`engine`]: facts, plan, journal, steps and undo of an attachment, for the plugins and for programs that repair
//!   attachments whose pod is gone
//!
//! Plugins decide with `vfleet-plan` and act through `vfleet-host`, both without the features that only `vfleet` needs
//! (`docs/decisions/0014-plain-types-below-crds-above.md`).

pub mod call;
pub mod engine;
mod failure;
mod ipam;
mod log;
pub mod program;

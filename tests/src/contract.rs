//! One suite of cases for every [`Host`](vfleet_host::Host).
//!
//! A case works on a [`Bench`]: the host under test, somebody else who changes the same machine, and a witness
//! who looks at the machine without the host's help. `contract_sim.rs` runs the suite on `SimHost`, the program
//! `contract` on the kernel of the machine that it runs on (`lab.rs` runs it in the VM lab). Deliberately
//! [`broken`] hosts show that the suite bites.
//!
//! Embedded switches are on the lab's kernel, too: the lab's module labswitch gives its PCI card one, of each kind that
//! the planner knows an order for. Not there are InfiniBand, RDMA, vDPA on VFs, firmware settings and VFs without their
//! PF: [`coverage`] has the table of what cannot run where, and every run is held to it.

pub mod bench;
pub mod broken;
pub mod cases;
pub mod check;
pub mod coverage;
pub mod linux;
pub mod seen;
pub mod sim;
pub mod specs;
pub mod suite;

pub use bench::{Bench, Outsider, Port, SeenFile, Shown, Stop, Way, Witness};
pub use broken::{Defect, all_defects, defects_for_kernel};
pub use cases::{Case, GIVEN_VFS, Given, all_cases, find_case};
pub use coverage::Environment;
pub use suite::{Ending, Report};

/// The exit status of the program `contract` when a case has failed. Other failures of the program have others.
pub const SOME_FAILED: u8 = 1;

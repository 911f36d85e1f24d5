//! Contract suite of hosts: one suite of cases for every [`Host`](vfleet_host::Host).
//!
//! A case runs on a [`TestBed`]: the host under test, an [`Administrator`] that changes the same machine, and an
//! [`Observer`] that reads the machine without the host. `contract_sim.rs` runs the suite on `SimHost`. The program
//! `contract` runs it on the kernel of the machine that it is started on (`lab.rs` starts it in the VM lab).
//! Deliberately [`broken`] hosts show that the suite detects defects.
//!
//! The kernel module labswitch gives the card in the lab an embedded switch of each kind that the planner supports.
//! InfiniBand, RDMA, vDPA on VFs, firmware settings and lone VFs do not exist in the lab: [`coverage`] lists the cases
//! that cannot run there, and every run is checked against that list.

pub mod bridges;
pub mod broken;
pub mod cases;
pub mod check;
pub mod coverage;
pub mod linux;
pub mod observed;
pub mod pods;
pub mod sim;
pub mod specs;
pub mod suite;
pub mod switch_ports;
pub mod testbed;

pub use broken::{Defect, all_defects, defects_for_kernel};
pub use cases::{CardSetup, Case, INITIAL_VFS, all_cases, find_case, is_about_bridges};
pub use coverage::Environment;
pub use suite::{CaseOutcome, CaseReport};
pub use testbed::{
    Administrator, CaseError, CaseResult, ObservedFile, Observer, PciFunction, RoutePath, TestBed,
};

/// Exit status of the program `contract` when a case has failed. Other errors of the program have another status.
pub const EXIT_CASE_FAILED: u8 = 1;

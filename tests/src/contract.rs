//! One suite of cases for every [`Host`](vfleet_host::Host).
//!
//! A case works on a [`Bench`]: the host under test, somebody else who changes the same machine, and a witness
//! who looks at the machine without the host's help. `contract_sim.rs` runs the suite on `SimHost`, the program
//! `contract` on the kernel of the machine that it runs on (`lab.rs` runs it in the VM lab). Deliberately
//! [`broken`] hosts show that the suite bites.
//!
//! Cards with an embedded switch are not on the lab's kernel: netdevsim has switchdev mode and representors, but is no
//! PCI device. A host finds cards below `/sys/bus/pci`, and facts, steps and devlink name them by their PCI address,
//! which netdevsim has not; its VFs are a number, without devices that drivers could be bound to. So the parts of
//! `LinuxHost` that talk to such cards are tried on netdevsim one by one (`on_kernel` in `crates/host`), and the cases
//! that are given a `SwitchCard` on `SimHost` alone.

pub mod bench;
pub mod broken;
pub mod cases;
pub mod check;
pub mod linux;
pub mod seen;
pub mod sim;
pub mod specs;
pub mod suite;

pub use bench::{Bench, Outsider, Port, SeenFile, Shown, Stop, Way, Witness};
pub use broken::{Defect, all_defects};
pub use cases::{Case, GIVEN_VFS, Given, all_cases, find_case};
pub use suite::{Ending, Report};

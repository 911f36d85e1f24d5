//! A machine in memory that obeys the same steps as a real one.
//!
//! It is a model of the kernel and not a mock: one contract suite (`tests/src/contract`) holds it to what a Linux
//! kernel with an SR-IOV card (Intel 82576, drivers igb and igbvf) was seen to do. Where the two differ, the
//! kernel is right.
//!
//! - [`Machine`]: what a machine is made of, as a YAML file describes it
//! - [`Kernel`]: the machine while it runs; its methods are what any process can ask of a kernel
//! - [`SimHost`]: a process on such a machine, which can be made to fail, hang or die at any step

mod arguments;
mod facts;
mod faults;
mod host;
mod kernel;
mod machine;
mod parts;
mod random;
mod requests;
mod steps;

pub use host::SimHost;
pub use kernel::Kernel;
pub use machine::{
    CardFirmware, CardLinkKind, EswitchRule, HexId, Machine, MachineError, MachineKernel, MachinePf,
};
pub use parts::{Link, Pf, Rdma, Vf};
pub use requests::Refusal;

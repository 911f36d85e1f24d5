//! Simulated machine in memory that executes the same steps as a real one.
//!
//! It models the kernel: one contract suite (`tests/src/contract`) compares it with the observed behavior of a Linux
//! kernel with an SR-IOV card (Intel 82576, drivers igb and igbvf). Where the two differ, the kernel is right.
//!
//! - [`Machine`]: description of a machine, as in a YAML file
//! - [`Kernel`]: state of a running machine; its methods are requests that any process can send to a kernel
//! - [`SimHost`]: process on such a machine, which can be made to fail, hang or die at any step

mod arguments;
mod attached;
mod attachment;
mod bridges;
mod devices;
mod facts;
mod faults;
mod host;
mod kernel;
mod machine;
mod namespaces;
mod ovs;
mod random;
mod requests;
mod steps;
mod virtual_links;

pub use attachment::{DelegateRecord, EffectFault, SimCniFiles};
pub use bridges::SimBridge;
pub use devices::{SimLink, SimPf, SimPortLink, SimRdmaDevice, SimVf, SimVfSettings};
pub use host::SimHost;
pub use kernel::Kernel;
pub use machine::{
    CardFirmware, CardLinkKind, EswitchRule, HexId, Machine, MachineBridge, MachineError, MachineKernel,
    MachineOvs, MachinePf, VfRules, VfSetting,
};
pub use namespaces::{NamespacePath, SimNamespace, SimNamespaces, SimVirtualLink};
pub use ovs::{OVS_SOCKET, SimOvs, SimPortColumns};
pub use requests::Refusal;
pub use virtual_links::SimVeth;

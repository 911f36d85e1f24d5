//! Plans for states that no machine file can describe: VFs in use, VFs that something else changed, and cards that
//! cannot be read.

mod attachment;
mod before_network;
mod bridge;
mod disruption;
mod external;
mod infiniband;
mod machine;
mod mtu;
mod protection;
mod report;
mod vdpa;

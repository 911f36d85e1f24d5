//! What is done on a machine whose state no machine file can describe: VFs in use, VFs that changed behind our back,
//! cards that cannot be read.

mod before_network;
mod disruption;
mod external;
mod infiniband;
mod machine;
mod mtu;
mod protection;
mod report;
mod vdpa;

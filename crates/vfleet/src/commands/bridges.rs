//! Settings of software bridges, for commands that configure a machine.

use clap::ArgAction;
use vfleet_api::keys::agent_environment as name;
use vfleet_plan::files::OVSDB_SOCKET;

use crate::commands::agent::parse_bool;

/// Settings of software bridges.
#[derive(clap::Args)]
pub(crate) struct BridgeArguments {
    /// Manage software bridges; alone it means true
    #[arg(
        long,
        value_name = "BOOL",
        env = name::MANAGE_SOFTWARE_BRIDGES,
        default_value = "false",
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set,
        value_parser = parse_bool
    )]
    pub(crate) manage_software_bridges: bool,
    /// Socket of the Open vSwitch database on the host: PATH, unix:PATH or unix:///PATH
    #[arg(
        long,
        alias = "ovs-socket-path",
        value_name = "PATH",
        env = name::OVSDB_SOCKET_PATH,
        default_value = OVSDB_SOCKET
    )]
    ovsdb_socket_path: String,
    /// Cluster type: kubernetes or openshift, where pools enable hardware offload of Open vSwitch
    #[arg(long, value_name = "TYPE", env = name::CLUSTER_TYPE, default_value = "kubernetes")]
    cluster_type: String,
}

impl BridgeArguments {
    /// Returns the socket of the Open vSwitch database. An empty path is the default one.
    pub(crate) fn ovsdb_socket(&self) -> &str {
        let path = self.ovsdb_socket_path.trim();
        if path.is_empty() { OVSDB_SOCKET } else { path }
    }

    /// Returns whether hardware offload of Open vSwitch is enabled for PFs in switchdev mode.
    pub(crate) fn enables_offload(&self) -> bool {
        !self.is_on_openshift()
    }

    /// Returns whether the cluster is OpenShift.
    pub(crate) fn is_on_openshift(&self) -> bool {
        self.cluster_type.trim().eq_ignore_ascii_case("openshift")
    }
}

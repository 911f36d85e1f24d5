//! Settings that the operator passes to its agents. An invalid value does not keep an agent from starting: it is
//! ignored with a warning.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use clap::ArgAction;
use vfleet_agent::{GoPlugin, Mode};
use vfleet_api::keys::agent_environment as name;
use vfleet_plan::bridge_resources::BridgeResourceMode;
use vfleet_plan::cni::programs::default_directory;
use vfleet_plan::{DEFAULT_PROTECTION_TIME, NodeOptions, NodeSettings};

use crate::commands::bridges::BridgeArguments;

/// Settings that the operator passes to its agents.
#[derive(clap::Args)]
#[command(next_help_heading = "Settings (passed by the operator)")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(super) struct SettingsArguments {
    /// Configure several cards in parallel
    #[arg(
        long,
        value_name = "BOOL",
        env = name::PARALLEL_NIC_CONFIG,
        default_value = "true",
        action = ArgAction::Set,
        value_parser = parse_bool
    )]
    parallel_nic_config: bool,
    /// Reset the firmware of a Mellanox card after its settings changed, before the node reboots
    #[arg(
        long,
        value_name = "BOOL",
        env = name::MELLANOX_FIRMWARE_RESET,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = parse_bool
    )]
    mellanox_firmware_reset: bool,
    /// Vendors whose support is disabled, separated by commas; possible value: mellanox
    #[arg(
        long,
        value_name = "VENDORS",
        env = name::DISABLE_PLUGINS,
        default_value = "",
        hide_default_value = true
    )]
    disable_plugins: String,
    /// Report all cards, including those that the ConfigMap supported-nic-ids does not list
    #[arg(
        long,
        value_name = "BOOL",
        env = name::DEV_MODE,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = parse_bool
    )]
    dev_mode: bool,
    /// The external Go device plugin announces the VFs of the node
    #[arg(
        long,
        value_name = "BOOL",
        env = name::GO_DEVICE_PLUGIN,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = parse_bool
    )]
    go_device_plugin: bool,
    /// Stop the external Go device plugin on the node while VFs are created and removed
    #[arg(
        long,
        value_name = "BOOL",
        env = name::HOLD_BACK_DEVICE_PLUGIN,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = parse_bool
    )]
    hold_back_device_plugin: bool,
    /// Request drains from an external drainer, by annotations
    #[arg(
        long,
        value_name = "BOOL",
        env = name::USE_EXTERNAL_DRAINER,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = parse_bool
    )]
    use_external_drainer: bool,
    /// Report Open vSwitch bridges as resources of the Node
    #[arg(
        long,
        value_name = "BOOL",
        env = name::OVS_BRIDGE_RESOURCES,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = parse_bool
    )]
    ovs_bridge_resources: bool,
    /// Configuration mode: daemon (by the agent) or systemd (by systemd units at boot)
    #[arg(long, value_name = "MODE", env = name::CONFIGURATION_MODE, default_value = "daemon")]
    configuration_mode: String,
    /// Addresses of the node, separated by commas
    ///
    /// Reports name them. Cards with any address are protected.
    #[arg(long, value_name = "ADDRESSES", env = name::HOST_IPS, default_value = "", hide_default_value = true)]
    host_ips: String,
    /// Seconds that a card stays protected after the node last used it
    #[arg(
        long,
        value_name = "SECONDS",
        env = name::HOST_PROTECTION_SECONDS,
        default_value = "300",
        value_parser = parse_seconds
    )]
    host_protection_seconds: Duration,
    /// Directory of CNI plugins on the host [default: /opt/cni/bin, on OpenShift /var/lib/cni/bin]
    #[arg(long, value_name = "DIRECTORY", env = name::CNI_BIN_PATH, default_value = "", hide_default_value = true)]
    cni_bin_path: String,
    /// CNI plugins that other programs provide, separated by commas; the agent does not report them
    #[arg(
        long,
        value_name = "PLUGINS",
        env = name::OTHER_CNI_PLUGINS,
        default_value = "",
        hide_default_value = true
    )]
    other_cni_plugins: String,
    #[command(flatten)]
    bridges: BridgeArguments,
}

impl SettingsArguments {
    /// Returns the settings that influence plans.
    pub(super) fn node_settings(&self) -> NodeSettings {
        NodeSettings {
            options: NodeOptions {
                firmware_reset: self.mellanox_firmware_reset,
                mellanox: !words(&self.disable_plugins).any(|vendor| vendor == "mellanox"),
                manage_bridges: self.bridges.manage_software_bridges,
                ovs_offload: self.bridges.enables_offload(),
            },
            one_card_at_a_time: !self.parallel_nic_config,
            has_lone_vfs: false,
            node_addresses: parse_node_addresses(&self.host_ips),
            ovsdb_socket: self.bridges.ovsdb_socket().to_owned(),
        }
    }

    /// Returns the time that a card stays protected after the node last used it.
    pub(super) const fn protection_time(&self) -> Duration {
        self.host_protection_seconds
    }

    /// Returns the directory of CNI plugins on the host.
    pub(super) fn cni_directory(&self) -> String {
        match self.cni_bin_path.trim() {
            "" => default_directory(self.bridges.is_on_openshift()).to_owned(),
            path => path.to_owned(),
        }
    }

    /// Returns the names of CNI plugins that other programs provide.
    pub(super) fn other_cni_plugins(&self) -> Vec<String> {
        words(&self.other_cni_plugins).map(str::to_owned).collect()
    }

    /// Returns the handling of the resources of the Node that stand for Open vSwitch bridges.
    pub(super) const fn bridge_resources(&self) -> BridgeResourceMode {
        if self.ovs_bridge_resources { BridgeResourceMode::Reported } else { BridgeResourceMode::Withdrawn }
    }

    /// Applies the other settings to `config`.
    pub(super) fn apply(&self, config: &mut vfleet_agent::Config) {
        config.mode = parse_mode(&self.configuration_mode);
        config.follows_nic_ids = !self.dev_mode;
        config.go_plugin = match (self.go_device_plugin, self.hold_back_device_plugin) {
            (_, true) => GoPlugin::HeldBack,
            (true, false) => GoPlugin::Present,
            (false, false) => GoPlugin::Absent,
        };
        config.bridge_resources = self.bridge_resources();
        config.uses_external_drainer = self.use_external_drainer;
    }
}

fn parse_mode(text: &str) -> Mode {
    match text.trim() {
        "systemd" => Mode::Systemd,
        "daemon" | "" => Mode::Daemon,
        other => {
            tracing::warn!(mode = other, "unknown configuration mode: using daemon");
            Mode::Daemon
        }
    }
}

/// Parses addresses, separated by commas.
pub(crate) fn parse_node_addresses(text: &str) -> Vec<IpAddr> {
    words(text).filter_map(parse_address).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn parse_address(text: &str) -> Option<IpAddr> {
    let parsed = text.parse();
    if parsed.is_err() {
        tracing::warn!(text, "not an IP address: ignored");
    }
    parsed.ok()
}

#[expect(clippy::unnecessary_wraps, reason = "clap requires a Result")]
pub(crate) fn parse_bool(text: &str) -> Result<bool, Infallible> {
    Ok(matches!(text.trim().to_ascii_lowercase().as_str(), "true" | "1" | "yes"))
}

#[expect(clippy::unnecessary_wraps, reason = "clap requires a Result")]
fn parse_seconds(text: &str) -> Result<Duration, Infallible> {
    let parsed = text.trim().parse();
    if parsed.is_err() {
        tracing::warn!(text, "not a number of seconds: using the default protection time");
    }
    Ok(parsed.map_or(DEFAULT_PROTECTION_TIME, Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: SettingsArguments,
    }

    fn settings(arguments: &[&str]) -> SettingsArguments {
        Line::parse_from([&["agent"], arguments].concat()).settings
    }

    #[test]
    fn settings_are_parsed_and_invalid_values_are_ignored() {
        let defaults = settings(&[]);
        let options = NodeOptions { ovs_offload: true, ..NodeOptions::default() };
        assert_eq!(defaults.node_settings(), NodeSettings { options, ..NodeSettings::default() });
        let line = ["--dev-mode=TRUE", "--parallel-nic-config=", "--host-ips=10.0.0.1, fd00::1,x,"];
        let set = settings(&line);
        assert!(set.dev_mode && set.node_settings().one_card_at_a_time);
        let addresses: Vec<_> = set.node_settings().node_addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "fd00::1"]);
        assert_eq!(defaults.protection_time(), DEFAULT_PROTECTION_TIME);
        let protection_time = |text| settings(&["--host-protection-seconds", text]).protection_time();
        assert_eq!(["7", "x"].map(protection_time), [Duration::from_secs(7), DEFAULT_PROTECTION_TIME]);
        let vendors = settings(&["--disable-plugins= intel,mellanox", "--mellanox-firmware-reset=1"]);
        assert_eq!(
            vendors.node_settings().options,
            NodeOptions { firmware_reset: true, mellanox: false, ..options }
        );
        let bridges = |line: &[&str]| settings(line).node_settings();
        for (line, expected) in
            [("--manage-software-bridges", true), ("--manage-software-bridges=false", false)]
        {
            assert_eq!(bridges(&[line]).options.manage_bridges, expected);
        }
        assert_eq!(bridges(&["--ovs-socket-path", "unix:///x"]).ovsdb_socket, "unix:///x");
        assert_eq!(bridges(&["--ovsdb-socket-path="]).ovsdb_socket, bridges(&[]).ovsdb_socket, "a default");
        assert_eq!(defaults.bridge_resources(), BridgeResourceMode::Withdrawn);
        let reporting = settings(&["--ovs-bridge-resources=true"]);
        assert_eq!(reporting.bridge_resources(), BridgeResourceMode::Reported);
        assert!(!bridges(&["--cluster-type=openshift"]).options.ovs_offload);
        let directory = |line: &[&str]| settings(line).cni_directory();
        assert_eq!(directory(&["--cni-bin-path="]), "/opt/cni/bin");
        assert_eq!(directory(&["--cluster-type=openshift"]), "/var/lib/cni/bin");
        assert_eq!(directory(&["--cluster-type=openshift", "--cni-bin-path=/x"]), "/x");
        assert_eq!(settings(&["--other-cni-plugins=sriov, rdma"]).other_cni_plugins(), ["sriov", "rdma"]);
        assert_eq!(parse_mode(&defaults.configuration_mode), Mode::Daemon);
        assert_eq!(["systemd", "x", ""].map(parse_mode), [Mode::Systemd, Mode::Daemon, Mode::Daemon]);
    }
}

//! What the operator tells its agents. A value that makes no sense is never a reason not to start: an agent that ends at
//! once is worse than one with a setting less.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use clap::ArgAction;
use vfleet_agent::Mode;
use vfleet_api::keys::agent_environment as name;
use vfleet_plan::{NodeOptions, NodeSettings, PROTECTION};

/// What the operator tells its agents.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(super) struct Settings {
    /// Work on several cards at once.
    #[arg(long, value_name = "BOOL", env = name::PARALLEL_NIC_CONFIG, default_value = "true", action = ArgAction::Set, value_parser = truth)]
    parallel_nic_config: bool,
    /// Restart the firmware of a card whose settings changed, before the machine is.
    #[arg(long, value_name = "BOOL", env = name::MELLANOX_FIRMWARE_RESET, default_value = "false", action = ArgAction::Set, value_parser = truth)]
    mellanox_firmware_reset: bool,
    /// Support of vendors that is switched off, separated by commas: mellanox.
    #[arg(long, value_name = "VENDORS", env = name::DISABLE_PLUGINS, default_value = "")]
    disable_plugins: String,
    /// Report every card, also one that the ConfigMap supported-nic-ids does not list.
    #[arg(long, value_name = "BOOL", env = name::DEV_MODE, default_value = "false", action = ArgAction::Set, value_parser = truth)]
    dev_mode: bool,
    /// Hold the separate device plugin on the node back while VFs come and go.
    #[arg(long, value_name = "BOOL", env = name::HOLD_BACK_DEVICE_PLUGIN, default_value = "false", action = ArgAction::Set, value_parser = truth)]
    hold_back_device_plugin: bool,
    /// Somebody else drains nodes, and is asked by annotations.
    #[arg(long, value_name = "BOOL", env = name::USE_EXTERNAL_DRAINER, default_value = "false", action = ArgAction::Set, value_parser = truth)]
    use_external_drainer: bool,
    /// Who configures the cards: daemon (the agent, while it runs), or systemd (units, at boot).
    #[arg(long, value_name = "MODE", env = name::CONFIGURATION_MODE, default_value = "daemon")]
    configuration_mode: String,
    /// The node's own addresses, separated by commas. Cards with other addresses are protected as well.
    #[arg(long, value_name = "ADDRESSES", env = name::HOST_IPS, default_value = "")]
    host_ips: String,
    /// How long a card that the node itself used stays protected after that was last seen.
    #[arg(long, value_name = "SECONDS", env = name::HOST_PROTECTION_SECONDS, default_value = "300", value_parser = seconds)]
    host_protection_seconds: Duration,
}

impl Settings {
    /// What of them decides what happens to the cards.
    pub(super) fn of_node(&self) -> NodeSettings {
        NodeSettings {
            options: NodeOptions {
                firmware_reset: self.mellanox_firmware_reset,
                mellanox: !words(&self.disable_plugins).any(|vendor| vendor == "mellanox"),
            },
            one_card_at_a_time: !self.parallel_nic_config,
            has_lone_vfs: false,
            node_addresses: node_addresses(&self.host_ips),
        }
    }

    /// How long a use protects a card after it was last seen.
    pub(super) const fn protection(&self) -> Duration {
        self.host_protection_seconds
    }

    /// Makes `config` follow the others.
    pub(super) fn apply(&self, config: &mut vfleet_agent::Config) {
        config.mode = mode(&self.configuration_mode);
        config.follows_nic_ids = !self.dev_mode;
        config.holds_go_plugin_back = self.hold_back_device_plugin;
        config.uses_external_drainer = self.use_external_drainer;
    }
}

fn mode(text: &str) -> Mode {
    match text.trim() {
        "systemd" => Mode::Systemd,
        "daemon" | "" => Mode::Daemon,
        other => {
            tracing::warn!(mode = other, "not a mode that is known; the agent configures the cards itself");
            Mode::Daemon
        }
    }
}

/// Parses addresses, separated by commas.
pub(crate) fn node_addresses(text: &str) -> Vec<IpAddr> {
    words(text).filter_map(address).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn address(text: &str) -> Option<IpAddr> {
    let parsed = text.parse();
    if parsed.is_err() {
        tracing::warn!(text, "not an address of the node; left out");
    }
    parsed.ok()
}

#[expect(clippy::unnecessary_wraps, reason = "that is what a parser of arguments looks like")]
fn truth(text: &str) -> Result<bool, Infallible> {
    Ok(matches!(text.trim().to_ascii_lowercase().as_str(), "true" | "1" | "yes"))
}

#[expect(clippy::unnecessary_wraps, reason = "that is what a parser of arguments looks like")]
fn seconds(text: &str) -> Result<Duration, Infallible> {
    let parsed = text.trim().parse();
    if parsed.is_err() {
        tracing::warn!(text, "not a number of seconds; what the node uses is protected as usual");
    }
    Ok(parsed.map_or(PROTECTION, Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    fn settings(arguments: &[&str]) -> Settings {
        Line::parse_from([&["agent"], arguments].concat()).settings
    }

    #[test]
    fn settings_are_read_and_nonsense_is_left_out() {
        let usual = settings(&[]);
        assert_eq!(usual.of_node(), NodeSettings::default());
        let line = ["--dev-mode=TRUE", "--parallel-nic-config=", "--host-ips=10.0.0.1, fd00::1,x,"];
        let set = settings(&line);
        assert!(set.dev_mode && set.of_node().one_card_at_a_time);
        let addresses: Vec<_> = set.of_node().node_addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "fd00::1"]);
        assert_eq!(usual.protection(), PROTECTION);
        let protection = |text| settings(&["--host-protection-seconds", text]).protection();
        assert_eq!(["7", "x"].map(protection), [Duration::from_secs(7), PROTECTION]);
        let vendors = settings(&["--disable-plugins= intel,mellanox", "--mellanox-firmware-reset=1"]);
        assert_eq!(vendors.of_node().options, NodeOptions { firmware_reset: true, mellanox: false });
        assert_eq!(mode(&usual.configuration_mode), Mode::Daemon);
        assert_eq!(["systemd", "x", ""].map(mode), [Mode::Systemd, Mode::Daemon, Mode::Daemon]);
    }
}

//! Files that vfleet writes on the host for other programs: udev rules, module options, systemd units. Paths are
//! relative to the root of the host.

use crate::prelude::*;

/// Directory of udev rules.
pub const UDEV_RULES: &str = "/etc/udev/rules.d";
/// Module options with the RDMA mode.
pub const MODULE_OPTIONS: &str = "/etc/modprobe.d/sriov_network_operator_modules_config.conf";
/// Script that tells udev whether NetworkManager must ignore a VF.
pub const DISABLE_NM_SCRIPT: &str = "/etc/udev/disable-nm-sriov.sh";
/// Script that tells udev the name of a representor.
pub const REPRESENTOR_SCRIPT: &str = "/etc/udev/switchdev-vf-link-name.sh";
/// Configuration for `vfleet boot`.
pub const BOOT_CONFIG: &str = "/etc/sriov-operator/sriov-interface-config.yaml";
/// Result of `vfleet boot`.
pub const BOOT_RESULT: &str = "/etc/sriov-operator/sriov-interface-result.yaml";
/// Supported cards for `vfleet boot`, one per line.
pub const BOOT_NIC_IDS: &str = "/etc/sriov-operator/sriov-supported-nics-ids.yaml";
/// Directory of systemd units.
pub const UNIT_DIRECTORY: &str = "/etc/systemd/system";
/// Unit of systemd mode that creates VFs, before the network starts.
pub const FIRST_UNIT: &str = "sriov-config.service";
/// Unit of systemd mode that binds VFs, after the network started.
pub const LAST_UNIT: &str = "sriov-config-post-network.service";
/// Unit of systemd mode that creates Open vSwitch bridges, between the others. It exists only where it is needed.
pub const BRIDGE_UNIT: &str = "sriov-config-bridges.service";
/// Units of systemd mode.
pub const UNITS: [&str; 3] = [FIRST_UNIT, LAST_UNIT, BRIDGE_UNIT];
/// Default socket of the Open vSwitch database.
pub const OVSDB_SOCKET: &str = "/var/run/openvswitch/db.sock";
/// Program that the units start.
pub const BOOT_PROGRAM: &str = "/var/lib/sriov/vfleet";
/// Program that the units of the Go daemon start.
pub const GO_BOOT_PROGRAM: &str = "/var/lib/sriov/sriov-network-config-daemon";
/// InfiniBand GUIDs for VFs, written by the administrator.
pub const GUIDS: &str = "/etc/sriov-operator/infiniband/guids";
/// Reboots that the agent requested.
pub const REBOOTS: &str = "/etc/sriov-operator/vfleet/reboots.json";
/// Recent uses of cards by the node itself.
pub const HOST_USES: &str = "/etc/sriov-operator/vfleet/host-uses.json";

/// Open vSwitch bridges that the Go daemon or vfleet created.
pub const MANAGED_OVS_BRIDGES: &str = "/etc/sriov-operator/managed-ovs-bridges.json";

/// Files with a fixed name whose content belongs to the host facts, besides the units.
pub const FIXED: [&str; 7] = [
    MODULE_OPTIONS,
    DISABLE_NM_SCRIPT,
    REPRESENTOR_SCRIPT,
    BOOT_CONFIG,
    BOOT_RESULT,
    BOOT_NIC_IDS,
    MANAGED_OVS_BRIDGES,
];

/// Returns the path of a systemd unit.
pub fn unit_path(unit: &str) -> String {
    format!("{UNIT_DIRECTORY}/{unit}")
}

/// Start of the names of udev rules that hide bridges from NetworkManager.
pub(crate) const BRIDGE_RULE: &str = "10-nm-bridge-";

/// Returns whether vfleet writes the file at `path` only for bridges.
pub(crate) fn is_for_bridges(path: &str) -> bool {
    let rule = path.strip_prefix(UDEV_RULES).and_then(|rest| rest.strip_prefix('/'));
    path == MANAGED_OVS_BRIDGES || rule.is_some_and(|rule| rule.starts_with(BRIDGE_RULE))
}

/// Returns whether vfleet or the Go daemon writes a file of this name in [`UDEV_RULES`].
pub fn is_our_rule(name: &str) -> bool {
    let has_prefix = |prefix: &str| {
        name.strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(".rules"))
            .is_some_and(|pf| !pf.is_empty())
    };
    name == "10-nm-unmanaged.rules"
        || [BRIDGE_RULE, "10-nm-disable-", "10-pf-name-", "20-switchdev-"].into_iter().any(has_prefix)
}

/// Returns whether the file at `path` is a udev rule that hides new interfaces from NetworkManager, and has to be
/// effective before they exist.
pub fn is_nm_rule(path: &str) -> bool {
    let name = path.strip_prefix(UDEV_RULES).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| is_our_rule(name) && name.starts_with("10-nm-"))
}

/// Returns whether vfleet may write and delete the file at `path`.
pub fn is_ours(path: &str) -> bool {
    let name_in = |directory: &str| path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    FIXED.contains(&path)
        || [BOOT_PROGRAM, GO_BOOT_PROGRAM].contains(&path)
        || name_in(UNIT_DIRECTORY).is_some_and(|name| UNITS.contains(&name))
        || name_in(UDEV_RULES).is_some_and(|name| !name.contains('/') && is_our_rule(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_new_interfaces_are_those_of_network_manager() {
        for name in ["10-nm-disable-0000:3b:00.0.rules", "10-nm-bridge-0000:3b:00.0.rules"] {
            assert!(is_nm_rule(&format!("{UDEV_RULES}/{name}")), "{name}");
        }
        for path in
            ["/etc/udev/rules.d/10-pf-name-0000:3b:00.0.rules", "10-nm-disable-x.rules", MODULE_OPTIONS]
        {
            assert!(!is_nm_rule(path), "{path}");
        }
    }

    #[test]
    fn only_the_files_named_here_are_ours() {
        for path in [
            MODULE_OPTIONS,
            BOOT_PROGRAM,
            "/etc/systemd/system/sriov-config.service",
            "/etc/udev/rules.d/10-nm-disable-0000:3b:00.0.rules",
            "/etc/udev/rules.d/10-nm-unmanaged.rules",
        ] {
            assert!(is_ours(path), "{path}");
        }
        for path in [
            GUIDS,
            REBOOTS,
            "/etc/passwd",
            "etc/udev/rules.d/10-nm-unmanaged.rules",
            "/etc/systemd/system/sshd.service",
            "/etc/systemd/system/sriov-config.service/x",
            "/etc/udev/rules.d/10-nm-disable-/../../../passwd.rules",
            "/etc/udev/rules.d/10-nm-disable-.rules",
            "",
        ] {
            assert!(!is_ours(path), "{path}");
        }
    }
}

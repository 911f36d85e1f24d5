//! Files on the host that vfleet keeps for other programs: udev rules, options of modules, units of systemd. All paths
//! are as seen from the host's own root.

use crate::prelude::*;

/// Where udev looks for rules.
pub const UDEV_RULES: &str = "/etc/udev/rules.d";
/// Options of modules: the RDMA mode.
pub const MODULE_OPTIONS: &str = "/etc/modprobe.d/sriov_network_operator_modules_config.conf";
/// Asked by udev whether NetworkManager shall leave a VF alone.
pub const DISABLE_NM_SCRIPT: &str = "/etc/udev/disable-nm-sriov.sh";
/// Asked by udev for the name of a representor.
pub const REPRESENTOR_SCRIPT: &str = "/etc/udev/switchdev-vf-link-name.sh";
/// What `vfleet boot` shall do.
pub const BOOT_CONFIG: &str = "/etc/sriov-operator/sriov-interface-config.yaml";
/// What came of it.
pub const BOOT_RESULT: &str = "/etc/sriov-operator/sriov-interface-result.yaml";
/// The cards that are allowed, one on each line, for `vfleet boot`.
pub const BOOT_NIC_IDS: &str = "/etc/sriov-operator/sriov-supported-nics-ids.yaml";
/// Where units of systemd are put.
pub const UNIT_DIRECTORY: &str = "/etc/systemd/system";
/// The units of systemd mode: before the network, and after it.
pub const UNITS: [&str; 2] = ["sriov-config.service", "sriov-config-post-network.service"];
/// The program that the units start.
pub const BOOT_PROGRAM: &str = "/var/lib/sriov/vfleet";
/// The program that the Go daemon's units start.
pub const GO_BOOT_PROGRAM: &str = "/var/lib/sriov/sriov-network-config-daemon";
/// InfiniBand GUIDs for VFs. Written by the administrator, never by vfleet.
pub const GUIDS: &str = "/etc/sriov-operator/infiniband/guids";
/// Restarts that were asked for.
pub const REBOOTS: &str = "/etc/sriov-operator/vfleet/reboots.json";
/// What the node itself used a moment ago.
pub const HOST_USES: &str = "/etc/sriov-operator/vfleet/host-uses.json";

/// Files with one fixed name whose text is among the facts, besides the units.
pub const FIXED: [&str; 6] =
    [MODULE_OPTIONS, DISABLE_NM_SCRIPT, REPRESENTOR_SCRIPT, BOOT_CONFIG, BOOT_RESULT, BOOT_NIC_IDS];

/// Where a unit of systemd is.
pub fn unit_path(unit: &str) -> String {
    format!("{UNIT_DIRECTORY}/{unit}")
}

/// Whether a file in [`UDEV_RULES`] is one that vfleet (or the Go daemon) writes.
pub fn is_our_rule(name: &str) -> bool {
    let is_named = |start: &str| {
        name.strip_prefix(start).and_then(|rest| rest.strip_suffix(".rules")).is_some_and(|pf| !pf.is_empty())
    };
    name == "10-nm-unmanaged.rules"
        || ["10-nm-disable-", "10-pf-name-", "20-switchdev-"].into_iter().any(is_named)
}

/// Whether vfleet may write the file at `path`, and remove it.
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

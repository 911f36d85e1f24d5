//! Administrator of Linux bridges and bonds, with `ip` and `bridge`.

use std::fs;
use std::path::{Path, PathBuf};

use vfleet_api::PciAddress;

use super::administrator::{LinuxAdministrator, interface};
use super::tools::{failed, run, write};
use crate::contract::bridges::LinuxBridgeAdministrator;
use crate::contract::testbed::CaseResult;

impl LinuxBridgeAdministrator for LinuxAdministrator {
    fn add_bridge(&self, name: &str) -> CaseResult {
        run("ip", &["link", "add", name, "type", "bridge"]).map(drop)
    }

    fn remove_bridge(&self, name: &str) -> CaseResult {
        run("ip", &["link", "delete", name, "type", "bridge"]).map(drop)
    }

    fn set_bridge_alias(&self, name: &str, alias: &str) -> CaseResult {
        run("ip", &["link", "set", name, "alias", alias]).map(drop)
    }

    fn set_bridge_group(&self, name: &str, group: u32) -> CaseResult {
        run("ip", &["link", "set", name, "group", &group.to_string()]).map(drop)
    }

    fn set_bridge_up(&self, name: &str, up: bool) -> CaseResult {
        run("ip", &["link", "set", name, if up { "up" } else { "down" }]).map(drop)
    }

    fn set_accept_ra(&self, name: &str, on: bool) -> CaseResult {
        write(&accept_ra(name), if on { "1" } else { "0" })
    }

    fn add_port(&self, bridge: &str, pf: PciAddress) -> CaseResult {
        run("ip", &["link", "set", &interface(pf)?, "master", bridge]).map(drop)
    }

    fn remove_port(&self, _: &str, pf: PciAddress) -> CaseResult {
        run("ip", &["link", "set", &interface(pf)?, "nomaster"]).map(drop)
    }

    fn set_port_setting(&self, _: &str, pf: PciAddress, setting: &str, value: &str) -> CaseResult {
        run("bridge", &["link", "set", "dev", &interface(pf)?, setting, value]).map(drop)
    }

    fn add_port_vlan(&self, _: &str, pf: PciAddress, vlan: u16) -> CaseResult {
        run("bridge", &["vlan", "add", "dev", &interface(pf)?, "vid", &vlan.to_string()]).map(drop)
    }

    fn add_bond(&self, name: &str, pf: PciAddress) -> CaseResult {
        run("ip", &["link", "add", name, "type", "bond"])?;
        let interface = interface(pf)?;
        // Only an interface that is down can become a member, which sets it up.
        run("ip", &["link", "set", &interface, "down"])?;
        run("ip", &["link", "set", &interface, "master", name]).map(drop)
    }
}

/// Returns the file of the kernel that says whether an interface accepts router advertisements.
pub(super) fn accept_ra(name: &str) -> PathBuf {
    Path::new("/proc/sys/net/ipv6/conf").join(name).join("accept_ra")
}

/// Removes all Linux bridges and bonds.
pub(super) fn clear() -> CaseResult {
    let entries = fs::read_dir("/sys/class/net").map_err(|error| failed("/sys/class/net", &error))?;
    for entry in entries.flatten() {
        let has = |directory| entry.path().join(directory).is_dir();
        if has("bridge") || has("bonding") {
            run("ip", &["link", "delete", &entry.file_name().to_string_lossy()])?;
        }
    }
    Ok(())
}

//! Default routes of the test bed.

use std::path::Path;

use super::tools::{read, run};
use crate::contract::testbed::{CaseResult, RoutePath};

/// Metric that no other route of the machine has.
const METRIC: &str = "4999";
const VLAN: &str = "contract-vlan";
const BRIDGE: &str = "contract-bridge";

/// Adds a default route through the interface `name`.
pub(super) fn add(name: &str, path: RoutePath) -> CaseResult {
    run("ip", &["link", "set", name, "up"])?;
    let through = match path {
        RoutePath::Direct => name,
        RoutePath::Vlan => {
            run("ip", &["link", "add", "link", name, "name", VLAN, "type", "vlan", "id", "100"])?;
            VLAN
        }
        RoutePath::Bridge => {
            run("ip", &["link", "add", BRIDGE, "type", "bridge"])?;
            run("ip", &["link", "set", name, "master", BRIDGE])?;
            BRIDGE
        }
    };
    run("ip", &["link", "set", through, "up"])?;
    run("ip", &["route", "add", "default", "dev", through, "metric", METRIC]).map(drop)
}

/// Removes the default route, with its VLAN or bridge.
pub(super) fn remove() -> CaseResult {
    for name in [VLAN, BRIDGE] {
        if Path::new("/sys/class/net").join(name).exists() {
            run("ip", &["link", "delete", name])?;
        }
    }
    if exists()? {
        run("ip", &["route", "delete", "default", "metric", METRIC])?;
    }
    Ok(())
}

fn exists() -> Result<bool, crate::contract::CaseError> {
    let routes = read(Path::new("/proc/net/route"))?;
    // Interface, destination, gateway, flags, reference count, use, metric.
    let matches = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"00000000") && words.get(6) == Some(&METRIC)
    };
    Ok(routes.lines().any(matches))
}

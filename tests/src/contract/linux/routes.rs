//! Default routes, to be led and removed.

use std::path::Path;

use super::tools::{read, run};
use crate::contract::bench::{Shown, Way};

/// Nobody else has such a bad one.
const METRIC: &str = "4999";
const VLAN: &str = "contract-vlan";
const BRIDGE: &str = "contract-bridge";

/// Has a default route lead through the interface of this name.
pub(super) fn lead(name: &str, way: Way) -> Shown {
    run("ip", &["link", "set", name, "up"])?;
    let through = match way {
        Way::Direct => name,
        Way::Vlan => {
            run("ip", &["link", "add", "link", name, "name", VLAN, "type", "vlan", "id", "100"])?;
            VLAN
        }
        Way::Bridge => {
            run("ip", &["link", "add", BRIDGE, "type", "bridge"])?;
            run("ip", &["link", "set", name, "master", BRIDGE])?;
            BRIDGE
        }
    };
    run("ip", &["link", "set", through, "up"])?;
    run("ip", &["route", "add", "default", "dev", through, "metric", METRIC]).map(drop)
}

/// Removes it, with what it went through.
pub(super) fn remove() -> Shown {
    for name in [VLAN, BRIDGE] {
        if Path::new("/sys/class/net").join(name).exists() {
            run("ip", &["link", "delete", name])?;
        }
    }
    if is_led()? {
        run("ip", &["route", "delete", "default", "metric", METRIC])?;
    }
    Ok(())
}

fn is_led() -> Result<bool, crate::contract::Stop> {
    let routes = read(Path::new("/proc/net/route"))?;
    // Interface, destination, gateway, flags, reference count, use, metric.
    let is_it = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"00000000") && words.get(6) == Some(&METRIC)
    };
    Ok(routes.lines().any(is_it))
}

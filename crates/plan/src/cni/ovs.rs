//! Decisions of the plugin `ovs`.

mod add;
mod bridge;
mod check;
mod port;
mod release;
mod stale;
mod vdpa;
mod veth;

pub use add::plan_add;
pub(super) use bridge::require_running;
pub(super) use check::check;
pub(super) use port::find as find_port;
pub(super) use release::{plan_device_release, plan_port_release, plan_veth_release};
pub use stale::plan_stale_ports;

use core::net::IpAddr;

use vfleet_api::{MacAddr, PciAddress};

use super::config::OvsConfig;
use super::facts::SwitchQuery;
use super::journal::{OvsChanges, OvsLink, Plugin};
use crate::prelude::*;
use crate::sha256::sha256;

/// Start of MACs that are derived from an IP address.
const ADDRESS_MAC: [u8; 2] = [0x0a, 0x58];

impl OvsConfig {
    /// Returns the facts that an ADD needs.
    pub fn switch_query(&self) -> SwitchQuery {
        SwitchQuery {
            device: self.device,
            ovs: Some(self.socket.clone()),
            with_vdpa: self.device.is_some() && self.device_info.is_some(),
            peers_of: Some(Plugin::Ovs),
            device_info: self.device_info.clone().filter(|_| self.device.is_some()),
            ..SwitchQuery::default()
        }
    }
}

impl OvsChanges {
    /// Returns the facts that a CHECK or a release needs.
    pub fn switch_query(&self, device: Option<PciAddress>) -> SwitchQuery {
        SwitchQuery {
            device,
            ovs: Some(self.socket.clone()),
            with_vdpa: matches!(self.link, OvsLink::Vdpa { .. }),
            interfaces: match self.link {
                OvsLink::Veth { .. } => self.port.iter().cloned().collect(),
                OvsLink::Vf { .. } | OvsLink::Vdpa { .. } => BTreeSet::new(),
            },
            peers_of: Some(Plugin::Ovs),
            ..SwitchQuery::default()
        }
    }
}

/// Returns the MAC of an interface with this IP address, so that a later pod with the address is reached without a new
/// lookup: the address itself, or, for IPv6, the start of the digest of its text.
pub(super) fn mac_of_address(address: IpAddr) -> MacAddr {
    let [first, second] = ADDRESS_MAC;
    let [a, b, c, d] = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = sha256(address.to_string().as_bytes());
            [a, b, c, d]
        }
    };
    MacAddr([first, second, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_are_those_of_the_go_plugin() {
        for (address, mac) in [
            ("10.1.2.3", "0a:58:0a:01:02:03"),
            // printf %s 2001:db8::1 | sha256sum
            ("2001:db8::1", "0a:58:5a:fd:19:e8"),
        ] {
            assert_eq!(mac_of_address(address.parse().unwrap()).to_string(), mac);
        }
    }
}

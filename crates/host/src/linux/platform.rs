//! Networks of cards in a cloud, from the metadata of the cloud. A virtual machine sees only lone VFs, and policies
//! select them by network.

pub(super) mod aws;
pub(super) mod http;
pub(super) mod openstack;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::{Fact, Platform};

use self::http::Service;
use super::cache;
use super::root::HostRoot;
use crate::HostError;

/// Address of the metadata service of both clouds.
const METADATA_SERVICE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 80);
/// Limit for all requests to the metadata service. The service is close, and reads of cards must be fast.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Networks of the cards of a machine, in the format of `netFilter` in node states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Networks {
    pub(super) by_mac: BTreeMap<MacAddr, String>,
    pub(super) by_address: BTreeMap<PciAddress, String>,
}

/// Returns the network of a card. The answer is cached by PCI address, because a card that is bound to a userspace
/// driver has no MAC address any more. Failed requests are repeated later. The network is unknown if the card has no
/// MAC address and the cloud does not list its PCI address.
pub(super) fn read_network(
    root: &HostRoot,
    card: PciAddress,
    mac: Option<MacAddr>,
) -> Result<Fact<String>, Arc<HostError>> {
    let platform = root.platform();
    match platform {
        Platform::Unknown => return Ok(Fact::Unknown),
        Platform::BareMetal => return Ok(Fact::None),
        Platform::OpenStack | Platform::Aws => {}
    }
    let mut by_card = cache::lock(&root.cache().networks_by_card);
    if let Some(network) = by_card.get(&card) {
        return Ok(Fact::Value(network.clone()));
    }
    let networks = root
        .cache()
        .networks
        .get_or_query(cloud_name(platform), || read_networks(root, platform, METADATA_SERVICE))?;
    let network = mac.and_then(|mac| networks.by_mac.get(&mac)).or_else(|| networks.by_address.get(&card));
    by_card.extend(network.map(|network| (card, network.clone())));
    Ok(match (network, mac) {
        (Some(network), _) => Fact::Value(network.clone()),
        (None, Some(_)) => Fact::None,
        (None, None) => Fact::Unknown,
    })
}

/// Returns the name of the cloud for logs.
const fn cloud_name(platform: Platform) -> &'static str {
    match platform {
        Platform::Unknown | Platform::BareMetal => "no cloud",
        Platform::OpenStack => "openstack",
        Platform::Aws => "aws",
    }
}

fn read_networks(root: &HostRoot, platform: Platform, service: SocketAddr) -> Result<Networks, HostError> {
    let service = Service::new(service, METADATA_TIMEOUT);
    match platform {
        Platform::Unknown | Platform::BareMetal => Ok(Networks::default()),
        Platform::OpenStack => openstack::read_networks(root, service),
        Platform::Aws => aws::read_networks(service),
    }
}

#[cfg(test)]
#[path = "platform/tests.rs"]
mod tests;

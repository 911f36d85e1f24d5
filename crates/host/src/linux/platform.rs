//! Clouds: which network a card is on, as the cloud says. A virtual machine sees only its VFs there, and this is all
//! that a policy can choose by.

pub(super) mod aws;
pub(super) mod http;
pub(super) mod openstack;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use vfleet_api::{MacAddr, PciAddress};

use self::http::Service;
use super::kept;
use super::root::HostRoot;
use crate::HostError;

/// Where both clouds answer questions about a machine.
const METADATA_SERVICE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 80);
/// The service is next to the machine, and a look at a card must not take long.
const ANSWERING: Duration = Duration::from_secs(5);

/// What a machine runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platform {
    /// Hardware, or a virtual machine of nobody in particular.
    #[default]
    BareMetal,
    /// OpenStack.
    OpenStack,
    /// Amazon's cloud.
    Aws,
}

impl Platform {
    /// Of a node's `providerID`: `aws:///eu-west-1a/i-0123`.
    pub fn of_provider(id: &str) -> Self {
        let (cloud, _) = id.split_once("://").unwrap_or_default();
        match cloud.to_ascii_lowercase().as_str() {
            "openstack" => Self::OpenStack,
            "aws" => Self::Aws,
            _ => Self::BareMetal,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::BareMetal => "bare metal",
            Self::OpenStack => "openstack",
            Self::Aws => "aws",
        }
    }
}

/// The networks of a machine's cards, as a node state's `netFilter` spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Networks {
    pub(super) by_mac: BTreeMap<MacAddr, String>,
    pub(super) by_address: BTreeMap<PciAddress, String>,
}

/// The network of a card. It is asked for once, and remembered by the card's address: a card that is given to a program
/// shows no MAC any more. A cloud that does not answer is asked again later.
pub(super) fn network(
    root: &HostRoot,
    card: PciAddress,
    mac: Option<MacAddr>,
) -> Result<Option<String>, Arc<HostError>> {
    let platform = root.platform();
    if platform == Platform::BareMetal {
        return Ok(None);
    }
    let mut places = kept::lock(&root.kept().networks_by_card);
    if let Some(known) = places.get(&card) {
        return Ok(Some(known.clone()));
    }
    let networks = root.kept().networks.get(platform.name(), || ask(root, platform, METADATA_SERVICE))?;
    let network = mac.and_then(|mac| networks.by_mac.get(&mac)).or_else(|| networks.by_address.get(&card));
    places.extend(network.map(|network| (card, network.clone())));
    Ok(network.cloned())
}

fn ask(root: &HostRoot, platform: Platform, service: SocketAddr) -> Result<Networks, HostError> {
    let service = Service::new(service, ANSWERING);
    match platform {
        Platform::BareMetal => Ok(Networks::default()),
        Platform::OpenStack => openstack::networks(root, service),
        Platform::Aws => aws::networks(service),
    }
}

#[cfg(test)]
#[path = "platform/tests.rs"]
mod tests;

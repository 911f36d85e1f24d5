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
use vfleet_plan::Fact;

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
    /// Nobody said.
    #[default]
    Unknown,
    /// Hardware, or a virtual machine of nobody in particular.
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

    /// Returns whether the cards of a machine are VFs of PFs that are in the cloud around it.
    pub const fn has_lone_vfs(self) -> bool {
        matches!(self, Self::OpenStack | Self::Aws)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Unknown | Self::BareMetal => "no cloud",
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

/// Returns the network of a card. It is asked for once, and remembered by the card's address: a card that is given to a
/// program shows no MAC any more. A cloud that does not answer is asked again later. Of a card without a MAC that the
/// cloud does not know by its address the network is unknown.
pub(super) fn network(
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
    let mut places = kept::lock(&root.kept().networks_by_card);
    if let Some(known) = places.get(&card) {
        return Ok(Fact::Value(known.clone()));
    }
    let networks = root.kept().networks.get(platform.name(), || ask(root, platform, METADATA_SERVICE))?;
    let network = mac.and_then(|mac| networks.by_mac.get(&mac)).or_else(|| networks.by_address.get(&card));
    places.extend(network.map(|network| (card, network.clone())));
    Ok(match (network, mac) {
        (Some(network), _) => Fact::Value(network.clone()),
        (None, Some(_)) => Fact::None,
        (None, None) => Fact::Unknown,
    })
}

fn ask(root: &HostRoot, platform: Platform, service: SocketAddr) -> Result<Networks, HostError> {
    let service = Service::new(service, ANSWERING);
    match platform {
        Platform::Unknown | Platform::BareMetal => Ok(Networks::default()),
        Platform::OpenStack => openstack::networks(root, service),
        Platform::Aws => aws::networks(service),
    }
}

#[cfg(test)]
#[path = "platform/tests.rs"]
mod tests;

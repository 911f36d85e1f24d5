//! Results of plugins, in every version.
//!
//! A [`CniResult`] holds the form of the latest version; it is read from and written in each version as the Go library
//! of CNI does:
//!
//! | version | form |
//! |---|---|
//! | 0.1.0, 0.2.0 | `ip4` and `ip6`: the first address of each family, with the routes of that family; no interfaces |
//! | 0.3.0 to 0.4.0 | lists; addresses with their version; interfaces with name, MAC and sandbox only |
//! | 1.0.0, 1.1.0 | lists; interfaces with all fields; `dns` only if it is not empty |

mod prefix;
mod read;
mod write;

use core::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::json::{Json, KeyFault};
use super::{CniError, CniVersion, ErrorCode};
use crate::cni::step::IpPrefix;
use crate::prelude::*;

/// Result of ADD: of this plugin, of the plugin before it in a chain, or of an IPAM plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniResult {
    /// Interfaces.
    pub interfaces: Vec<ResultInterface>,
    /// IP addresses.
    pub ips: Vec<ResultIp>,
    /// Routes.
    pub routes: Vec<ResultRoute>,
    /// Name servers.
    pub dns: ResultDns,
}

/// Interface of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultInterface {
    /// Name.
    pub name: String,
    /// Hardware address.
    pub mac: Option<String>,
    /// MTU, since 1.0.0.
    pub mtu: Option<u32>,
    /// Path of the network namespace; `None` for an interface of the host.
    pub sandbox: Option<String>,
    /// Path of a socket of the interface, since 1.0.0.
    pub socket_path: Option<String>,
    /// PCI address, since 1.0.0.
    pub pci_id: Option<String>,
}

/// IP address of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultIp {
    /// Address.
    pub address: IpPrefix,
    /// Gateway of its network.
    pub gateway: Option<IpAddr>,
    /// Index of its interface in the list of interfaces.
    pub interface: Option<usize>,
}

/// Route of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRoute {
    /// Destination.
    pub destination: IpPrefix,
    /// Gateway.
    pub gateway: Option<IpAddr>,
    /// MTU of the route.
    pub mtu: Option<u32>,
    /// Advertised maximum segment size.
    pub advmss: Option<u32>,
    /// Priority.
    pub priority: Option<u32>,
    /// Routing table.
    pub table: Option<u32>,
    /// Scope.
    pub scope: Option<u8>,
}

impl ResultRoute {
    /// Returns the route to a destination.
    pub const fn new(destination: IpPrefix, gateway: Option<IpAddr>) -> Self {
        Self { destination, gateway, mtu: None, advmss: None, priority: None, table: None, scope: None }
    }
}

/// Name servers of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultDns {
    /// Addresses of name servers.
    pub nameservers: Vec<String>,
    /// Local domain.
    pub domain: Option<String>,
    /// Domains for the lookup of short names.
    pub search: Vec<String>,
    /// Options of the resolver.
    pub options: Vec<String>,
}

impl CniResult {
    /// Parses a result. A version in the result itself counts; `version` is that of a result without one. Errors have
    /// the code of a document that cannot be decoded, and the key in their message.
    pub fn parse(value: &Value, version: CniVersion) -> Result<Self, CniError> {
        let document = Json::deserialize(value)
            .map_err(|error| CniError::new(ErrorCode::Decode, format!("result: {error}")))?;
        Self::from_json(&document, "", version).map_err(KeyFault::into_decode_error)
    }

    /// Returns the result in a version. Addresses, routes and interfaces that the version has no room for are left out.
    pub fn to_json(&self, version: CniVersion) -> Value {
        write::write(self, version)
    }

    /// Reads a result at a path of a document.
    pub(crate) fn from_json(document: &Json, path: &str, version: CniVersion) -> Result<Self, KeyFault> {
        read::read(document, path, version)
    }
}

#[cfg(test)]
mod tests;

//! Addresses that an IPAM plugin assigned.

use core::net::IpAddr;

use crate::cni::protocol::result::CniResult;
use crate::cni::protocol::{CniError, ErrorCode};
use crate::cni::step::{InterfaceAddresses, InterfaceRoute};
use crate::prelude::*;

/// Returns the addresses and routes of the interface with this index in the result. A route without a gateway gets the first
/// gateway of its family.
pub fn plan_addresses(result: &CniResult, interface: usize) -> Result<InterfaceAddresses, CniError> {
    let own: Vec<_> = result.ips.iter().filter(|ip| ip.interface.is_none_or(|of| of == interface)).collect();
    if own.is_empty() {
        return Err(CniError::new(ErrorCode::InvalidConfig, "ipam: the IPAM plugin returned no IP address")
            .with_details("check its configuration, or remove ipam for an interface without addresses"));
    }
    let gateway_of = |destination: IpAddr| {
        own.iter().filter_map(|ip| ip.gateway).find(|gateway| gateway.is_ipv4() == destination.is_ipv4())
    };
    let routes = result.routes.iter().map(|route| InterfaceRoute {
        destination: route.destination,
        gateway: route.gateway.or_else(|| gateway_of(route.destination.address)),
        mtu: route.mtu,
        advmss: route.advmss,
        priority: route.priority,
        table: route.table,
        scope: route.scope,
    });
    Ok(InterfaceAddresses { ips: own.iter().map(|ip| ip.address).collect(), routes: routes.collect() })
}

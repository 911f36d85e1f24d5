//! Addresses that an IPAM plugin assigned.

use core::net::IpAddr;

use crate::cni::ovs::mac_of_address;
use crate::cni::protocol::result::CniResult;
use crate::cni::protocol::{CniError, ErrorCode};
use crate::cni::step::{CniStep, InterfaceAddresses, InterfaceRoute};
use crate::prelude::*;

use super::AddPlan;

/// Plans what follows the IPAM plugin, whose addresses are in the result: all of them belong to the interface in the pod. The
/// result gets the MAC that the interface has afterwards.
pub fn plan_addressing(plan: &AddPlan, result: &mut CniResult) -> Result<Vec<CniStep>, CniError> {
    let index = plan.interfaces.len().saturating_sub(1);
    for ip in &mut result.ips {
        ip.interface = Some(index);
    }
    let addresses = plan_addresses(result, index)?;
    if !plan.configures_addresses {
        return Ok(Vec::new());
    }
    let mut steps = plan.before_addresses.clone();
    let (namespace, name) = (plan.journal.namespace.clone(), plan.journal.key.interface.clone());
    let first = addresses.ips.first().filter(|_| plan.mac_follows_address);
    if let (Some(first), Some(interface)) = (first, result.interfaces.get_mut(index)) {
        let mac = mac_of_address(first.address);
        interface.mac = Some(mac.to_string());
        let (namespace, name) = (namespace.clone(), name.clone());
        steps.push(CniStep::SetUpInPod { namespace, name, mtu: None, mac: Some(mac) });
    }
    steps.push(CniStep::AddAddresses { namespace, name, addresses });
    Ok(steps)
}

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

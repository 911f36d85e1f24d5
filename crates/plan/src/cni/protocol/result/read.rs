//! Reading of results.

use core::net::IpAddr;
use core::str::FromStr;

use super::{CniResult, ResultDns, ResultInterface, ResultIp, ResultRoute};
use crate::cni::protocol::CniVersion;
use crate::cni::protocol::json::{Json, KeyFault, Section};
use crate::cni::step::IpPrefix;
use crate::prelude::*;

/// Reads a result at a path of a document.
pub(super) fn read(document: &Json, path: &str, version: CniVersion) -> Result<CniResult, KeyFault> {
    let name = if path.is_empty() { "result" } else { path };
    let root = Section::new(path, document).ok_or_else(|| KeyFault::new(name, "is not an object"))?;
    let version = match root.text("cniVersion")? {
        None => version,
        Some(text) => text
            .parse()
            .map_err(|_| KeyFault::new(root.path_of("cniVersion"), format!("{text:?} is not supported")))?,
    };
    let mut result = CniResult { dns: read_dns(&root)?, ..CniResult::default() };
    if version < CniVersion::V0_3_0 {
        for family in ["ip4", "ip6"] {
            if let Some(section) = root.section(family)? {
                result.ips.push(read_ip(&section, "ip")?);
                for route in section.objects("routes")? {
                    result.routes.push(read_route(&route)?);
                }
            }
        }
        return Ok(result);
    }
    for interface in root.objects("interfaces")? {
        result.interfaces.push(read_interface(&interface)?);
    }
    for ip in root.objects("ips")? {
        result.ips.push(read_ip(&ip, "address")?);
    }
    for route in root.objects("routes")? {
        result.routes.push(read_route(&route)?);
    }
    Ok(result)
}

fn read_interface(section: &Section<'_>) -> Result<ResultInterface, KeyFault> {
    let text = |key| section.text(key).map(|text| text.map(ToOwned::to_owned));
    Ok(ResultInterface {
        name: text("name")?.unwrap_or_default(),
        mac: text("mac")?,
        mtu: positive(section, "mtu")?,
        sandbox: text("sandbox")?,
        socket_path: text("socketPath")?,
        pci_id: text("pciID")?,
    })
}

fn read_ip(section: &Section<'_>, address: &str) -> Result<ResultIp, KeyFault> {
    let interface = section.integer("interface", 0..=u32::MAX)?.map(usize::try_from);
    Ok(ResultIp {
        address: required(section, address)?,
        gateway: parsed::<IpAddr>(section, "gateway")?,
        interface: interface.transpose().map_err(|_| too_large(section, "interface"))?,
    })
}

fn read_route(section: &Section<'_>) -> Result<ResultRoute, KeyFault> {
    Ok(ResultRoute {
        destination: required(section, "dst")?,
        gateway: parsed(section, "gw")?,
        mtu: positive(section, "mtu")?,
        advmss: positive(section, "advmss")?,
        priority: positive(section, "priority")?,
        table: section.integer("table", 0..=u32::MAX)?,
        scope: section.integer("scope", 0..=u8::MAX)?,
    })
}

fn read_dns(root: &Section<'_>) -> Result<ResultDns, KeyFault> {
    let Some(section) = root.section("dns")? else { return Ok(ResultDns::default()) };
    Ok(ResultDns {
        nameservers: section.texts("nameservers")?,
        domain: section.text("domain")?.map(ToOwned::to_owned),
        search: section.texts("search")?,
        options: section.texts("options")?,
    })
}

/// Reads a number of which 0 is the same as none.
fn positive(section: &Section<'_>, key: &str) -> Result<Option<u32>, KeyFault> {
    Ok(section.integer(key, 0..=u32::MAX)?.filter(|number| *number > 0))
}

fn required(section: &Section<'_>, key: &str) -> Result<IpPrefix, KeyFault> {
    parsed(section, key)?.ok_or_else(|| KeyFault::new(section.path_of(key), "is missing"))
}

fn parsed<T: FromStr>(section: &Section<'_>, key: &str) -> Result<Option<T>, KeyFault> {
    let Some(text) = section.text(key)? else { return Ok(None) };
    let fault =
        |_| KeyFault::new(section.path_of(key), format!("{text:?} is not an IP address of this form"));
    text.parse().map(Some).map_err(fault)
}

fn too_large(section: &Section<'_>, key: &str) -> KeyFault {
    KeyFault::new(section.path_of(key), "is too large")
}

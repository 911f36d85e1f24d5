//! Writing of results.

use serde_json::{Map, Value, json};

use super::{CniResult, ResultDns, ResultInterface, ResultIp, ResultRoute};
use crate::cni::protocol::CniVersion;
use crate::prelude::*;

/// Writes a result in a version.
pub(super) fn write(result: &CniResult, version: CniVersion) -> Value {
    let mut object = Map::new();
    object.insert("cniVersion".to_owned(), version.as_str().into());
    if version < CniVersion::V0_3_0 {
        insert_some(&mut object, "ip4", write_family(result, true));
        insert_some(&mut object, "ip6", write_family(result, false));
    } else {
        insert_list(&mut object, "interfaces", &result.interfaces, |interface| {
            write_interface(interface, version)
        });
        insert_list(&mut object, "ips", &result.ips, |ip| write_ip(ip, version));
        insert_list(&mut object, "routes", &result.routes, write_route);
    }
    if version < CniVersion::V1_0_0 || result.dns != ResultDns::default() {
        object.insert("dns".to_owned(), write_dns(&result.dns));
    }
    Value::Object(object)
}

/// Writes the first address of a family with the routes of the family; `None` without an address.
fn write_family(result: &CniResult, is_v4: bool) -> Option<Value> {
    let ip = result.ips.iter().find(|ip| ip.address.address.is_ipv4() == is_v4)?;
    let mut object = Map::new();
    object.insert("ip".to_owned(), ip.address.to_string().into());
    insert_some(&mut object, "gateway", ip.gateway.map(|gateway| gateway.to_string().into()));
    let routes = result.routes.iter().filter(|route| route.destination.address.is_ipv4() == is_v4);
    let routes: Vec<_> = routes.map(|route| ResultRoute::new(route.destination, route.gateway)).collect();
    insert_list(&mut object, "routes", &routes, write_route);
    Some(Value::Object(object))
}

fn write_interface(interface: &ResultInterface, version: CniVersion) -> Value {
    let mut object = Map::new();
    object.insert("name".to_owned(), interface.name.clone().into());
    let text = |text: &Option<String>| text.clone().map(Value::from);
    insert_some(&mut object, "mac", text(&interface.mac));
    insert_some(&mut object, "sandbox", text(&interface.sandbox));
    if version >= CniVersion::V1_0_0 {
        insert_some(&mut object, "mtu", interface.mtu.map(Value::from));
        insert_some(&mut object, "socketPath", text(&interface.socket_path));
        insert_some(&mut object, "pciID", text(&interface.pci_id));
    }
    Value::Object(object)
}

fn write_ip(ip: &ResultIp, version: CniVersion) -> Value {
    let mut object = Map::new();
    if version < CniVersion::V1_0_0 {
        let family = if ip.address.address.is_ipv4() { "4" } else { "6" };
        object.insert("version".to_owned(), family.into());
    }
    insert_some(&mut object, "interface", ip.interface.map(Value::from));
    object.insert("address".to_owned(), ip.address.to_string().into());
    insert_some(&mut object, "gateway", ip.gateway.map(|gateway| gateway.to_string().into()));
    Value::Object(object)
}

fn write_route(route: &ResultRoute) -> Value {
    let mut object = Map::new();
    object.insert("dst".to_owned(), route.destination.to_string().into());
    insert_some(&mut object, "gw", route.gateway.map(|gateway| gateway.to_string().into()));
    insert_some(&mut object, "mtu", route.mtu.map(Value::from));
    insert_some(&mut object, "advmss", route.advmss.map(Value::from));
    insert_some(&mut object, "priority", route.priority.map(Value::from));
    insert_some(&mut object, "table", route.table.map(Value::from));
    insert_some(&mut object, "scope", route.scope.map(Value::from));
    Value::Object(object)
}

fn write_dns(dns: &ResultDns) -> Value {
    let mut object = Map::new();
    insert_list(&mut object, "nameservers", &dns.nameservers, |text| json!(text));
    insert_some(&mut object, "domain", dns.domain.clone().map(Value::from));
    insert_list(&mut object, "search", &dns.search, |text| json!(text));
    insert_list(&mut object, "options", &dns.options, |text| json!(text));
    Value::Object(object)
}

fn insert_some(object: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value);
    }
}

fn insert_list<T>(object: &mut Map<String, Value>, key: &str, list: &[T], write: impl Fn(&T) -> Value) {
    if !list.is_empty() {
        object.insert(key.to_owned(), list.iter().map(write).collect());
    }
}

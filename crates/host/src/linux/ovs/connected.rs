//! Bridges that exchange packets with each other.

use std::collections::BTreeSet;

use vfleet_plan::{OvsBridgeFacts, OvsDatabase, OvsInterfaceFacts};

fn interfaces(bridge: &OvsBridgeFacts) -> impl Iterator<Item = &OvsInterfaceFacts> {
    bridge.ports.iter().flat_map(|port| &port.interfaces)
}

/// Returns the names of all interfaces of the bridge with this interface, and of bridges that patch ports connect to
/// it; `None` if no bridge has the interface.
pub(in crate::linux) fn connected_interfaces<'d>(
    database: &'d OvsDatabase,
    interface: &str,
) -> Option<BTreeSet<&'d str>> {
    let (first, _) = database.port_of(interface)?;
    let mut found = vec![first];
    let mut visited = 0;
    while let Some(bridge) = found.get(visited).copied() {
        visited += 1;
        let near: BTreeSet<&str> = interfaces(bridge).map(|interface| interface.name.as_str()).collect();
        let peers: BTreeSet<&str> = interfaces(bridge).filter_map(peer).collect();
        // A patch port that only one side configured counts too.
        let is_connected = |other: &&OvsBridgeFacts| {
            interfaces(other).any(|interface| {
                peers.contains(interface.name.as_str())
                    || peer(interface).is_some_and(|peer| near.contains(peer))
            })
        };
        for other in database.bridges.iter().filter(is_connected) {
            if !found.iter().any(|bridge| bridge.uuid == other.uuid) {
                found.push(other);
            }
        }
    }
    Some(found.into_iter().flat_map(interfaces).map(|interface| interface.name.as_str()).collect())
}

/// Returns the other end of a patch port.
fn peer(interface: &OvsInterfaceFacts) -> Option<&str> {
    (interface.type_ == "patch").then(|| interface.options.get("peer").map(String::as_str)).flatten()
}

#[cfg(test)]
mod tests {
    use vfleet_plan::OvsPortFacts;

    use super::*;

    fn bridge(name: &str, interfaces: &[(&str, &str)]) -> OvsBridgeFacts {
        let port = |(name, peer): &(&str, &str)| {
            let is_patch = !peer.is_empty();
            let options = is_patch.then(|| ("peer".to_owned(), (*peer).to_owned())).into_iter().collect();
            let type_ = if is_patch { "patch" } else { "" }.to_owned();
            let interface = OvsInterfaceFacts {
                name: (*name).to_owned(),
                type_,
                options,
                ..OvsInterfaceFacts::default()
            };
            OvsPortFacts { name: (*name).to_owned(), interfaces: vec![interface], ..OvsPortFacts::default() }
        };
        let (uuid, name) = (name.to_owned(), name.to_owned());
        OvsBridgeFacts {
            uuid,
            name,
            ports: interfaces.iter().map(port).collect(),
            ..OvsBridgeFacts::default()
        }
    }

    #[test]
    fn patch_ports_connect_bridges() {
        let bridges = vec![
            bridge("br0", &[("br0", ""), ("p0", ""), ("to1", "to0")]),
            bridge("br1", &[("br1", ""), ("to0", "to1"), ("to2", "back")]),
            bridge("br2", &[("back", ""), ("p2", "")]),
            bridge("br3", &[("br3", ""), ("p3", "")]),
        ];
        let database = OvsDatabase { bridges, ..OvsDatabase::default() };
        let of_first = connected_interfaces(&database, "br0").unwrap();
        assert!(of_first.contains("p0") && of_first.contains("p2") && !of_first.contains("p3"));
        assert!(connected_interfaces(&database, "p2").unwrap().contains("p0"));
        assert_eq!(connected_interfaces(&database, "br3").unwrap(), ["br3", "p3"].into());
        assert_eq!(connected_interfaces(&database, "other"), None);
    }
}

//! Ports and mirrors of attachments in the Open vSwitch database.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vfleet_plan::cni::facts::{OvsSwitchBridge, OvsSwitchInterface, OvsSwitchMirror, OvsSwitchPort};

use super::super::ovsdb::{Operation, OvsdbClient, value};
use super::rows::{NO_PORT, RootRow, Row, by_uuid, parse_root, root_of, text};
use crate::HostError;

const ROOT: &[&str] = &["_uuid", "cur_cfg", "next_cfg"];
const BRIDGE: &[&str] = &["_uuid", "name", "ports", "mirrors"];
const PORT: &[&str] = &["_uuid", "name", "external_ids", "vlan_mode", "tag", "trunks", "interfaces"];
const INTERFACE: &[&str] =
    &["_uuid", "name", "type", "external_ids", "ofport", "ofport_request", "error", "link_state"];
const MIRROR: &[&str] = &[
    "_uuid",
    "name",
    "external_ids",
    "select_src_port",
    "select_dst_port",
    "output_port",
    "select_all",
    "select_vlan",
    "output_vlan",
];

/// Rows to read. All bridges are read.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) enum RowFilter<'a> {
    /// All rows.
    All,
    /// The port and the interface with this name, and no mirrors.
    Port(&'a str),
    /// The mirrors with this name, and the port with the other one.
    Mirror { mirror: &'a str, port: &'a str },
}

/// Rows that the operations of attachments are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::linux) struct SwitchRows {
    /// The only row of the table Open_vSwitch; `None` in a database that nobody initialized.
    pub(in crate::linux) root: Option<RootRow>,
    /// Bridges, by name.
    pub(in crate::linux) bridges: Vec<BridgeRow>,
    /// An interface that was read belongs to a port that was not read: a bond has it.
    pub(in crate::linux) has_other_interface: bool,
}

/// Bridge with those of its ports and mirrors that were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::linux) struct BridgeRow {
    pub(in crate::linux) uuid: String,
    pub(in crate::linux) name: String,
    /// Ports, by name.
    pub(in crate::linux) ports: Vec<PortRow>,
    /// Mirrors, by name.
    pub(in crate::linux) mirrors: Vec<MirrorRow>,
    /// Rows of all its mirrors.
    pub(in crate::linux) all_mirrors: BTreeSet<String>,
}

/// Port with its interfaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::linux) struct PortRow {
    pub(in crate::linux) uuid: String,
    /// Columns, without interfaces.
    columns: OvsSwitchPort,
    /// Interfaces, by name.
    pub(in crate::linux) interfaces: Vec<InterfaceRow>,
}

/// Interface of a port.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::linux) struct InterfaceRow {
    pub(in crate::linux) uuid: String,
    /// Columns that are facts.
    pub(in crate::linux) columns: OvsSwitchInterface,
    pub(in crate::linux) external_ids: BTreeMap<String, String>,
    pub(in crate::linux) ofport_request: Option<i64>,
}

/// Mirror with the rows of its ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::linux) struct MirrorRow {
    pub(in crate::linux) uuid: String,
    pub(in crate::linux) name: String,
    pub(in crate::linux) external_ids: BTreeMap<String, String>,
    pub(in crate::linux) sources: BTreeSet<String>,
    pub(in crate::linux) destinations: BTreeSet<String>,
    pub(in crate::linux) output: Option<String>,
    /// VLAN to which frames are mirrored instead of a port.
    pub(in crate::linux) output_vlan: Option<u16>,
    /// Frames are selected by something else than ports.
    pub(in crate::linux) has_other_selection: bool,
}

impl SwitchRows {
    /// Returns the bridge with this name.
    pub(in crate::linux) fn bridge(&self, name: &str) -> Option<&BridgeRow> {
        self.bridges.iter().find(|bridge| bridge.name == name)
    }

    /// Returns the port with this name, and its bridge.
    pub(in crate::linux) fn port(&self, name: &str) -> Option<(&BridgeRow, &PortRow)> {
        self.bridges.iter().find_map(|bridge| Some((bridge, bridge.port(name)?)))
    }

    /// Returns the facts of all bridges.
    pub(in crate::linux) fn to_facts(&self) -> Vec<OvsSwitchBridge> {
        self.bridges.iter().map(BridgeRow::to_facts).collect()
    }
}

impl BridgeRow {
    /// Returns the port with this name.
    pub(in crate::linux) fn port(&self, name: &str) -> Option<&PortRow> {
        self.ports.iter().find(|port| port.columns.name == name)
    }

    /// Returns the mirror with this name.
    pub(in crate::linux) fn mirror(&self, name: &str) -> Option<&MirrorRow> {
        self.mirrors.iter().find(|mirror| mirror.name == name)
    }

    fn to_facts(&self) -> OvsSwitchBridge {
        let names: BTreeMap<&str, &str> =
            self.ports.iter().map(|port| (port.uuid.as_str(), port.columns.name.as_str())).collect();
        OvsSwitchBridge {
            name: self.name.clone(),
            ports: self.ports.iter().map(PortRow::to_facts).collect(),
            mirrors: self.mirrors.iter().map(|mirror| mirror.to_facts(&names)).collect(),
        }
    }
}

impl PortRow {
    /// Returns the port as a fact.
    pub(in crate::linux) fn to_facts(&self) -> OvsSwitchPort {
        let interfaces = self.interfaces.iter().map(|interface| interface.columns.clone()).collect();
        OvsSwitchPort { interfaces, ..self.columns.clone() }
    }

    /// Returns the interface that has the name of the port.
    pub(in crate::linux) fn own_interface(&self) -> Option<&InterfaceRow> {
        self.interfaces.iter().find(|interface| interface.columns.name == self.columns.name)
    }
}

impl MirrorRow {
    /// Returns the mirror as a fact.
    pub(in crate::linux) fn to_facts(&self, names: &BTreeMap<&str, &str>) -> OvsSwitchMirror {
        let name =
            |uuid: &String| names.get(uuid.as_str()).map_or_else(|| uuid.clone(), |name| (*name).to_owned());
        OvsSwitchMirror {
            name: self.name.clone(),
            external_ids: self.external_ids.clone(),
            sources: self.sources.iter().map(name).collect(),
            destinations: self.destinations.iter().map(name).collect(),
            output: self.output.as_ref().map(name),
            has_other_use: self.has_other_selection || self.output_vlan.is_some(),
        }
    }
}

/// Reads rows in one transaction.
pub(in crate::linux) fn read(
    client: &mut OvsdbClient,
    filter: RowFilter<'_>,
    attempt: &str,
) -> Result<SwitchRows, HostError> {
    let select = |table, name: Option<&str>, columns| match name {
        Some(name) => Operation::select_named(table, name, columns),
        None => Operation::select(table, columns),
    };
    let (port, mirror) = match filter {
        RowFilter::All => (None, None),
        RowFilter::Port(port) => (Some(port), None),
        RowFilter::Mirror { mirror, port } => (Some(port), Some(mirror)),
    };
    let mut operations = vec![
        Operation::select("Open_vSwitch", ROOT),
        Operation::select("Bridge", BRIDGE),
        select("Port", port, PORT),
        select("Interface", port, INTERFACE),
    ];
    if !matches!(filter, RowFilter::Port(_)) {
        operations.push(select("Mirror", mirror, MIRROR));
    }
    let results = client.transact(&operations, attempt)?;
    parse(&results).map_err(|found| client.invalid(attempt, found))
}

/// Parses the results of the queries; mirrors may be missing. The error says what is wrong. Rows that were not read are left
/// out of those that refer to them.
pub(in crate::linux) fn parse(results: &[Value]) -> Result<SwitchRows, String> {
    let [root, bridges, ports, interfaces, mirrors @ ..] = results else {
        return Err(format!("{} results instead of 4 or 5", results.len()));
    };
    let mut interfaces = by_uuid(interfaces, "Interface", parse_interface)?;
    let mut ports = by_uuid(ports, "Port", |row| Ok((parse_port(row)?, row.uuids("interfaces")?)))?;
    for (port, uuids) in ports.values_mut() {
        port.interfaces = uuids.iter().filter_map(|uuid| interfaces.remove(uuid)).collect();
        port.interfaces.sort_by(|one, other| one.columns.name.cmp(&other.columns.name));
    }
    let mut mirrors = match mirrors.first() {
        Some(mirrors) => by_uuid(mirrors, "Mirror", parse_mirror)?,
        None => BTreeMap::new(),
    };
    let parse_bridge =
        |row: &Row<'_>| Ok((row.uuid()?, row.text("name")?, row.uuids("ports")?, row.uuids("mirrors")?));
    let mut found = Vec::new();
    for (uuid, name, of_ports, of_mirrors) in by_uuid(bridges, "Bridge", parse_bridge)?.into_values() {
        let mut ports: Vec<_> =
            of_ports.iter().filter_map(|uuid| ports.remove(uuid).map(|(port, _)| port)).collect();
        let mut mirrors: Vec<_> = of_mirrors.iter().filter_map(|uuid| mirrors.remove(uuid)).collect();
        ports.sort_by(|one, other| one.columns.name.cmp(&other.columns.name));
        mirrors.sort_by(|one, other| one.name.cmp(&other.name));
        found.push(BridgeRow { uuid, name, ports, mirrors, all_mirrors: of_mirrors });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    let root = root_of(root)?.map(|row| parse_root(&row)).transpose()?;
    Ok(SwitchRows { root, bridges: found, has_other_interface: !interfaces.is_empty() })
}

fn parse_interface(row: &Row<'_>) -> Result<InterfaceRow, String> {
    let ofport = row.optional("ofport", Value::as_i64)?;
    let not_added =
        || (ofport == Some(NO_PORT)).then(|| "could not add the interface to the bridge".to_owned());
    Ok(InterfaceRow {
        uuid: row.uuid()?,
        columns: OvsSwitchInterface {
            name: row.text("name")?,
            type_: row.text("type")?,
            ofport,
            error: row.optional("error", text)?.or_else(not_added),
            link_state: row.optional("link_state", text)?,
        },
        external_ids: row.map("external_ids")?,
        ofport_request: row.optional("ofport_request", Value::as_i64)?,
    })
}

fn parse_port(row: &Row<'_>) -> Result<PortRow, String> {
    Ok(PortRow {
        uuid: row.uuid()?,
        columns: OvsSwitchPort {
            name: row.text("name")?,
            external_ids: row.map("external_ids")?,
            vlan_mode: row.optional("vlan_mode", text)?,
            tag: row.optional("tag", vlan)?,
            trunks: row.column("trunks", |column| value::parse_set(column, vlan))?,
            interfaces: Vec::new(),
            namespace: None,
        },
        interfaces: Vec::new(),
    })
}

fn vlan(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|id| u16::try_from(id).ok())
}

fn parse_mirror(row: &Row<'_>) -> Result<MirrorRow, String> {
    let selects_vlan = !row.column("select_vlan", |column| value::parse_set(column, vlan))?.is_empty();
    Ok(MirrorRow {
        uuid: row.uuid()?,
        name: row.text("name")?,
        external_ids: row.map("external_ids")?,
        sources: row.uuids("select_src_port")?,
        destinations: row.uuids("select_dst_port")?,
        output: row.optional("output_port", value::parse_uuid)?,
        output_vlan: row.optional("output_vlan", vlan)?,
        has_other_selection: row.column("select_all", Value::as_bool)? || selects_vlan,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results() -> [Value; 5] {
        let (none, empty) = (json!(["set", []]), json!(["map", []]));
        let owner = json!(["map", [["owner", "ovs-cni.network.kubevirt.io"]]]);
        let root = json!({"_uuid": ["uuid", "r"], "cur_cfg": 1, "next_cfg": 2});
        let bridge =
            json!({"_uuid": ["uuid", "b"], "name": "br0", "ports": ["uuid", "p"], "mirrors": ["uuid", "m"]});
        let port = json!({"_uuid": ["uuid", "p"], "name": "veth1", "external_ids": owner, "vlan_mode": "trunk",
            "tag": none, "trunks": 7, "interfaces": ["uuid", "i"]});
        let interface = json!({"_uuid": ["uuid", "i"], "name": "veth1", "type": "", "external_ids": empty,
            "ofport": 3, "ofport_request": none, "error": none, "link_state": "up"});
        let mirror = json!({"_uuid": ["uuid", "m"], "name": "mirror1", "external_ids": owner,
            "select_src_port": ["uuid", "p"], "select_dst_port": none, "output_port": ["uuid", "q"],
            "select_all": false, "select_vlan": none, "output_vlan": none});
        [root, bridge, port, interface, mirror].map(|row| json!({"rows": [row]}))
    }

    #[test]
    fn rows_refer_to_each_other() {
        let rows = parse(&results()).unwrap();
        assert!(rows.root.as_ref().unwrap().configuration.is_behind() && !rows.has_other_interface);
        let facts = rows.to_facts().remove(0);
        let port = &facts.ports[0];
        // A set with one member is encoded as this member.
        assert_eq!((port.vlan_mode.as_deref(), port.tag, &port.trunks), (Some("trunk"), None, &[7].into()));
        assert!(port.is_owned() && port.interfaces[0].link_state.as_deref() == Some("up"));
        let mirror = &facts.mirrors[0];
        assert_eq!((&mirror.sources, mirror.output.as_deref()), (&["veth1".to_owned()].into(), Some("q")));
        assert!(mirror.is_owned() && !mirror.is_unused());
        assert_eq!(rows.port("veth1").unwrap().1.own_interface().unwrap().uuid, "i");
        assert!(parse(&results()[..4]).unwrap().bridges[0].mirrors.is_empty());
    }

    #[test]
    fn an_interface_of_a_bond_is_noticed() {
        let mut results = results();
        results[2] = json!({"rows": []});
        let rows = parse(&results).unwrap();
        assert!(rows.has_other_interface && rows.bridges[0].ports.is_empty());
    }

    #[test]
    fn a_missing_or_wrong_column_is_an_error() {
        let good = results();
        for table in 0..good.len() {
            let columns: Vec<String> = good[table]["rows"][0].as_object().unwrap().keys().cloned().collect();
            for column in columns {
                for wrong in [None, Some(json!(null)), Some(json!({"a": 1})), Some(json!(["set", [1, "a"]]))]
                {
                    let mut results = results();
                    let row = results[table]["rows"][0].as_object_mut().unwrap();
                    match &wrong {
                        None => row.remove(&column),
                        Some(wrong) => row.insert(column.clone(), wrong.clone()),
                    };
                    assert!(parse(&results).is_err(), "{column}: {wrong:?}");
                }
            }
        }
        assert!(parse(&[]).is_err() && parse(&[json!({}), json!({}), json!({}), json!({})]).is_err());
    }
}

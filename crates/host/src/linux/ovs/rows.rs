//! Rows of the Open vSwitch database, as far as vfleet uses them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vfleet_api::keys::OVS_UPLINK;
use vfleet_plan::{OvsBridgeFacts, OvsDatabase, OvsInterfaceFacts, OvsPortFacts};

use super::super::ovsdb::{Operation, OvsdbClient, value};
use crate::HostError;

/// Content of the database.
#[derive(Debug, Default, PartialEq)]
pub(in crate::linux) struct Rows {
    /// The only row of the table Open_vSwitch; `None` in a database that nobody initialized.
    pub(in crate::linux) root: Option<RootRow>,
    /// Bridges with their ports. [`OvsDatabase::is_behind`] is always false, and [`OvsBridgeFacts::lacks_datapath`] does
    /// not depend on the number of the configuration: see [`Rows::confirm`].
    pub(in crate::linux) database: OvsDatabase,
}

impl Rows {
    /// Returns the numbers of the configuration; 0 in a database that nobody initialized.
    pub(super) fn configuration(&self) -> Configuration {
        self.root.as_ref().map(|row| row.configuration).unwrap_or_default()
    }

    /// Returns the rows of bridges that vfleet created and that have no datapath.
    pub(in crate::linux) fn without_datapath(&self) -> BTreeSet<String> {
        let ours = self.database.bridges.iter().filter(|bridge| bridge.external_ids.contains_key(OVS_UPLINK));
        ours.filter(|bridge| bridge.lacks_datapath).map(|bridge| bridge.uuid.clone()).collect()
    }

    /// Keeps only those bridges without a datapath that `earlier` has too: ovs-vswitchd has applied the configuration of
    /// `earlier` meanwhile, and others may have added bridges.
    pub(super) fn confirm(&mut self, earlier: &Self) {
        let lacked = |bridge: &OvsBridgeFacts| {
            earlier.database.bridges.iter().any(|found| found.uuid == bridge.uuid && found.lacks_datapath)
        };
        for bridge in &mut self.database.bridges {
            bridge.lacks_datapath &= lacked(bridge);
        }
    }
}

/// Row of the table Open_vSwitch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct RootRow {
    pub(in crate::linux) uuid: String,
    pub(in crate::linux) configuration: Configuration,
}

/// Numbers of configurations. Whoever changes the database increments `next`, and ovs-vswitchd sets `current` to the
/// number that it has applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::linux) struct Configuration {
    pub(in crate::linux) current: i64,
    pub(in crate::linux) next: i64,
}

impl Configuration {
    /// Returns whether ovs-vswitchd has applied the configuration with this number.
    pub(in crate::linux) const fn has_reached(self, number: i64) -> bool {
        self.current >= number
    }

    /// Returns whether ovs-vswitchd has not applied the latest configuration.
    pub(in crate::linux) const fn is_behind(self) -> bool {
        !self.has_reached(self.next)
    }

    /// Returns whether the configuration with this number was made and is not applied. A number that was never given out
    /// belongs to a database that was emptied or replaced.
    pub(super) const fn lacks(self, number: i64) -> bool {
        number <= self.next && !self.has_reached(number)
    }

    /// Parses the columns of a row.
    pub(super) fn parse(row: &Value) -> Option<Self> {
        Some(Self { current: row.get("cur_cfg")?.as_i64()?, next: row.get("next_cfg")?.as_i64()? })
    }
}

pub(super) const ROOT: &[&str] = &["_uuid", "bridges", "other_config", "cur_cfg", "next_cfg"];
pub(super) const BRIDGE: &[&str] =
    &["_uuid", "name", "datapath_type", "datapath_id", "fail_mode", "external_ids", "other_config", "ports"];
pub(super) const PORT: &[&str] = &["_uuid", "name", "external_ids", "interfaces"];
pub(super) const INTERFACE: &[&str] =
    &["_uuid", "name", "type", "options", "external_ids", "other_config", "mtu_request", "error", "ofport"];

/// Reads the database in one transaction.
pub(in crate::linux) fn read(client: &mut OvsdbClient, attempt: &str) -> Result<Rows, HostError> {
    let operations = [
        Operation::select("Open_vSwitch", ROOT),
        Operation::select("Bridge", BRIDGE),
        Operation::select("Port", PORT),
        Operation::select("Interface", INTERFACE),
    ];
    let results = client.transact(&operations, attempt)?;
    parse(&results).map_err(|found| client.invalid(attempt, found))
}

/// Parses the results of the four queries. The error says what is wrong.
pub(in crate::linux) fn parse(results: &[Value]) -> Result<Rows, String> {
    let [root, bridges, ports, interfaces] = results else {
        return Err(format!("{} results instead of 4", results.len()));
    };
    let interfaces = by_uuid(interfaces, "Interface", parse_interface)?;
    let ports = by_uuid(ports, "Port", |row| parse_port(row, &interfaces))?;
    let mut bridges = by_uuid(bridges, "Bridge", |row| parse_bridge(row, &ports))?;
    let (root, listed, has_offload) = match root_of(root)? {
        None => (None, BTreeSet::new(), false),
        Some(row) => {
            let has_offload = row.map("other_config")?.get("hw-offload").is_some_and(|value| value == "true");
            (Some(parse_root(&row)?), row.uuids("bridges")?, has_offload)
        }
    };
    let mut bridges: Vec<OvsBridgeFacts> = listed
        .iter()
        .map(|uuid| bridges.remove(uuid).ok_or_else(|| format!("no row {uuid} of table Bridge")))
        .collect::<Result<_, _>>()?;
    bridges.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Rows { root, database: OvsDatabase { has_offload, is_behind: false, bridges } })
}

/// Returns the only row of the table Open_vSwitch; `None` in a database that nobody initialized.
pub(super) fn root_of(result: &Value) -> Result<Option<Row<'_>>, String> {
    match rows_of(result, "Open_vSwitch")? {
        [] => Ok(None),
        [json] => Ok(Some(Row { table: "Open_vSwitch", json })),
        rows => Err(format!("{} rows of table Open_vSwitch", rows.len())),
    }
}

pub(super) fn parse_root(row: &Row<'_>) -> Result<RootRow, String> {
    let configuration = Configuration::parse(row.json).ok_or_else(|| row.wrong("cur_cfg"))?;
    Ok(RootRow { uuid: row.uuid()?, configuration })
}

/// Row of a result.
pub(super) struct Row<'v> {
    pub(super) table: &'static str,
    pub(super) json: &'v Value,
}

impl Row<'_> {
    pub(super) fn wrong(&self, column: &str) -> String {
        format!("column {column} of a row of table {} is missing or has another type", self.table)
    }

    pub(super) fn column<T>(&self, name: &str, parse: impl FnOnce(&Value) -> Option<T>) -> Result<T, String> {
        self.json.get(name).and_then(parse).ok_or_else(|| self.wrong(name))
    }

    pub(super) fn uuid(&self) -> Result<String, String> {
        self.column("_uuid", value::parse_uuid)
    }

    pub(super) fn uuids(&self, name: &str) -> Result<BTreeSet<String>, String> {
        self.column(name, value::parse_uuids)
    }

    pub(super) fn text(&self, name: &str) -> Result<String, String> {
        self.column(name, text)
    }

    pub(super) fn map(&self, name: &str) -> Result<BTreeMap<String, String>, String> {
        self.column(name, value::parse_map)
    }

    pub(super) fn optional<T>(
        &self,
        name: &str,
        parse: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        self.column(name, |column| value::parse_optional(column, parse).ok())
    }
}

pub(super) fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

pub(super) fn rows_of<'v>(result: &'v Value, table: &str) -> Result<&'v [Value], String> {
    let rows = result.get("rows").and_then(Value::as_array);
    rows.map(Vec::as_slice).ok_or_else(|| format!("a result of table {table} without rows"))
}

pub(super) fn by_uuid<T>(
    result: &Value,
    table: &'static str,
    parse: impl Fn(&Row<'_>) -> Result<T, String>,
) -> Result<BTreeMap<String, T>, String> {
    let parse_row = |json| {
        let row = Row { table, json };
        Ok((row.uuid()?, parse(&row)?))
    };
    rows_of(result, table)?.iter().map(parse_row).collect()
}

/// OpenFlow port number of an interface that ovs-vswitchd could not add.
pub(super) const NO_PORT: i64 = -1;

fn parse_interface(row: &Row<'_>) -> Result<OvsInterfaceFacts, String> {
    let is_missing = row.optional("ofport", Value::as_i64)? == Some(NO_PORT);
    let not_added = is_missing.then(|| "could not add the interface to the bridge".to_owned());
    Ok(OvsInterfaceFacts {
        uuid: row.uuid()?,
        name: row.text("name")?,
        type_: row.text("type")?,
        options: row.map("options")?,
        external_ids: row.map("external_ids")?,
        other_config: row.map("other_config")?,
        mtu_request: row.optional("mtu_request", Value::as_i64)?,
        error: row.optional("error", text)?.or(not_added),
    })
}

fn parse_port(
    row: &Row<'_>,
    interfaces: &BTreeMap<String, OvsInterfaceFacts>,
) -> Result<OvsPortFacts, String> {
    let mut interfaces = referenced(&row.uuids("interfaces")?, interfaces, "Interface")?;
    interfaces.sort_by(|one, other| one.name.cmp(&other.name));
    let (uuid, name) = (row.uuid()?, row.text("name")?);
    Ok(OvsPortFacts { uuid, name, external_ids: row.map("external_ids")?, interfaces })
}

fn parse_bridge(row: &Row<'_>, ports: &BTreeMap<String, OvsPortFacts>) -> Result<OvsBridgeFacts, String> {
    let mut ports = referenced(&row.uuids("ports")?, ports, "Port")?;
    ports.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(OvsBridgeFacts {
        uuid: row.uuid()?,
        name: row.text("name")?,
        datapath_type: row.text("datapath_type")?,
        fail_mode: row.optional("fail_mode", text)?,
        external_ids: row.map("external_ids")?,
        other_config: row.map("other_config")?,
        // Set when the bridge is created. It reports no error of a datapath, and ports get neither number nor error.
        lacks_datapath: row.optional("datapath_id", text)?.is_none(),
        ports,
    })
}

fn referenced<T: Clone>(
    uuids: &BTreeSet<String>,
    rows: &BTreeMap<String, T>,
    table: &str,
) -> Result<Vec<T>, String> {
    let find =
        |uuid: &String| rows.get(uuid).cloned().ok_or_else(|| format!("no row {uuid} of table {table}"));
    uuids.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results() -> [Value; 4] {
        let (none, empty) = (json!(["set", []]), json!(["map", []]));
        let interface = json!({"_uuid": ["uuid", "i"], "name": "p0", "type": "", "options": empty, "external_ids": empty,
            "other_config": empty, "mtu_request": 9000, "error": none, "ofport": 1});
        let port = json!({"_uuid": ["uuid", "p"], "name": "p0", "external_ids": ["map", [["a", "b"]]],
            "interfaces": ["uuid", "i"]});
        let bridge = json!({"_uuid": ["uuid", "b"], "name": "br0", "datapath_type": "", "datapath_id": "0000b2fef2bb3c46",
            "fail_mode": "secure", "external_ids": empty, "other_config": empty, "ports": ["set", [["uuid", "p"]]]});
        let root = json!({"_uuid": ["uuid", "r"], "bridges": ["uuid", "b"], "cur_cfg": 1, "next_cfg": 2,
            "other_config": ["map", [["hw-offload", "true"]]]});
        [root, bridge, port, interface].map(|row| json!({"rows": [row]}))
    }

    #[test]
    fn rows_refer_to_each_other() {
        let rows = parse(&results()).unwrap();
        assert!(rows.database.has_offload && rows.root.unwrap().configuration.is_behind());
        let bridge = &rows.database.bridges[0];
        assert_eq!((bridge.name.as_str(), bridge.fail_mode.as_deref()), ("br0", Some("secure")));
        assert_eq!(bridge.ports[0].interfaces[0].mtu_request, Some(9000));
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
        for table in 1..good.len() {
            let mut results = results();
            results[table] = json!({"rows": []});
            assert!(parse(&results).unwrap_err().contains("no row"));
        }
        assert!(parse(&[]).is_err() && parse(&[json!({}), json!({}), json!({}), json!({})]).is_err());
    }

    #[test]
    fn a_database_without_a_root_row_has_no_bridges() {
        let none = || json!({"rows": []});
        assert_eq!(parse(&[none(), none(), none(), none()]), Ok(Rows::default()));
    }
}

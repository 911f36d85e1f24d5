//! Open vSwitch of the machine, read with its own tools.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::guest::Guest;

/// Row of a table of the database, by column.
pub(super) type Row = BTreeMap<String, Value>;

/// Returns the row with this name.
pub(super) fn row(guest: &Guest<'_>, table: &str, name: &str) -> Row {
    let text = guest.run(&format!("ovs-vsctl --format=json list {table} {name}"));
    let found: Value = serde_json::from_str(&text).expect("ovs-vsctl prints JSON");
    let headings = found["headings"].as_array().expect("headings").iter();
    let cells = found["data"][0].as_array().expect("one row").iter();
    let name = |heading: &Value| heading.as_str().expect("a column name").to_owned();
    headings.map(name).zip(cells.cloned()).collect()
}

/// Returns a column of type map.
pub(super) fn map(row: &Row, column: &str) -> BTreeMap<String, String> {
    let entries = row[column][1].as_array().expect("a map").iter();
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    entries.map(|entry| (text(&entry[0]), text(&entry[1]))).collect()
}

/// Returns the names of the ports of a bridge.
pub(super) fn ports(guest: &Guest<'_>, bridge: &str) -> Vec<String> {
    guest.run(&format!("ovs-vsctl list-ports {bridge}")).lines().map(str::to_owned).collect()
}

/// Returns all columns of these rows except those that the schema marks as ephemeral. Each row is a table with a name.
pub(super) fn snapshot(guest: &Guest<'_>, rows: &[(&str, &str)]) -> String {
    // The schema is long, and the same in every database of the machine.
    let columns = r#"list() {
            columns=/run/columns-of-$1
            if [ ! -e $columns ]; then
                ovsdb-client get-schema unix:/run/openvswitch/db.sock Open_vSwitch |
                    jq -r ".tables.$1.columns | to_entries | map(select(.value.ephemeral != true).key) | join(\",\")" >$columns
            fi
            ovs-vsctl --format=json --columns=_uuid,$(<$columns) list $1 $2 | jq -c '[.headings, .data[0]] | transpose[]'
        }"#;
    let lists: Vec<_> =
        rows.iter().map(|(table, name)| format!("echo {table} {name}; list {table} {name}")).collect();
    guest.run(&format!("{columns}\n{}", lists.join("\n")))
}

/// Returns the same columns of a bridge, its internal port and these ports, with their interfaces.
pub(super) fn snapshot_bridge(guest: &Guest<'_>, bridge: &str, ports: &[&str]) -> String {
    let ports = [bridge].into_iter().chain(ports.iter().copied());
    let rows = ports.flat_map(|port| [("Port", port), ("Interface", port)]);
    snapshot(guest, &[("Bridge", bridge)].into_iter().chain(rows).collect::<Vec<_>>())
}

//! Open vSwitch of the machine: its daemons through systemd, its database through `ovs-vsctl`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use vfleet_api::PciAddress;
use vfleet_plan::{OvsBridgeFacts, OvsDatabase, OvsInterfaceFacts, OvsPortFacts};

use super::administrator::{LinuxAdministrator, interface};
use super::tools::{failed, read, run};
use crate::contract::bridges::{OvsAdministrator, OvsTable};
use crate::contract::testbed::{CaseError, CaseResult};

/// Directory that exists since Open vSwitch was started for the first time after the boot.
const RUN_DIRECTORY: &str = "/run/openvswitch";
const SERVER_SOCKET: &str = "/run/openvswitch/db.sock";
const SWITCH_PID: &str = "/run/openvswitch/ovs-vswitchd.pid";
const DATABASE: &str = "/var/lib/openvswitch/conf.db";
const SERVICE: &str = "openvswitch-switch";
const SERVER: &str = "ovsdb-server";
const SWITCH: &str = "ovs-vswitchd";
/// Interface of the datapath in the kernel.
const DATAPATH: &str = "ovs-system";

impl OvsAdministrator for LinuxAdministrator {
    fn start_ovs(&self) -> CaseResult {
        if Path::new(SERVER_SOCKET).exists() && Path::new(SWITCH_PID).exists() {
            return Ok(());
        }
        allow_start();
        run("systemctl", &["start", SERVER, SWITCH, SERVICE]).map(drop)
    }

    fn stop_ovs(&self) -> CaseResult {
        if Path::new(RUN_DIRECTORY).exists() {
            run("systemctl", &["stop", SERVICE, SWITCH, SERVER])?;
        }
        Ok(())
    }

    fn stop_ovs_switch(&self) -> CaseResult {
        let pid = read(Path::new(SWITCH_PID))?;
        // A stop by systemd would stop ovsdb-server as well.
        run("ovs-appctl", &["exit"])?;
        run("timeout", &["30", "tail", "--follow", &format!("--pid={pid}"), "/dev/null"]).map(drop)
    }

    fn restart_ovs(&self) -> CaseResult {
        allow_start();
        run("systemctl", &["restart", SERVER, SWITCH]).map(drop)
    }

    fn empty_ovs_database(&self) -> CaseResult {
        self.stop_ovs()?;
        super::leftovers::remove(Path::new(DATABASE))?;
        self.start_ovs()
    }

    fn add_ovs_bridge(&self, name: &str) -> CaseResult {
        vsctl(&["add-br", name]).map(drop)
    }

    fn remove_ovs_bridge(&self, name: &str) -> CaseResult {
        vsctl(&["del-br", name]).map(drop)
    }

    fn add_ovs_port(&self, bridge: &str, pf: PciAddress) -> CaseResult {
        vsctl(&["add-port", bridge, &interface(pf)?]).map(drop)
    }

    fn add_internal_ovs_port(&self, bridge: &str, name: &str) -> CaseResult {
        vsctl(&["add-port", bridge, name, "--", "set", "Interface", name, "type=internal"]).map(drop)
    }

    fn remove_ovs_port(&self, name: &str) -> CaseResult {
        vsctl(&["del-port", name]).map(drop)
    }

    fn set_ovs_entry(&self, table: OvsTable, row: &str, column: &str, key: &str, value: &str) -> CaseResult {
        let table = match table {
            OvsTable::Bridge => "Bridge",
            OvsTable::Port => "Port",
            OvsTable::Interface => "Interface",
        };
        vsctl(&["set", table, row, &format!("{column}:{key}={value}")]).map(drop)
    }

    fn set_ovs_statistics(&self, interface: &str, packets: u32) -> CaseResult {
        let entry = format!("statistics:tx_packets={packets}");
        run("ovs-vsctl", &["--no-wait", "set", "Interface", interface, &entry]).map(drop)
    }
}

/// Lets systemd start the daemons. It refuses more than five starts in ten seconds.
fn allow_start() {
    // Fails for units that were never started.
    let _ = run("systemctl", &["reset-failed", SERVICE, SERVER, SWITCH]);
}

/// Runs `ovs-vsctl`, which waits until ovs-vswitchd has applied the change.
fn vsctl(args: &[&str]) -> Result<String, CaseError> {
    run("ovs-vsctl", &[&["--timeout=30"], args].concat())
}

/// Removes all bridges and settings, if Open vSwitch was ever started. It is running afterwards, because its start takes
/// seconds.
pub(super) fn clear() -> CaseResult {
    if !Path::new(RUN_DIRECTORY).exists() {
        return Ok(());
    }
    LinuxAdministrator.start_ovs()?;
    let bridges = vsctl(&["list-br"])?;
    let mut commands: Vec<&str> = vec!["clear", "Open_vSwitch", ".", "other_config"];
    commands.extend(bridges.lines().flat_map(|bridge| ["--", "del-br", bridge]));
    vsctl(&commands)?;
    // ovs-vswitchd leaves the datapath of a database that was replaced.
    if Path::new("/sys/class/net").join(DATAPATH).exists() {
        run("ovs-dpctl", &["del-dp", DATAPATH])?;
    }
    Ok(())
}

/// Row by column name.
type Row = BTreeMap<String, Value>;

/// Reads the database in one transaction.
pub(super) fn read_database() -> Result<OvsDatabase, CaseError> {
    let tables = ["Open_vSwitch", "Bridge", "Port", "Interface"];
    let commands: Vec<&str> = tables.iter().flat_map(|table| ["--", "list", table]).collect();
    let output = run("ovs-vsctl", &[&["--format=json"], &commands[..]].concat())?;
    let rows = output.lines().map(parse_table).collect::<Result<Vec<_>, _>>()?;
    let [root, bridges, ports, interfaces] = rows.as_slice() else {
        return Err(failed("ovs-vsctl list", &output));
    };
    let root = root.first().ok_or_else(|| failed("ovs-vsctl", &"no row of table Open_vSwitch"))?;
    let mut bridges =
        bridges.iter().map(|row| parse_bridge(row, ports, interfaces)).collect::<Result<Vec<_>, _>>()?;
    bridges.sort_by(|one, other| one.name.cmp(&other.name));
    let number = |column| Ok::<_, CaseError>(column_of(root, column)?.as_i64());
    let is_behind = number("cur_cfg")? < number("next_cfg")?;
    for bridge in &mut bridges {
        bridge.lacks_datapath &= !is_behind;
    }
    Ok(OvsDatabase {
        has_offload: map(root, "other_config")?.get("hw-offload").is_some_and(|value| value == "true"),
        is_behind,
        bridges,
    })
}

/// Reads an entry of `other_config` of the table `Open_vSwitch`.
pub(super) fn read_config(key: &str) -> Result<Option<String>, CaseError> {
    let root = parse_table(run("ovs-vsctl", &["--format=json", "list", "Open_vSwitch"])?.trim())?;
    root.first().map_or(Ok(None), |root| Ok(map(root, "other_config")?.remove(key)))
}

fn parse_table(text: &str) -> Result<Vec<Row>, CaseError> {
    let table: Value = serde_json::from_str(text).map_err(|error| failed("ovs-vsctl list", &error))?;
    let array = |value: &Value| value.as_array().cloned().ok_or_else(|| failed("ovs-vsctl list", &table));
    let headings = array(&table["headings"])?;
    let headings: Vec<String> =
        headings.iter().map(|name| name.as_str().unwrap_or_default().to_owned()).collect();
    let to_row = |row: &Value| Ok(headings.iter().cloned().zip(array(row)?).collect());
    array(&table["data"])?.iter().map(to_row).collect()
}

fn parse_bridge(row: &Row, ports: &[Row], interfaces: &[Row]) -> Result<OvsBridgeFacts, CaseError> {
    let mut ports = referenced(row, "ports", ports)?
        .into_iter()
        .map(|row| parse_port(row, interfaces))
        .collect::<Result<Vec<_>, _>>()?;
    ports.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(OvsBridgeFacts {
        uuid: uuid(row)?,
        name: text(row, "name")?.unwrap_or_default(),
        datapath_type: text(row, "datapath_type")?.unwrap_or_default(),
        fail_mode: text(row, "fail_mode")?,
        external_ids: map(row, "external_ids")?,
        other_config: map(row, "other_config")?,
        lacks_datapath: text(row, "datapath_id")?.is_none(),
        ports,
    })
}

fn parse_port(row: &Row, interfaces: &[Row]) -> Result<OvsPortFacts, CaseError> {
    let interfaces = referenced(row, "interfaces", interfaces)?;
    let mut interfaces = interfaces.into_iter().map(parse_interface).collect::<Result<Vec<_>, _>>()?;
    interfaces.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(OvsPortFacts {
        uuid: uuid(row)?,
        name: text(row, "name")?.unwrap_or_default(),
        external_ids: map(row, "external_ids")?,
        interfaces,
    })
}

fn parse_interface(row: &Row) -> Result<OvsInterfaceFacts, CaseError> {
    Ok(OvsInterfaceFacts {
        uuid: uuid(row)?,
        name: text(row, "name")?.unwrap_or_default(),
        type_: text(row, "type")?.unwrap_or_default(),
        options: map(row, "options")?,
        external_ids: map(row, "external_ids")?,
        other_config: map(row, "other_config")?,
        mtu_request: column_of(row, "mtu_request")?.as_i64(),
        error: text(row, "error")?,
    })
}

fn column_of<'r>(row: &'r Row, name: &str) -> Result<&'r Value, CaseError> {
    row.get(name).ok_or_else(|| failed("ovs-vsctl", &format!("no column {name}")))
}

fn uuid(row: &Row) -> Result<String, CaseError> {
    let column = column_of(row, "_uuid")?;
    column[1].as_str().map(str::to_owned).ok_or_else(|| failed("_uuid", column))
}

/// Returns a text; an empty set is `None`.
fn text(row: &Row, name: &str) -> Result<Option<String>, CaseError> {
    Ok(column_of(row, name)?.as_str().map(str::to_owned))
}

/// Returns the entries of `["map", [["key", "value"], ...]]`.
fn map(row: &Row, name: &str) -> Result<BTreeMap<String, String>, CaseError> {
    let column = column_of(row, name)?;
    let entries = column[1].as_array().ok_or_else(|| failed(name, column))?;
    let entry = |entry: &Value| Some((entry[0].as_str()?.to_owned(), entry[1].as_str()?.to_owned()));
    entries.iter().map(|pair| entry(pair).ok_or_else(|| failed(name, column))).collect()
}

/// Returns the rows that a column refers to: `["uuid", "..."]`, or `["set", [["uuid", "..."], ...]]`.
fn referenced<'r>(row: &Row, name: &str, rows: &'r [Row]) -> Result<Vec<&'r Row>, CaseError> {
    let column = column_of(row, name)?;
    let references = match column[0].as_str() {
        Some("uuid") => vec![column.clone()],
        _ => column[1].as_array().cloned().ok_or_else(|| failed(name, column))?,
    };
    let find = |reference: &Value| {
        let mut rows = rows.iter();
        rows.find(|row| row.get("_uuid") == Some(reference)).ok_or_else(|| failed(name, reference))
    };
    references.iter().map(find).collect()
}

//! Measurement of software bridges in the machine of the lab: by vfleet, and by the same transactions of a bare client.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Deserializer, Value, json};
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::keys::{OVS_KEYS, OVS_UPLINK};
use vfleet_host::{HostRoot, LinuxHost};
use vfleet_plan::{NodeOptions, plan_node_with};

use super::lab_program::configure;

/// Cards, with the names of their interfaces.
const CARDS: [(&str, &str); 4] = [
    ("0000:01:00.0", "enp1s0"),
    ("0000:02:00.0", "enp2s0"),
    ("0000:03:00.0", "enp3s0"),
    ("0000:04:00.0", "enp4s0"),
];
const SOCKET: &str = "/run/openvswitch/db.sock";
const OPTIONS: NodeOptions =
    NodeOptions { firmware_reset: false, mellanox: true, manage_bridges: true, ovs_offload: false };

/// Times in seconds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct BridgeTimes {
    /// Transactions of the bare client.
    pub(super) bare: Vec<f64>,
    /// First creation, with records and rules of udev.
    pub(super) first: Vec<f64>,
    /// Creation of bridges that were deleted by hand.
    pub(super) again: Vec<f64>,
}

/// Measures creating one bridge for each card. The cards are in switchdev mode before.
pub(super) fn create_bridges(rounds: usize) -> Result<BridgeTimes> {
    // One host, as in an agent, which runs for long.
    let host = LinuxHost::new(HostRoot::default()).with_ovs(true);
    apply(&host, false)?;
    let mut times = BridgeTimes::default();
    for _ in 0..rounds {
        times.first.push(measure(|| apply(&host, true))?);
        delete_bridges()?;
        times.again.push(measure(|| apply(&host, true))?);
        apply(&host, false)?;
        times.bare.push(measure(create_by_bare_client)?);
        delete_bridges()?;
    }
    Ok(times)
}

/// Deletes the bridges of all cards, as an administrator would.
fn delete_bridges() -> Result<()> {
    CARDS.iter().try_for_each(|(pf, _)| run("ovs-vsctl", &["del-br", &bridge_name(pf)]).map(drop))
}

/// Returns the duration of `create` in seconds.
fn measure(create: impl FnOnce() -> Result<()>) -> Result<f64> {
    ensure!(run("ovs-vsctl", &["list-br"])?.is_empty(), "bridges are left");
    let started = Instant::now();
    create()?;
    let duration = started.elapsed().as_secs_f64();
    // The datapath has the PFs, not only the database.
    let datapath = run("ovs-dpctl", &["show"])?;
    for (pf, interface) in CARDS {
        let has = |name: &str| datapath.split_whitespace().any(|word| word == name);
        ensure!(has(interface) && has(&bridge_name(pf)), "{interface} is no port: {datapath}");
    }
    Ok(duration)
}

fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().context(program.to_owned())?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn bridge_name(pf: &str) -> String {
    format!("br-{}", pf.replace(':', "_"))
}

/// Configures all cards, with bridges or without.
fn apply(host: &LinuxHost, has_bridges: bool) -> Result<()> {
    let interface = |(pf, name): (&str, &str)| json!({ "pciAddress": pf, "name": name, "numVfs": 1, "eSwitchMode": "switchdev" });
    let bridge = |(pf, name): (&str, &str)| json!({ "name": bridge_name(pf), "uplinks": [{ "pciAddress": pf, "name": name }] });
    let bridges: Vec<Value> = CARDS.into_iter().filter(|_| has_bridges).map(bridge).collect();
    let spec: SriovNetworkNodeStateSpec = serde_json::from_value(json!({
        "interfaces": CARDS.map(interface), "bridges": { "ovs": bridges },
    }))?;
    configure(host, &|facts| plan_node_with(&spec, facts, &OPTIONS))
}

/// Sends only the same transactions, one after the other, and waits until ovs-vswitchd has applied each.
fn create_by_bare_client() -> Result<()> {
    let mut stream = UnixStream::connect(SOCKET).context(SOCKET)?;
    let reader = BufReader::new(stream.try_clone()?);
    let mut messages = Deserializer::from_reader(reader).into_iter::<Value>();
    let mut receive = || messages.next().context("the server closed the connection")?.context("a message");
    let columns = json!({ "Open_vSwitch": { "columns": ["cur_cfg"] } });
    send(&mut stream, "monitor", &json!(["Open_vSwitch", null, columns]))?;
    let initial = receive()?;
    let rows = initial["result"]["Open_vSwitch"].as_object().context("the root row")?;
    let root = rows.keys().next().context("the root row")?.clone();
    for (pf, name) in CARDS {
        send(&mut stream, "transact", &transaction(&root, pf, name))?;
        let mut requested = None;
        let mut applied = 0;
        while requested.is_none_or(|number| applied < number) {
            let message = receive()?;
            if message["method"] == "update" {
                let number = message["params"][1]["Open_vSwitch"][&root]["new"]["cur_cfg"].as_i64();
                applied = number.unwrap_or(applied);
            } else {
                let results = message["result"].as_array().cloned().unwrap_or_default();
                let number = results.last().and_then(|result| result["rows"][0]["next_cfg"].as_i64());
                let Some(number) = number else { bail!("the transaction failed: {message}") };
                requested = Some(number);
            }
        }
    }
    Ok(())
}

fn send(stream: &mut UnixStream, method: &str, params: &Value) -> Result<()> {
    let request = json!({ "method": method, "params": params, "id": method });
    stream.write_all(request.to_string().as_bytes()).context("the request")
}

/// Returns the transaction by which vfleet creates the bridge of a card.
fn transaction(root: &str, pf: &str, uplink: &str) -> Value {
    let bridge = bridge_name(pf);
    let of_root = json!([["_uuid", "==", ["uuid", root]]]);
    let empty = json!(["map", []]);
    let none = json!(["set", []]);
    let named = |name: &str| json!(["set", [["named-uuid", name]]]);
    let insert = |table: &str, name: &str, row: Value| json!({ "op": "insert", "table": table, "uuid-name": name, "row": row });
    let wait = |table: &str, conditions: &Value, until: &str| {
        json!({ "op": "wait", "table": table, "where": conditions, "columns": ["_uuid"], "until": until,
                "rows": [], "timeout": 0 })
    };
    let uplink_row = json!({
        "name": uplink, "type": "", "options": empty, "external_ids": empty, "other_config": empty,
        "mtu_request": none,
    });
    let uplink_port = json!({
        "name": uplink, "external_ids": ["map", [[OVS_UPLINK, pf]]],
        "interfaces": named("uplink_interface"),
    });
    let row = json!({
        "name": bridge, "datapath_type": "", "fail_mode": none, "other_config": empty,
        "external_ids": ["map", [[OVS_UPLINK, pf], [OVS_KEYS, "{}"]]],
        "ports": ["set", [["named-uuid", "internal_port"], ["named-uuid", "uplink_port"]]],
    });
    let mutations = json!([["bridges", "insert", named("bridge")], ["next_cfg", "+=", 1]]);
    json!([
        "Open_vSwitch",
        wait("Open_vSwitch", &of_root, "!="),
        { "op": "comment", "comment": format!("vfleet: create Open vSwitch bridge {bridge}") },
        wait("Bridge", &json!([["name", "==", bridge]]), "=="),
        insert("Interface", "internal_interface", json!({ "name": bridge, "type": "internal" })),
        insert("Port", "internal_port", json!({ "name": bridge, "interfaces": named("internal_interface") })),
        insert("Interface", "uplink_interface", uplink_row),
        insert("Port", "uplink_port", uplink_port),
        insert("Bridge", "bridge", row),
        { "op": "mutate", "table": "Open_vSwitch", "where": of_root, "mutations": mutations },
        { "op": "select", "table": "Open_vSwitch", "where": of_root, "columns": ["next_cfg"] },
    ])
}

//! Open vSwitch bridges of four cards, created by vfleet and by a bare client, in the machine of the lab.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Deserializer, Value, json};
use vfleet_agent::apply::{ApplyContext, apply_plan, survey};
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::{HostRoot, LinuxHost};
use vfleet_plan::{HostFacts, NodeOptions, plan_node_with, verified_bridges};

use super::lab_program::Times;

/// Number of cards.
pub(super) const CARDS: u8 = 4;
const SOCKET: &str = "/var/run/openvswitch/db.sock";

/// Measures creating the bridges. The cards are in switchdev mode and have one VF each from the start.
pub(super) fn measure(rounds: usize) -> Result<Times> {
    apply(false)?;
    let mut times = Times::default();
    for _ in 0..rounds {
        times.vfleet.push(measure_once(|| apply(true))?.as_secs_f64());
        apply(false)?;
        times.bare.push(measure_once(create_by_bare_client)?.as_secs_f64());
        for card in 1..=CARDS {
            vsctl(&["del-br", &bridge(card)])?;
        }
    }
    Ok(times)
}

fn measure_once(create: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let started = Instant::now();
    create()?;
    let duration = started.elapsed();
    for card in 1..=CARDS {
        let ports = vsctl(&["list-ports", &bridge(card)])?;
        ensure!(ports.trim() == interface(card)?, "ports of {}: {ports}", bridge(card));
    }
    Ok(duration)
}

fn bridge(card: u8) -> String {
    format!("br-0000_0{card}_00.0")
}

/// Returns the name of the interface of a card. Its representors are in the same directory.
fn interface(card: u8) -> Result<String> {
    let directory = format!("/sys/bus/pci/devices/0000:0{card}:00.0/net");
    for entry in std::fs::read_dir(&directory).with_context(|| directory.clone())? {
        let entry = entry?;
        let port = std::fs::read_to_string(entry.path().join("phys_port_name")).unwrap_or_default();
        if !port.contains("vf") {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    anyhow::bail!("no interface in {directory}")
}

fn vsctl(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ovs-vsctl").args(arguments).output().context("ovs-vsctl")?;
    ensure!(output.status.success(), "ovs-vsctl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Surveys, plans, executes and verifies, as the agent does.
fn apply(with_bridges: bool) -> Result<()> {
    let host = LinuxHost::new(HostRoot::default()).with_ovs(true);
    let interface = |card: u8| {
        json!({
            "pciAddress": format!("0000:0{card}:00.0"), "numVfs": 1, "eSwitchMode": "switchdev",
            "vfGroups": [{
                "resourceName": "all", "deviceType": "netdevice", "vfRange": "0-0", "policyName": "all",
            }],
        })
    };
    let uplinked = |card: u8| json!({ "name": bridge(card), "uplinks": [{ "pciAddress": format!("0000:0{card}:00.0") }] });
    let mut spec = json!({ "interfaces": (1..=CARDS).map(interface).collect::<Vec<_>>() });
    if with_bridges {
        spec["bridges"] = json!({ "ovs": (1..=CARDS).map(uplinked).collect::<Vec<_>>() });
    }
    let spec: SriovNetworkNodeStateSpec = serde_json::from_value(spec)?;
    let options = NodeOptions { manage_bridges: true, ..NodeOptions::default() };
    let planner = |facts: &HostFacts| plan_node_with(&spec, facts, &options);
    let context = ApplyContext {
        host: &host,
        node: "lab",
        planner: &planner,
        one_card_at_a_time: false,
        listener: &|_| {},
    };
    let (facts, plan) = survey(context.host, context.planner)?;
    let outcome = apply_plan(&context, facts, plan);
    ensure!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let verified = outcome.facts.map(|facts| verified_bridges(&spec, &facts).len()).unwrap_or_default();
    ensure!(verified == if with_bridges { CARDS.into() } else { 0 }, "{verified} bridges are verified");
    Ok(())
}

/// Sends only the same transactions, one after the other, and waits until ovs-vswitchd has applied each of them.
fn create_by_bare_client() -> Result<()> {
    for card in 1..=CARDS {
        let (name, uplink) = (bridge(card), interface(card)?);
        let mut client = BareClient::connect()?;
        let select = json!({"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["_uuid"]});
        let root = client.call("transact", &json!(["Open_vSwitch", select]))?;
        let root = &root[0]["rows"][0]["_uuid"];
        let row = |table: &str, id: &str, row: Value| json!({"op": "insert", "table": table, "uuid-name": id, "row": row});
        let is_root = json!([["_uuid", "==", root]]);
        let mutations = json!([["bridges", "insert", ["set", [["named-uuid", "b"]]]], ["next_cfg", "+=", 1]]);
        let operations = json!([
            "Open_vSwitch",
            row("Interface", "ii", json!({"name": name, "type": "internal"})),
            row("Port", "pi", json!({"name": name, "interfaces": ["set", [["named-uuid", "ii"]]]})),
            row("Interface", "iu", json!({"name": uplink})),
            row("Port", "pu", json!({"name": uplink, "interfaces": ["set", [["named-uuid", "iu"]]]})),
            row("Bridge", "b", json!({"name": name, "ports": ["set", [["named-uuid", "pi"], ["named-uuid", "pu"]]]})),
            {"op": "mutate", "table": "Open_vSwitch", "where": is_root, "mutations": mutations},
            {"op": "select", "table": "Open_vSwitch", "where": is_root, "columns": ["next_cfg"]},
        ]);
        let results = client.call("transact", &operations)?;
        let number = results[6]["rows"][0]["next_cfg"].as_i64().with_context(|| results.to_string())?;
        client.wait_for(number)?;
    }
    Ok(())
}

/// Client of ovsdb-server without checks.
struct BareClient {
    stream: UnixStream,
    /// Received bytes that are not parsed yet.
    received: Vec<u8>,
}

impl BareClient {
    fn connect() -> Result<Self> {
        Ok(Self { stream: UnixStream::connect(SOCKET).context(SOCKET)?, received: Vec::new() })
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        let request = json!({"method": method, "params": parameters, "id": 1});
        self.stream.write_all(request.to_string().as_bytes())?;
        let mut answer = self.receive()?;
        ensure!(answer["error"].is_null(), "{answer}");
        Ok(answer["result"].take())
    }

    fn receive(&mut self) -> Result<Value> {
        let mut chunk = [0; 1 << 14];
        loop {
            let mut messages = Deserializer::from_slice(&self.received).into_iter::<Value>();
            match messages.next() {
                Some(Ok(message)) => {
                    let end = messages.byte_offset();
                    self.received.drain(..end);
                    return Ok(message);
                }
                Some(Err(error)) if !error.is_eof() => return Err(error.into()),
                Some(Err(_)) | None => {}
            }
            let length = self.stream.read(&mut chunk)?;
            ensure!(length > 0, "the server closed the connection");
            self.received.extend_from_slice(&chunk[..length]);
        }
    }

    fn wait_for(&mut self, number: i64) -> Result<()> {
        let columns = json!({"Open_vSwitch": {"columns": ["cur_cfg"]}});
        let current = self.call("monitor", &json!(["Open_vSwitch", null, columns]))?;
        let mut tables = current;
        loop {
            let rows = tables["Open_vSwitch"].as_object().into_iter().flatten();
            if rows.filter_map(|(_, row)| row["new"]["cur_cfg"].as_i64()).any(|current| current >= number) {
                return Ok(());
            }
            tables = self.receive()?["params"][1].take();
        }
    }
}

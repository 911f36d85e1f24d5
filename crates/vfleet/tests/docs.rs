//! Examples of the documentation: policies are planned on a machine that has their cards.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failed expectation is the point")]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use vfleet_plan::bridge_port;

/// Pages that contain policies.
const PAGES: [&str; 2] = ["docs/externally-managed.md", "docs/systemd-mode.md"];

fn read(page: &str) -> String {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(page);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the program under test: the shipped one in `make test`.
fn vfleet() -> OsString {
    std::env::var_os("VFLEET_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_vfleet").into())
}

/// Returns the blocks of a language in a page.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("```{language}\n");
    page.split(&start).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Plans a policy on a machine, and returns the output.
fn plan(policy: &str, machine: &Value, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let (machine_file, policy_file) = (directory.path().join("machine"), directory.path().join("policy"));
    std::fs::write(&machine_file, machine.to_string()).unwrap();
    std::fs::write(&policy_file, policy).unwrap();
    let mut command = Command::new(vfleet());
    command.args(["node", "plan", "-f"]).arg(&policy_file).arg("--sim").arg(&machine_file).args(arguments);
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{policy}: {stdout}");
    stdout
}

fn policies(page: &str) -> Vec<&str> {
    blocks(page, "yaml").into_iter().filter(|yaml| yaml.contains("SriovNetworkNodePolicy")).collect()
}

#[test]
fn policies_in_the_documentation_are_valid() {
    let card = |address: &str, name: &str, vfs: u16| {
        json!({ "address": address, "name": name, "vendor": "8086", "device": "158b", "vfDevice": "154c",
                "driver": "i40e", "vfDriver": "iavf", "totalVfs": 64, "numVfs": vfs })
    };
    // The VFs of ens3f0 are externally managed.
    let cards = [card("0000:3b:00.0", "ens1f0", 0), card("0000:5e:00.0", "ens3f0", 10)];
    let machine = json!({ "pfs": cards, "userspaceDrivers": ["vfio-pci"] });
    for page in PAGES {
        let text = read(page);
        let policies = policies(&text);
        assert!(!policies.is_empty(), "{page} contains no policy");
        for policy in policies {
            let output = plan(policy, &machine, &[]);
            assert!(output.contains("selected"), "{page}: {output}");
        }
    }
}

/// The bridges of the administrator, which have the PFs of the last two workflows as ports, are not changed.
#[test]
fn the_policies_for_bridges_create_the_bridges_that_the_page_says() {
    let page = read("docs/bridges.md");
    let card = |address: &str, name: &str, vfs: u16, eswitch: &str| {
        json!({ "address": address, "name": name, "vendor": "15b3", "device": "101d", "vfDevice": "101e",
                "driver": "mlx5_core", "vfDriver": "mlx5_core", "totalVfs": 8, "maxMtu": 9978, "numVfs": vfs,
                "eswitch": eswitch, "tcOffload": false })
    };
    let cards = [
        card("0000:3b:00.0", "ens1f0", 0, "legacy"),
        card("0000:5e:00.0", "ens2f0", 0, "legacy"),
        card("0000:86:00.0", "ens3f0", 4, "switchdev"),
    ];
    let machine = json!({
        "pfs": cards, "openVswitch": { "bridges": [{ "name": "br-offload" }] },
        "linuxBridges": [{ "name": "br-external", "ports": ["ens3f0"] }],
    });
    let [ovs, linux, nic_only, external] = policies(&page)[..] else { panic!("four policies are expected") };
    let plan = |policy| plan(policy, &machine, &["--manage-software-bridges"]);
    let output = plan(ovs);
    assert!(output.contains("create Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0"), "{output}");
    let output = plan(linux);
    assert!(output.contains("create Linux bridge br-0000_5e_00.0"), "{output}");
    assert!(output.contains("learning off") && output.contains("vlan_filtering on"), "{output}");
    for policy in [nic_only, external] {
        let output = plan(policy);
        assert!(output.contains("selected") && !output.contains(" bridge "), "{output}");
    }
}

#[test]
fn the_table_of_bridge_port_settings_is_complete_and_right() {
    let page = read("docs/bridges.md");
    for name in bridge_port::NAMES {
        let error = bridge_port::validate(name, "?").unwrap_err().to_string();
        let values = error.split(": set it to ").nth(1).and_then(|text| text.strip_suffix(", or remove it"));
        let default = bridge_port::default_value(name, None).unwrap();
        let default = if name == "cost" { format!("by speed: {default} if unknown") } else { default };
        let row = format!("| `{name}` | {} | {default} |\n", values.unwrap());
        assert!(page.contains(&row), "the table has no row {row}");
    }
}

#[test]
fn the_page_about_bridges_has_every_reason() {
    let page = read("docs/bridges.md");
    let mut reasons = reasons_of(include_str!("../../plan/src/node/bridge/fault.rs"), &[""]);
    // Steps for bridges also fail for reasons that other steps have.
    let of_steps =
        ["Ovs", "Bridge", "Uplink", "::Netlink", "::NotVerified", "::Deadline", "::StillRunning", "::Io"];
    reasons.extend(reasons_of(include_str!("../../host/src/error.rs"), &of_steps));
    reasons.extend(reasons_of_progress());
    assert!(reasons.len() > 30, "{reasons:?}");
    for reason in reasons {
        assert!(page.contains(&format!("`{reason}`")), "{reason} is missing");
    }
}

/// Returns the texts in the arms of a `match` whose patterns contain one of these words.
fn reasons_of(source: &str, words: &[&str]) -> Vec<String> {
    let source = source.split_whitespace().collect::<Vec<_>>().join(" ").replace("=> { \"", "=> \"");
    let arms: Vec<&str> = source.split("=> \"").collect();
    let is_wanted = |before: &str| {
        let pattern = before.rsplit('"').next().unwrap_or_default();
        words.iter().any(|word| pattern.contains(word))
    };
    let arms = arms.windows(2).filter(|arm| is_wanted(arm[0]));
    arms.filter_map(|arm| Some(arm[1].split_once('"')?.0.to_owned())).collect()
}

/// Returns the reasons that the agent writes itself, which are constants.
fn reasons_of_progress() -> Vec<String> {
    let constants = include_str!("../../agent/src/status.rs");
    let bridges = include_str!("../../agent/src/status/bridges.rs");
    let users = [bridges, include_str!("../../agent/src/status/devices.rs")].concat();
    let constants = constants.lines().filter_map(|line| {
        let (name, value) = line.trim_end_matches("\";").split_once(": &str = \"")?;
        Some((name.rsplit(' ').next()?, value))
    });
    let used = constants.filter(|(name, _)| users.contains(name));
    let reasons: Vec<_> = used.map(|(_, value)| value.to_owned()).collect();
    assert!(reasons.len() >= 5, "{reasons:?}");
    reasons
}

#[test]
fn the_unit_in_the_documentation_works_with_old_systemd() {
    let page = read("docs/standalone.md");
    let units = blocks(&page, "ini");
    let [unit] = units.as_slice() else { panic!("one unit is expected: {units:?}") };
    assert!(unit.contains("\nDescription=") && unit.contains("\nTimeoutStartSec="), "{unit}");
    // systemd 239 refuses a oneshot service with it.
    assert!(!unit.contains("Restart="), "{unit}");
}

use serde_json::json;
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::{Plan, Step, plan_node};

use super::*;
use crate::linux::test_tree::TestTree;
use crate::{Host, LinuxHost};

const PORT: &str = "0000:03:00.0";
const OTHER_PORT: &str = "0000:03:00.1";

/// Returns a card whose tool stores the settings in a file of the tree and prints a table of three columns.
fn card() -> TestTree {
    let tree = TestTree::new();
    tree.add_card(PORT, "0x15b3\n");
    tree.add_card(OTHER_PORT, "0x15b3\n");
    tree.write("flash", "False(0)|0");
    tree.program(
        "mstconfig",
        r"IFS='|' read -r on count < $ROOT/flash
        case $1 in
        -e) printf 'Device #1:\n----------\n\nConfigurations:                  Default         Current         Next Boot\n'
            printf '*        NUM_OF_VFS              0               0               %s\n' $count
            printf '*        SRIOV_EN                False(0)        False(0)        %s\n' $on ;;
        *)  for pair in $@; do case $pair in
                NUM_OF_VFS=*) count=${pair#*=} ;; SRIOV_EN=True) on='True(1)' ;; SRIOV_EN=False) on='False(0)' ;;
            esac; done
            echo $on'|'$count > $ROOT/flash ;;
        esac",
    );
    tree
}

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn desired() -> FirmwareSettings {
    FirmwareSettings { sriov: Some(true), num_vfs: Some(8), ..FirmwareSettings::default() }
}

#[test]
fn a_card_is_queried_once_until_it_is_changed() {
    let tree = card();
    let firmware = |port| read_settings(tree.root(), MELLANOX, address(port)).unwrap().unwrap();
    let before = firmware(PORT);
    assert_eq!((before.current.num_vfs, before.next_boot.sriov), (Some(0), Some(false)));
    assert_eq!(firmware(OTHER_PORT), before);
    assert_eq!(tree.started(), ["mstconfig -e -d 0000:03:00.0 query"]);

    set(tree.root(), address(PORT), &desired(), "set firmware").unwrap();
    let after = firmware(OTHER_PORT);
    assert_eq!((after.next_boot.num_vfs, after.next_boot.sriov), (Some(8), Some(true)));
    assert_eq!((after.current.num_vfs, after.current.sriov), (Some(0), Some(false)));
    assert_eq!(
        tree.started()[1..],
        [
            "mstconfig -d 0000:03:00.0 -y set SRIOV_EN=True NUM_OF_VFS=8",
            "mstconfig -e -d 0000:03:00.0 query",
            "mstconfig -e -d 0000:03:00.1 query",
        ]
    );
}

#[test]
fn a_tool_without_an_effect_is_an_error() {
    let tree = card();
    let refused = FirmwareSettings { num_vfs: Some(8), ..FirmwareSettings::default() };
    tree.program("mstconfig", "printf 'Configurations: Default Current Next Boot\\n NUM_OF_VFS 0 0 4\\n'");
    let error = set(tree.root(), address(PORT), &refused, "set firmware").unwrap_err();
    assert_eq!(error.reason(), "NotVerified", "{error}");
    tree.program("mstconfig", "echo '-E- Failed to open the device'; exit 1");
    let error = set(tree.root(), address(PORT), &refused, "set firmware").unwrap_err();
    assert!(error.to_string().ends_with("-E- Failed to open the device"), "{error}");
}

#[test]
fn settings_are_unknown_without_a_tool_and_for_other_vendors() {
    let tree = TestTree::new();
    tree.add_card(PORT, "0x15b3\n");
    assert_eq!(read_settings(tree.root(), MELLANOX, address(PORT)).unwrap(), None);
    let error = set(tree.root(), address(PORT), &desired(), "set firmware").unwrap_err();
    assert_eq!(error.reason(), "NoFirmwareTool");
    assert_eq!(reset(tree.root(), address(PORT)).unwrap_err().reason(), "NoFirmwareTool");
    let tree = card();
    assert_eq!(read_settings(tree.root(), 0x8086, address(PORT)).unwrap(), None);
    assert!(tree.started().is_empty());
}

#[test]
fn a_failing_tool_is_an_error() {
    for (script, expected) in [
        ("echo nonsense", "`mstconfig -e -d 0000:03:00.0 query` failed (unexpected output): "),
        (
            "echo '-E- Failed to open the device' >&2; exit 3",
            "`mstconfig -e -d 0000:03:00.0 query` failed (exit status: 3): -E- Failed to open the device",
        ),
    ] {
        let tree = card();
        tree.program("mstconfig", script);
        for port in [PORT, OTHER_PORT] {
            let error = read_settings(tree.root(), MELLANOX, address(port)).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        assert_eq!(tree.started().len(), 1, "not queried again immediately");
    }
}

#[test]
fn a_replaced_tool_is_queried_immediately() {
    let tree = card();
    tree.program("mstconfig", "exit 3");
    read_settings(tree.root(), MELLANOX, address(PORT)).unwrap_err();
    tree.program("mstconfig", "printf 'Configurations: Default Current Next Boot\\n NUM_OF_VFS 0 0 4\\n'");
    let facts = read_settings(tree.root(), MELLANOX, address(PORT)).unwrap().unwrap();
    assert_eq!(facts.next_boot.num_vfs, Some(4));
}

/// Covers host facts, the plan and its execution for a card that hides its VFs.
#[test]
fn disabled_sriov_is_enabled_and_the_error_of_a_failing_tool_is_reported() {
    let tree = card();
    for port in [PORT, OTHER_PORT] {
        for name in ["sriov_totalvfs", "sriov_numvfs"] {
            std::fs::remove_file(tree.path(&format!("/sys/bus/pci/devices/{port}/{name}"))).unwrap();
        }
    }
    let spec = |interfaces: serde_json::Value| {
        serde_json::from_value::<SriovNetworkNodeStateSpec>(json!({ "interfaces": interfaces })).unwrap()
    };
    let desired = spec(json!([{"pciAddress": PORT, "name": "a", "numVfs": 8}]));
    let host = LinuxHost::new(tree.root().clone());
    let facts = host.facts().unwrap();
    assert_eq!((facts.pfs.len(), facts.pfs[0].total_vfs), (2, 0));
    assert_eq!(plan_node(&spec(json!([])), &facts), Plan::default(), "no VFs are desired");
    let plan = plan_node(&desired, &facts);
    let set = plan.steps.iter().find(|planned| matches!(planned.step, Step::SetFirmware { .. })).unwrap();
    assert_eq!(set.step.to_string(), "set 0000:03:00.0 firmware SRIOV_EN=True NUM_OF_VFS=8");
    host.execute(&set.step).unwrap();
    assert_eq!(tree.read("flash").trim(), "True(1)|8");

    tree.program("mstconfig", "echo '-E- Failed to open the device'; exit 3");
    let facts = LinuxHost::new(HostRoot::new(tree.path("")).with_direct_commands()).facts().unwrap();
    assert_eq!((facts.pfs.len(), facts.failed_queries.len()), (2, 2));
    let plan = plan_node(&desired, &facts);
    let problem =
        plan.problems.iter().find(|problem| problem.cause.reason() == "FirmwareToolFailed").unwrap();
    assert!(problem.is_retryable());
    let expected = "query` failed (exit status: 3): -E- Failed to open the device";
    let text = problem.to_string();
    assert!(text.starts_with("PF a (0000:03:00.0): ") && text.ends_with(expected), "{text}");
    // The tool does not matter if no firmware setting is needed.
    assert_eq!(plan_node(&spec(json!([])), &facts), Plan::default());
}

#[test]
fn firmware_is_reset_by_the_installed_tool() {
    let tree = card();
    tree.program("mlxfwreset", "");
    reset(tree.root(), address(PORT)).unwrap();
    assert_eq!(tree.started(), ["mlxfwreset -d 0000:03:00.0 --skip_driver -l 3 -y reset"]);
}

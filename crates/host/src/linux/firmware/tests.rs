use serde_json::json;
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::{Plan, Step, plan_node};

use super::*;
use crate::linux::tree::Tree;
use crate::{Host, LinuxHost};

const PORT: &str = "0000:03:00.0";
const OTHER_PORT: &str = "0000:03:00.1";

/// A card whose tool keeps its settings in a file of the tree, as a table of three columns.
fn card() -> Tree {
    let tree = Tree::new();
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

fn wanted() -> FirmwareSettings {
    FirmwareSettings { sriov: Some(true), num_vfs: Some(8), ..FirmwareSettings::default() }
}

#[test]
fn a_card_is_asked_once_until_it_is_changed() {
    let tree = card();
    let firmware = |port| of_card(tree.root(), MELLANOX, address(port)).unwrap().unwrap();
    let before = firmware(PORT);
    assert_eq!((before.current.num_vfs, before.next_boot.sriov), (Some(0), Some(false)));
    assert_eq!(firmware(OTHER_PORT), before);
    assert_eq!(tree.started(), ["mstconfig -e -d 0000:03:00.0 query"]);

    set(tree.root(), address(PORT), &wanted(), "set firmware").unwrap();
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
fn a_tool_that_sets_nothing_is_found_out() {
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
fn without_a_tool_and_for_other_vendors_nothing_is_known() {
    let tree = Tree::new();
    tree.add_card(PORT, "0x15b3\n");
    assert_eq!(of_card(tree.root(), MELLANOX, address(PORT)).unwrap(), None);
    let error = set(tree.root(), address(PORT), &wanted(), "set firmware").unwrap_err();
    assert_eq!(error.reason(), "NoFirmwareTool");
    assert_eq!(reset(tree.root(), address(PORT)).unwrap_err().reason(), "NoFirmwareTool");
    let tree = card();
    assert_eq!(of_card(tree.root(), 0x8086, address(PORT)).unwrap(), None);
    assert!(tree.started().is_empty());
}

#[test]
fn a_tool_that_fails_is_not_one_that_is_missing() {
    for (script, words) in [
        ("echo nonsense", "`mstconfig -e -d 0000:03:00.0 query` failed (its answer makes no sense): "),
        (
            "echo '-E- Failed to open the device' >&2; exit 3",
            "`mstconfig -e -d 0000:03:00.0 query` failed (exit status: 3): -E- Failed to open the device",
        ),
    ] {
        let tree = card();
        tree.program("mstconfig", script);
        for port in [PORT, OTHER_PORT] {
            let error = of_card(tree.root(), MELLANOX, address(port)).unwrap_err();
            assert!(error.to_string().starts_with(words), "{error}");
        }
        assert_eq!(tree.started().len(), 1, "not asked again at once");
    }
}

#[test]
fn a_tool_that_was_replaced_is_asked_at_once() {
    let tree = card();
    tree.program("mstconfig", "exit 3");
    of_card(tree.root(), MELLANOX, address(PORT)).unwrap_err();
    tree.program("mstconfig", "printf 'Configurations: Default Current Next Boot\\n NUM_OF_VFS 0 0 4\\n'");
    let facts = of_card(tree.root(), MELLANOX, address(PORT)).unwrap().unwrap();
    assert_eq!(facts.next_boot.num_vfs, Some(4));
}

/// The way from a card that shows no VFs, through the planner, to a tool's words or its work.
#[test]
fn sriov_that_is_switched_off_is_switched_on_and_a_tool_that_fails_is_quoted() {
    let tree = card();
    for port in [PORT, OTHER_PORT] {
        for name in ["sriov_totalvfs", "sriov_numvfs"] {
            std::fs::remove_file(tree.path(&format!("/sys/bus/pci/devices/{port}/{name}"))).unwrap();
        }
    }
    let spec = |interfaces: serde_json::Value| {
        serde_json::from_value::<SriovNetworkNodeStateSpec>(json!({ "interfaces": interfaces })).unwrap()
    };
    let wanted = spec(json!([{"pciAddress": PORT, "name": "a", "numVfs": 8}]));
    let host = LinuxHost::new(tree.root().clone());
    let facts = host.facts().unwrap();
    assert_eq!((facts.pfs.len(), facts.pfs[0].total_vfs), (2, 0));
    assert_eq!(plan_node(&spec(json!([])), &facts), Plan::default(), "nobody wants VFs of it");
    let plan = plan_node(&wanted, &facts);
    let set = plan.steps.iter().find(|planned| matches!(planned.step, Step::SetFirmware { .. })).unwrap();
    assert_eq!(set.step.to_string(), "set 0000:03:00.0 firmware SRIOV_EN=True NUM_OF_VFS=8");
    host.execute(&set.step).unwrap();
    assert_eq!(tree.read("flash").trim(), "True(1)|8");

    tree.program("mstconfig", "echo '-E- Failed to open the device'; exit 3");
    let facts = LinuxHost::new(HostRoot::new(tree.path("")).with_direct_commands()).facts().unwrap();
    assert_eq!((facts.pfs.len(), facts.unanswered.len()), (2, 2));
    let plan = plan_node(&wanted, &facts);
    let problem =
        plan.problems.iter().find(|problem| problem.cause.reason() == "FirmwareToolFailed").unwrap();
    assert!(problem.is_worth_a_retry());
    let words = "query` failed (exit status: 3): -E- Failed to open the device";
    let text = problem.to_string();
    assert!(text.starts_with("a (0000:03:00.0): ") && text.ends_with(words), "{text}");
    // Where nothing of the firmware is needed, its tool does not matter.
    assert_eq!(plan_node(&spec(json!([])), &facts), Plan::default());
}

#[test]
fn firmware_is_restarted_by_the_tool_that_is_there() {
    let tree = card();
    tree.program("mlxfwreset", "");
    reset(tree.root(), address(PORT)).unwrap();
    assert_eq!(tree.started(), ["mlxfwreset -d 0000:03:00.0 --skip_driver -l 3 -y reset"]);
}

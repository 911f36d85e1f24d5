use super::*;
use crate::linux::tree::Tree;

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
    let firmware = |port| of_card(tree.root(), MELLANOX, address(port));
    let before = firmware(PORT).unwrap();
    assert_eq!((before.current.num_vfs, before.next_boot.sriov), (Some(0), Some(false)));
    assert_eq!(firmware(OTHER_PORT).unwrap(), before);
    assert_eq!(tree.started(), ["mstconfig -e -d 0000:03:00.0 query"]);

    set(tree.root(), address(PORT), &wanted(), "set firmware").unwrap();
    let after = firmware(OTHER_PORT).unwrap();
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
    assert_eq!(of_card(tree.root(), MELLANOX, address(PORT)), None);
    let error = set(tree.root(), address(PORT), &wanted(), "set firmware").unwrap_err();
    assert_eq!(error.reason(), "NoFirmwareTool");
    assert_eq!(reset(tree.root(), address(PORT)).unwrap_err().reason(), "NoFirmwareTool");
    let tree = card();
    assert_eq!(of_card(tree.root(), 0x8086, address(PORT)), None);
    assert!(tree.started().is_empty());
}

#[test]
fn a_tool_that_cannot_tell_is_no_reason_to_give_the_card_up() {
    let tree = card();
    tree.program("mstconfig", "echo nonsense");
    assert_eq!(of_card(tree.root(), MELLANOX, address(PORT)), None);
    assert_eq!(of_card(tree.root(), MELLANOX, address(OTHER_PORT)), None);
    assert_eq!(tree.started().len(), 1, "not asked again at once");
}

#[test]
fn firmware_is_restarted_by_the_tool_that_is_there() {
    let tree = card();
    tree.program("mlxfwreset", "");
    reset(tree.root(), address(PORT)).unwrap();
    assert_eq!(tree.started(), ["mlxfwreset -d 0000:03:00.0 --skip_driver -l 3 -y reset"]);
}

use super::*;
use crate::linux::test_tree::TestTree;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns a tree with the boot loader `loader`.
fn booted_by(loader: BootLoader) -> TestTree {
    let tree = TestTree::new();
    match loader {
        BootLoader::RpmOstree => tree.write("/run/ostree-booted", ""),
        BootLoader::GrubDropIn => tree.write("/etc/default/grub", ""),
        BootLoader::SystemdBoot => std::fs::create_dir_all(tree.path("/efi/loader/entries")).unwrap(),
        BootLoader::Grubby => {}
    }
    tree
}

fn set(tree: &TestTree, loader: BootLoader, add: &str, remove: &str) -> Result<(), HostError> {
    change_arguments(tree.root(), loader, &words(add), &words(remove), "change kernel arguments")
}

#[test]
fn boot_loaders_are_detected_in_the_order_of_precedence() {
    let tree = TestTree::new();
    let found = || find(tree.root());
    assert_eq!(found(), None);
    tree.program("kernel-install", "");
    assert_eq!(found(), None);
    tree.write("/etc/kernel/cmdline", "quiet\n");
    assert_eq!(found(), Some(BootLoader::SystemdBoot));
    tree.program("update-grub", "");
    assert_eq!(found(), Some(BootLoader::SystemdBoot));
    tree.write("/etc/default/grub", "");
    assert_eq!(found(), Some(BootLoader::GrubDropIn));
    tree.program("grubby", "");
    assert_eq!(found(), Some(BootLoader::Grubby));
    tree.program("rpm-ostree", "");
    assert_eq!(found(), Some(BootLoader::Grubby));
    tree.write("/run/ostree-booted", "");
    assert_eq!(found(), Some(BootLoader::RpmOstree));
}

#[test]
fn rpm_ostree_is_called_to_change_and_to_verify() {
    let tree = booted_by(BootLoader::RpmOstree);
    tree.program("rpm-ostree", "[ $# -gt 1 ] || echo 'root=UUID=1 intel_iommu=on iommu=pt'");
    set(&tree, BootLoader::RpmOstree, "intel_iommu=on iommu=pt", "ib_core.netns_mode=0").unwrap();
    let change = "rpm-ostree kargs --append-if-missing=intel_iommu=on --append-if-missing=iommu=pt \
                  --delete-if-present=ib_core.netns_mode=0";
    assert_eq!(tree.started(), [change, "rpm-ostree kargs"]);
}

#[test]
fn grubby_is_called_to_change_and_to_verify() {
    let tree = booted_by(BootLoader::Grubby);
    tree.program(
        "grubby",
        "[ $1 != --info=DEFAULT ] || printf 'index=0\\nargs=\"ro intel_iommu=on iommu=pt\"\\n'",
    );
    set(&tree, BootLoader::Grubby, "intel_iommu=on iommu=pt", "ib_core.netns_mode=0").unwrap();
    let change =
        "grubby --update-kernel=ALL --args=intel_iommu=on iommu=pt --remove-args=ib_core.netns_mode=0";
    assert_eq!(tree.started(), [change, "grubby --info=DEFAULT"]);
}

#[test]
fn a_tool_that_reports_success_without_an_effect_is_an_error() {
    let tree = booted_by(BootLoader::Grubby);
    tree.program("grubby", "echo 'args=\"ro iommu=pt\"'");
    let error = set(&tree, BootLoader::Grubby, "intel_iommu=on", "").unwrap_err();
    assert_eq!(error.reason(), "NotVerified");
    let error = set(&tree, BootLoader::Grubby, "", "iommu=pt").unwrap_err();
    assert_eq!(error.reason(), "NotVerified");
    tree.program("grubby", "echo 'no boot entries' >&2; exit 1");
    let error = set(&tree, BootLoader::Grubby, "intel_iommu=on", "").unwrap_err();
    assert!(error.to_string().ends_with("no boot entries"), "{error}");
}

/// Like the real update-grub: reads the file of the administrator and then the others in a shell that stops at errors,
/// and uses both variables except in the rescue entry.
const UPDATE_GRUB: &str = r#"set -eu
    . $ROOT/etc/default/grub
    for f in $ROOT/etc/default/grub.d/*.cfg; do [ ! -e $f ] || . $f; done
    mkdir -p $ROOT/boot/grub
    printf '\tlinux\t/vmlinuz ro %s\n' "${GRUB_CMDLINE_LINUX-} ${GRUB_CMDLINE_LINUX_DEFAULT-}" \
        "single ${GRUB_CMDLINE_LINUX-}" 'of another system: iommu=off' >$ROOT/boot/grub/grub.cfg"#;

/// Returns the arguments of the first two entries.
fn entries(tree: &TestTree) -> [String; 2] {
    let config = tree.read("/boot/grub/grub.cfg");
    let mut lines = config.lines().map(|line| line.split_whitespace().skip(3).collect::<Vec<_>>().join(" "));
    [lines.next().unwrap(), lines.next().unwrap()]
}

#[test]
fn the_drop_in_is_extended_and_removed() {
    let tree = booted_by(BootLoader::GrubDropIn);
    tree.program("update-grub", UPDATE_GRUB);
    tree.write("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n");
    let next = || entries(&tree)[0].clone();
    set(&tree, BootLoader::GrubDropIn, "intel_iommu=on", "").unwrap();
    assert_eq!(next(), "quiet intel_iommu=on");
    set(&tree, BootLoader::GrubDropIn, "iommu=pt intel_iommu=on", "").unwrap();
    assert_eq!(next(), "quiet intel_iommu=on iommu=pt");
    set(&tree, BootLoader::GrubDropIn, "", "intel_iommu=on iommu=pt").unwrap();
    assert_eq!(next(), "quiet");
    assert!(!tree.path(DROP_IN).exists());
    assert_eq!(tree.started(), ["update-grub"; 3]);
}

#[test]
fn only_conflicting_arguments_of_the_administrator_are_removed() {
    let tree = booted_by(BootLoader::GrubDropIn);
    tree.program("update-grub", UPDATE_GRUB);
    let file = r#"GRUB_CMDLINE_LINUX="iommu=off iommu=off * dyndbg=\"file a  +p\" xiommu=off"
        GRUB_CMDLINE_LINUX_DEFAULT="intel_iommu=off quiet iommu=off""#;
    tree.write("/etc/default/grub", file);
    let kept = "* dyndbg=\"file a +p\" xiommu=off";
    set(&tree, BootLoader::GrubDropIn, "intel_iommu=on", "intel_iommu=off iommu=off").unwrap();
    assert_eq!(entries(&tree), [format!("{kept} quiet intel_iommu=on"), format!("single {kept}")]);
    // A conflicting argument that was added later comes before ours, so that ours takes precedence.
    tree.write("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT='intel_iommu=off,x quiet'");
    set(&tree, BootLoader::GrubDropIn, "intel_iommu=on", "").unwrap();
    assert_eq!(entries(&tree), ["intel_iommu=off,x quiet intel_iommu=on", "single"]);
    // Repeated, as after a crash: the same result.
    let before = tree.read(DROP_IN);
    set(&tree, BootLoader::GrubDropIn, "intel_iommu=on", "intel_iommu=off iommu=off").unwrap();
    assert_eq!(tree.read(DROP_IN), before);
    assert_eq!(tree.read("/etc/default/grub"), "GRUB_CMDLINE_LINUX_DEFAULT='intel_iommu=off,x quiet'");
}

#[test]
fn the_error_names_an_argument_that_the_drop_in_cannot_remove() {
    let tree = booted_by(BootLoader::GrubDropIn);
    tree.program("update-grub", UPDATE_GRUB);
    tree.write("/etc/default/grub", "");
    tree.write(
        "/etc/default/grub.d/99-late.cfg",
        "GRUB_CMDLINE_LINUX_DEFAULT=\"${GRUB_CMDLINE_LINUX_DEFAULT-} amd_iommu=off\"",
    );
    let error = set(&tree, BootLoader::GrubDropIn, "", "amd_iommu=off").unwrap_err();
    assert_eq!(error.reason(), "KernelArgumentsRequired");
    assert!(error.to_string().contains("kernel argument amd_iommu=off, "), "{error}");
}

#[test]
fn an_update_grub_that_ignores_the_drop_in_is_an_error() {
    let tree = booted_by(BootLoader::GrubDropIn);
    tree.program("update-grub", "mkdir -p $ROOT/boot/grub; echo 'linux quiet' > $ROOT/boot/grub/grub.cfg");
    assert_eq!(set(&tree, BootLoader::GrubDropIn, "iommu=pt", "").unwrap_err().reason(), "NotVerified");
}

#[test]
fn kernel_install_writes_the_entry_of_every_kernel() {
    let tree = booted_by(BootLoader::SystemdBoot);
    tree.program("kernel-install", "");
    tree.write("/etc/kernel/cmdline", "root=/dev/vda ro\n");
    tree.write("/lib/modules/6.1.0/vmlinuz", "");
    tree.write("/lib/modules/6.12.0/modules.dep", "");
    tree.write("/boot/vmlinuz-6.12.0", "");
    tree.write("/lib/modules/removed/modules.dep", "");
    set(&tree, BootLoader::SystemdBoot, "intel_iommu=on", "ro").unwrap();
    assert_eq!(tree.read("/etc/kernel/cmdline"), "root=/dev/vda intel_iommu=on\n");
    let expected = [
        "kernel-install add 6.1.0 /lib/modules/6.1.0/vmlinuz",
        "kernel-install add 6.12.0 /boot/vmlinuz-6.12.0",
    ];
    assert_eq!(tree.started(), expected);
}

#[test]
fn a_missing_command_line_file_is_created_from_the_running_one() {
    let tree = booted_by(BootLoader::SystemdBoot);
    tree.program("kernel-install", "");
    tree.write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz initrd=\\x root=/dev/vda quiet\n");
    tree.write("/lib/modules/6.1.0/vmlinuz", "");
    set(&tree, BootLoader::SystemdBoot, "iommu=pt", "").unwrap();
    assert_eq!(tree.read("/etc/kernel/cmdline"), "root=/dev/vda quiet iommu=pt\n");
}

#[test]
fn no_tool_is_started_for_an_invalid_argument() {
    let tree = booted_by(BootLoader::Grubby);
    tree.program("grubby", "");
    for argument in ["a\"b", "$(reboot)", "--copy-default"] {
        let error =
            change_arguments(tree.root(), BootLoader::Grubby, &[argument.to_owned()], &[], "x").unwrap_err();
        assert_eq!(error.reason(), "InvalidKernelArgument");
    }
    assert!(tree.started().is_empty());
}

#[test]
fn no_tool_is_started_for_another_boot_loader() {
    let tree = booted_by(BootLoader::GrubDropIn);
    tree.program("update-grub", "");
    let error = set(&tree, BootLoader::Grubby, "iommu=pt", "").unwrap_err();
    assert_eq!(error.to_string(), "the boot loader of this node is not grubby");
    assert!(tree.started().is_empty());
}

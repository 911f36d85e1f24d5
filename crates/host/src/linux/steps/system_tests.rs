//! Tests of steps on files, units, modules and the machine.

use std::os::unix::fs::PermissionsExt;

use vfleet_plan::files::{BOOT_CONFIG, BOOT_PROGRAM, DISABLE_NM_SCRIPT, MODULE_OPTIONS, REBOOTS};
use vfleet_plan::{HostFile, KernelFacts, ModuleState, Processor, Reboots, Record, Step};

use crate::linux::test_tree::TestTree;
use crate::linux::{files, system};

const UNIT: &str = "sriov-config.service";

fn write_file(path: &str, text: &str, is_program: bool) -> Step {
    let file = HostFile { path: path.to_owned(), text: text.to_owned(), is_program };
    Step::WriteFile { pf: None, file }
}

fn remove_file(path: &str) -> Step {
    Step::RemoveFile { pf: None, path: path.to_owned() }
}

fn mode(tree: &TestTree, path: &str) -> u32 {
    std::fs::metadata(tree.path(path)).unwrap().permissions().mode() & 0o7777
}

#[test]
fn managed_files_are_written_and_read() {
    let tree = TestTree::new();
    tree.execute(&write_file(MODULE_OPTIONS, "options ib_core netns_mode=0\n", false)).unwrap();
    tree.execute(&write_file(DISABLE_NM_SCRIPT, "#!/bin/sh\n", true)).unwrap();
    tree.write("/etc/udev/rules.d/10-nm-disable-0000:3b:00.0.rules", "rule");
    tree.write("/etc/udev/rules.d/70-persistent.rules", "not managed");
    let texts = files::read_managed_files(tree.root()).unwrap();
    let paths: Vec<&str> = texts.keys().map(String::as_str).collect();
    let rule = "/etc/udev/rules.d/10-nm-disable-0000:3b:00.0.rules";
    assert_eq!(paths, [MODULE_OPTIONS, DISABLE_NM_SCRIPT, rule]);
    assert_eq!(texts[MODULE_OPTIONS], "options ib_core netns_mode=0\n");
    assert_eq!((mode(&tree, MODULE_OPTIONS), mode(&tree, DISABLE_NM_SCRIPT)), (0o644, 0o755));

    tree.execute(&remove_file(MODULE_OPTIONS)).unwrap();
    tree.execute(&remove_file(MODULE_OPTIONS)).unwrap();
    assert!(!tree.path(MODULE_OPTIONS).exists());
}

#[test]
fn other_files_are_neither_written_nor_removed() {
    let tree = TestTree::new();
    tree.write("/etc/passwd", "root");
    for step in [remove_file("/etc/passwd"), write_file("/etc/passwd", "", false)] {
        assert_eq!(tree.execute(&step).unwrap_err().reason(), "PathNotAllowed");
    }
    assert_eq!(tree.read("/etc/passwd"), "root");
}

#[test]
fn this_program_is_installed_and_replaced() {
    let tree = TestTree::new();
    let install = Step::InstallProgram { path: BOOT_PROGRAM.to_owned() };
    let is_installed = || files::has_boot_program(tree.root()).unwrap();
    assert!(!is_installed());
    tree.write(BOOT_PROGRAM, "an older version");
    assert!(!is_installed());
    tree.execute(&install).unwrap();
    assert!(is_installed() && is_installed());
    let this = std::fs::read("/proc/self/exe").unwrap();
    assert!(std::fs::read(tree.path(BOOT_PROGRAM)).unwrap() == this);
    assert_eq!(mode(&tree, BOOT_PROGRAM), 0o755);
    let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(tree.path(BOOT_PROGRAM)).unwrap());
    let before = inode();
    tree.execute(&install).unwrap();
    assert_eq!(inode(), before, "the same content is left alone");

    // Another build with one different byte and the same length, in the same file.
    let file = std::fs::File::options().write(true).open(tree.path(BOOT_PROGRAM)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[!this[9000]], 9000).unwrap();
    drop(file);
    assert!(!is_installed());
    tree.execute(&install).unwrap();
    assert!(is_installed());
    let unusable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(tree.path(BOOT_PROGRAM), unusable).unwrap();
    assert!(!is_installed(), "not executable");
}

#[test]
fn directories_have_the_same_mode_whatever_file_is_written_first() {
    let record = || {
        let interface = serde_json::from_str(r#"{"pciAddress": "0000:3b:00.0"}"#).unwrap();
        Step::WriteRecord { record: Record::taken_over("0000:3b:00.0".parse().unwrap(), interface) }
    };
    let count = || {
        let reboots = Reboots::for_need("x", 1, "y");
        Step::CountReboot { reboots }
    };
    for steps in [[record(), count()], [count(), record()]] {
        let tree = TestTree::new();
        for step in &steps {
            tree.execute(step).unwrap();
        }
        for directory in ["", "/vfleet", "/vfleet/pci", "/pci"] {
            assert_eq!(mode(&tree, &format!("/etc/sriov-operator{directory}")), 0o755, "{directory}");
        }
        let ours = ["/etc/sriov-operator/vfleet/pci/0000:3b:00.0", REBOOTS];
        assert_eq!(ours.map(|path| mode(&tree, path)), [0o600; 2]);
        assert_eq!(mode(&tree, "/etc/sriov-operator/pci/0000:3b:00.0"), 0o644);
    }
}

#[test]
fn units_are_enabled_without_a_running_systemd() {
    let tree = TestTree::new();
    let (enable, disable) =
        (Step::EnableUnit { unit: UNIT.to_owned() }, Step::DisableUnit { unit: UNIT.to_owned() });
    assert_eq!(tree.execute(&enable).unwrap_err().reason(), "HostFileFailed");
    tree.execute(&write_file(
        &format!("/etc/systemd/system/{UNIT}"),
        "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
        false,
    ))
    .unwrap();
    assert!(files::read_enabled_units(tree.root()).unwrap().is_empty());
    for _ in 0..2 {
        tree.execute(&enable).unwrap();
        let link = tree.path(&format!("/etc/systemd/system/multi-user.target.wants/{UNIT}"));
        assert_eq!(
            std::fs::read_link(link).unwrap().to_str().unwrap(),
            format!("/etc/systemd/system/{UNIT}")
        );
        assert_eq!(files::read_enabled_units(tree.root()).unwrap().into_iter().collect::<Vec<_>>(), [UNIT]);
    }
    for _ in 0..2 {
        tree.execute(&disable).unwrap();
        assert!(files::read_enabled_units(tree.root()).unwrap().is_empty());
    }
    let other = Step::DisableUnit { unit: "sshd.service".to_owned() };
    assert_eq!(tree.execute(&other).unwrap_err().reason(), "PathNotAllowed");
}

/// The bus of this test closes every connection, so that requests to systemd fail.
#[test]
fn systemd_reloads_its_units_only_if_a_unit_is_removed() {
    let tree = TestTree::new();
    let socket = tree.root().system_bus();
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let bus = std::os::unix::net::UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || bus.incoming().for_each(drop));
    let unit = format!("/etc/systemd/system/{UNIT}");
    for path in [MODULE_OPTIONS, &unit] {
        tree.write(path, "text");
        let removed = tree.execute(&remove_file(path));
        assert_eq!(removed.is_err(), path == unit, "{removed:?}");
        assert!(!tree.path(path).exists());
    }
}

#[test]
fn a_unit_is_running_while_it_has_processes() {
    for systemd in ["", "systemd/"] {
        let tree = TestTree::new();
        let group = tree.path(&format!("/sys/fs/cgroup/{systemd}system.slice/{UNIT}"));
        std::fs::create_dir_all(&group).unwrap();
        for (processes, running) in [("0\n", 1), ("", 0)] {
            std::fs::write(group.join("cgroup.procs"), processes).unwrap();
            assert_eq!(files::read_running_units(tree.root()).unwrap().len(), running, "{processes:?}");
        }
        std::fs::remove_dir_all(&group).unwrap();
        assert!(files::read_running_units(tree.root()).unwrap().is_empty());
    }
}

#[test]
fn reboots_are_counted_and_the_count_is_removed() {
    let tree = TestTree::new();
    let reboots = Reboots::for_need("iommu", 1, "b");
    tree.execute(&Step::CountReboot { reboots: reboots.clone() }).unwrap();
    assert_eq!(system::read_kernel_facts(tree.root()).unwrap().reboots, Some(reboots));
    tree.write(REBOOTS, "{");
    let error = system::read_kernel_facts(tree.root()).unwrap_err();
    assert!(error.to_string().contains("reboots.json"), "{error}");
    for _ in 0..2 {
        tree.execute(&Step::ForgetReboots).unwrap();
        assert_eq!(system::read_kernel_facts(tree.root()).unwrap().reboots, None);
    }
}

fn machine() -> TestTree {
    let tree = TestTree::new();
    tree.write("/proc/cmdline", "root=/dev/vda quiet\n");
    tree.write("/proc/cpuinfo", "processor : 0\nvendor_id : AuthenticAMD\n");
    tree.write("/proc/sys/kernel/random/boot_id", "d3b07384\n");
    tree.write("/proc/sys/kernel/osrelease", "6.12.0\n");
    tree
}

#[test]
fn facts_of_the_kernel_are_read() {
    let tree = machine();
    let plain = KernelFacts {
        command_line: "root=/dev/vda quiet".to_owned(),
        boot_id: "d3b07384".to_owned(),
        processor: Processor::Amd,
        ..KernelFacts::default()
    };
    assert_eq!(system::read_kernel_facts(tree.root()).unwrap(), plain);
    tree.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    tree.write("/sys/kernel/iommu_groups/0/type", "DMA\n");
    let found = system::read_kernel_facts(tree.root()).unwrap();
    assert!(found.is_locked_down && found.has_iommu);
    tree.write("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    assert!(!system::read_kernel_facts(tree.root()).unwrap().is_locked_down);
}

#[test]
fn built_in_loaded_and_loadable_modules_are_found() {
    let tree = machine();
    tree.write("/lib/modules/6.12.0/modules.builtin", "kernel/drivers/net/tun.ko\n");
    tree.write(
        "/lib/modules/6.12.0/modules.dep",
        "kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/drivers/vfio/vfio.ko.xz\nkernel/drivers/vfio/vfio.ko.xz:\n",
    );
    tree.write("/sys/module/vfio/initstate", "live\n");
    tree.write("/sys/module/ib_core/initstate", "coming\n");
    let modules = || system::read_kernel_facts(tree.root()).unwrap().modules;
    let expected =
        [("tun", ModuleState::Loaded), ("vfio", ModuleState::Loaded), ("vfio_pci", ModuleState::Loadable)];
    assert_eq!(modules(), expected.map(|(name, state)| (name.to_owned(), state)).into());

    tree.write("/lib/modules/6.12.0/modules.dep", "kernel/igb_uio.ko:\n");
    let later = std::time::SystemTime::now() + std::time::Duration::from_mins(1);
    let list =
        std::fs::File::options().write(true).open(tree.path("/lib/modules/6.12.0/modules.dep")).unwrap();
    list.set_modified(later).unwrap();
    assert_eq!(modules().get("igb_uio"), Some(&ModuleState::Loadable), "read again after a change");
}

fn load(options: &[&str]) -> Step {
    let options = options.iter().map(|option| (*option).to_owned()).collect();
    Step::LoadModule { module: "vfio".to_owned(), options }
}

#[test]
fn a_module_is_loaded_and_verified() {
    let tree = machine();
    tree.program("modprobe", "");
    assert_eq!(tree.execute(&load(&[])).unwrap_err().reason(), "NoSuchModule");
    tree.write("/lib/modules/6.12.0/modules.dep", "kernel/drivers/vfio/vfio.ko:\n");
    assert_eq!(tree.execute(&load(&[])).unwrap_err().reason(), "NotVerified");
    tree.program("modprobe", "echo 'ERROR: could not insert vfio: Key was rejected' >&2; exit 1");
    assert!(
        tree.execute(&load(&[]))
            .unwrap_err()
            .to_string()
            .contains("ERROR: could not insert vfio: Key was rejected")
    );
    tree.program("modprobe", "mkdir -p $ROOT/sys/module/$1; echo live > $ROOT/sys/module/$1/initstate");
    tree.execute(&load(&["enable_unsafe_noiommu_mode=1"])).unwrap();
    assert_eq!(tree.started().last().unwrap(), "modprobe vfio enable_unsafe_noiommu_mode=1");
    let starts = tree.started().len();
    tree.execute(&load(&[])).unwrap();
    assert_eq!(tree.started().len(), starts, "already loaded");
}

#[test]
fn the_option_of_a_loaded_module_is_set() {
    let tree = machine();
    let option = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
    tree.write(option, "N\n");
    tree.execute(&load(&["enable_unsafe_noiommu_mode=1"])).unwrap();
    assert!(tree.read(option).starts_with('1'));
    tree.write(option, "Y\n");
    tree.execute(&load(&["enable_unsafe_noiommu_mode=1"])).unwrap();
    assert_eq!(tree.read(option), "Y\n");
    assert!(tree.started().is_empty());
}

#[test]
fn udev_reads_a_rule_for_new_interfaces_before_they_are_created() {
    let tree = TestTree::new();
    tree.program("udevadm", "");
    let rule =
        |name: &str| write_file(&format!("/etc/udev/rules.d/{name}-0000:3b:00.0.rules"), "rule", false);
    tree.execute(&rule("10-nm-disable")).unwrap();
    assert!(tree.started().is_empty(), "without udev no program is started");
    tree.write("/run/udev/control", "");
    tree.execute(&rule("10-nm-bridge")).unwrap();
    // Rules for names are followed by a replay.
    tree.execute(&rule("10-pf-name")).unwrap();
    assert_eq!(tree.started(), ["udevadm control --reload"]);
    tree.program("udevadm", "exit 1");
    tree.execute(&rule("10-nm-disable")).unwrap();
}

#[test]
fn udev_replays_the_rules_of_a_card_and_its_representors() {
    let tree = TestTree::new();
    tree.program("udevadm", "");
    tree.add_card("0000:3b:00.0", "0x15b3\n");
    let interfaces = [
        ("/sys/bus/pci/devices/0000:3b:00.0/net/ens1f0", "aa01\n"),
        ("/sys/class/net/ens1f0", "aa01\n"),
        ("/sys/class/net/eth0", "aa01\n"),
        ("/sys/class/net/other", "bb02\n"),
    ];
    for (interface, switch) in interfaces {
        tree.write(&format!("{interface}/phys_switch_id"), switch);
        tree.write(&format!("{interface}/uevent"), "INTERFACE\n");
    }
    // Bonding has a file among the interfaces.
    tree.write("/sys/class/net/bonding_masters", "bond0\n");
    tree.execute(&Step::ReplayUdev { pf: "0000:3b:00.0".parse().unwrap() }).unwrap();
    let is_replayed = |path: &str| tree.read(&format!("{path}/uevent")).starts_with("add");
    assert_eq!(interfaces.map(|(path, _)| is_replayed(path)), [true, false, true, false]);
    assert_eq!(tree.started(), ["udevadm control --reload", "udevadm settle --timeout=59"]);
    let missing = Step::ReplayUdev { pf: "0000:05:00.0".parse().unwrap() };
    assert_eq!(tree.execute(&missing).unwrap_err().reason(), "NoSuchDevice");
}

#[test]
fn systemctl_requests_a_reboot_without_a_system_bus() {
    let tree = TestTree::new();
    assert_eq!(tree.execute(&Step::Reboot).unwrap_err().reason(), "ProgramMissing");
    tree.program("systemctl", "");
    tree.execute(&Step::Reboot).unwrap();
    assert_eq!(tree.started(), ["systemctl reboot"]);
}

#[test]
fn a_directory_instead_of_a_file_is_an_error_that_names_it() {
    let tree = TestTree::new();
    std::fs::create_dir_all(tree.path(BOOT_CONFIG)).unwrap();
    let error = files::read_managed_files(tree.root()).unwrap_err();
    assert!(error.to_string().contains(BOOT_CONFIG), "{error}");
}

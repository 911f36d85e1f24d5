//! Rules of udev on simulated machines, and their scripts, run by a real shell.

use std::path::PathBuf;
use std::process::Command;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::{Host, SimHost};
use vfleet_plan::files::{DISABLE_NM_SCRIPT, REPRESENTOR_SCRIPT, is_our_rule};
use vfleet_plan::{EswitchMode, Fact, HostFacts, Plan, Step, node_warnings, plan_node};

const RULES: &str = "/etc/udev/rules.d";

fn machine(more: &str) -> SimHost {
    let text = format!(
        "pfs:\n- {{address: \"0000:3b:00.0\", name: ens1f0, vendor: \"15b3\", device: \"1017\", vfDevice: \"1018\", \
         driver: mlx5_core, vfDriver: mlx5_core, totalVfs: 8, eswitch: legacy}}\n{more}"
    );
    SimHost::from_yaml(&text, "udev").unwrap()
}

fn spec(more: &str) -> SriovNetworkNodeStateSpec {
    let text = format!(
        "interfaces: [{{pciAddress: \"0000:3b:00.0\", name: ens1f0, numVfs: 2{more}, vfGroups: [{{vfRange: \"0-1\", \
         policyName: p, resourceName: r}}]}}]"
    );
    serde_saphyr::from_str(&text).unwrap()
}

const SWITCHDEV: &str = ", eSwitchMode: switchdev";

/// Plans and executes until no steps are left.
fn settle(host: &SimHost, spec: &SriovNetworkNodeStateSpec) -> HostFacts {
    for _ in 0..4 {
        let facts = host.facts().unwrap();
        let plan = plan_node(spec, &facts);
        assert!(plan.problems.is_empty(), "{:?}", plan.problems);
        if plan.steps.is_empty() {
            return facts;
        }
        for planned in &plan.steps {
            host.execute(&planned.step).unwrap();
        }
    }
    panic!("no end: {:?}", plan_node(spec, &host.facts().unwrap()).steps);
}

fn files(facts: &HostFacts) -> Vec<&str> {
    facts.files.keys().map(String::as_str).collect()
}

/// Returns a rule without its first line, which is a comment.
fn rule<'a>(facts: &'a HostFacts, kind: &str) -> &'a str {
    let text = &facts.files[&format!("{RULES}/{kind}-0000:3b:00.0.rules")];
    text.split_once('\n').unwrap().1
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|planned| planned.step.to_string()).collect()
}

#[test]
fn network_manager_does_not_manage_vfs_in_groups() {
    let facts = settle(&machine(""), &spec(""));
    assert_eq!(files(&facts), [DISABLE_NM_SCRIPT, "/etc/udev/rules.d/10-nm-disable-0000:3b:00.0.rules"]);
    let expected = "SUBSYSTEM==\"net\", ACTION==\"add|change|move\", TEST==\"device/physfn\", \
        IMPORT{program}=\"/etc/udev/disable-nm-sriov.sh %k 0000:3b:00.0 0-1\"\n";
    assert_eq!(rule(&facts, "10-nm-disable"), expected);
}

#[test]
fn switchdev_mode_has_rules_for_names() {
    let host = machine("");
    let facts = settle(&host, &spec(SWITCHDEV));
    let (switch, port) = facts.pfs[0].link.as_ref().unwrap().switch_port.clone().unwrap();
    assert_eq!(port, "p0");
    assert_eq!(
        rule(&facts, "20-switchdev"),
        format!(
            "SUBSYSTEM==\"net\", ACTION==\"add\", ATTR{{phys_switch_id}}==\"{switch}\", \
             ATTR{{phys_port_name}}==\"pf0vf*\", \
             IMPORT{{program}}=\"/etc/udev/switchdev-vf-link-name.sh $attr{{phys_port_name}}\", \
             NAME=\"ens1f0_$env{{VFLEET_VF}}\"\n"
        )
    );
    assert_eq!(
        rule(&facts, "10-pf-name"),
        "SUBSYSTEM!=\"net\", GOTO=\"end\"\n\
         ATTR{phys_port_name}==\"pf*|c*pf*\", GOTO=\"end\"\n\
         ACTION==\"add\", KERNELS==\"0000:3b:00.0\", NAME=\"ens1f0\"\n\
         LABEL=\"end\"\n"
    );
    let replayed = host.executed_steps().iter().filter(|step| step.starts_with("trigger udev")).count();
    assert_eq!(replayed, 1, "once the switch is known");
    for path in facts.files.keys().filter_map(|path| path.strip_prefix("/etc/udev/rules.d/")) {
        assert!(is_our_rule(path), "{path}");
    }

    // In legacy mode only the rule for NetworkManager is left.
    let facts = settle(&host, &spec(""));
    assert_eq!(files(&facts), [DISABLE_NM_SCRIPT, "/etc/udev/rules.d/10-nm-disable-0000:3b:00.0.rules"]);
}

#[test]
fn rules_exist_before_the_next_boot_creates_representors() {
    let host = machine("");
    let before = settle(&host, &spec(SWITCHDEV));
    host.modify_kernel(vfleet_host::sim::Kernel::reboot);
    host.restart_process();
    let facts = host.facts().unwrap();
    assert_eq!(facts.pfs[0].eswitch, Fact::Value(EswitchMode::Legacy));
    let plan = plan_node(&spec(SWITCHDEV), &facts);
    assert!(!steps(&plan).iter().any(|step| step.contains("udev")), "{:?}", steps(&plan));
    assert_eq!(settle(&host, &spec(SWITCHDEV)).files, before.files);
}

#[test]
fn udev_is_triggered_once_more_for_representors_with_wrong_names() {
    let text = "pfs:\n- {address: \"0000:3b:00.0\", name: ens1f0, vendor: \"15b3\", device: \"1017\", \
        vfDevice: \"1018\", driver: mlx5_core, vfDriver: mlx5_core, totalVfs: 8, eswitch: legacy, \
        stuckRepresentors: true}\n";
    let host = SimHost::from_yaml(text, "udev").unwrap();
    let replays = || host.executed_steps().iter().filter(|step| step.starts_with("trigger udev")).count();
    let desired = spec(SWITCHDEV);
    let facts = settle(&host, &desired);
    assert_eq!(replays(), 2);
    let [warning] = &node_warnings(&desired, &facts)[..] else { panic!("one warning") };
    assert_eq!(warning.cause.reason(), "RepresentorsNotRenamed");
    let text = warning.to_string();
    for part in ["ens1f0r0 instead of ens1f0_0", "ens1f0r1 instead of ens1f0_1", "kernels before 6.2"] {
        assert!(text.contains(part), "{text}");
    }
    settle(&host, &desired);
    assert_eq!(replays(), 2);

    // udev is triggered again for new representors; in legacy mode there are none.
    let more = spec(SWITCHDEV).interfaces.map(|mut interfaces| {
        interfaces[0].num_vfs = Some(3);
        interfaces
    });
    settle(&host, &SriovNetworkNodeStateSpec { interfaces: more, ..Default::default() });
    assert_eq!(replays(), 3);
    let facts = settle(&host, &spec(""));
    assert_eq!(node_warnings(&spec(""), &facts), []);
}

#[test]
fn all_files_are_removed_with_the_pf() {
    let host = machine("");
    settle(&host, &spec(SWITCHDEV));
    let nothing: SriovNetworkNodeStateSpec = serde_saphyr::from_str("interfaces: []").unwrap();
    let plan = plan_node(&nothing, &host.facts().unwrap());
    for planned in &plan.steps {
        host.execute(&planned.step).unwrap();
    }
    let facts = host.facts().unwrap();
    assert_eq!(files(&facts), [""; 0]);
    assert!(plan_node(&nothing, &facts).is_done(), "all of it in one go");
}

#[test]
fn scripts_stay_while_a_rule_runs_them() {
    let host = machine("");
    let mut facts = settle(&host, &spec(SWITCHDEV));
    let other = format!("{RULES}/10-nm-disable-0000:5e:00.0.rules");
    facts.files.insert(other, "other".to_owned());
    let nothing: SriovNetworkNodeStateSpec = serde_saphyr::from_str("interfaces: []").unwrap();
    let gone = steps(&plan_node(&nothing, &facts));
    assert!(gone.contains(&format!("remove {REPRESENTOR_SCRIPT}")), "{gone:?}");
    assert!(!gone.contains(&format!("remove {DISABLE_NM_SCRIPT}")), "{gone:?}");
}

#[test]
fn an_externally_managed_pf_has_no_rules() {
    let host = machine("");
    settle(&host, &spec(""));
    let facts = settle(&host, &spec(", externallyManaged: true"));
    assert_eq!(files(&facts), [""; 0]);
}

#[test]
fn files_of_the_go_daemon_are_replaced() {
    let old = format!("{RULES}/10-nm-unmanaged.rules");
    let more = format!(
        "files: {{\"{old}\": \"x\", \"{DISABLE_NM_SCRIPT}\": \"old\", \
         \"{RULES}/10-nm-disable-0000:3b:00.0.rules\": \"old\"}}\n"
    );
    let facts = settle(&machine(&more), &spec(""));
    assert_eq!(facts.files, settle(&machine(""), &spec("")).files);
}

#[test]
fn a_name_with_special_characters_is_in_no_rule() {
    let mut facts = machine("").facts().unwrap();
    facts.pfs[0].eswitch = Fact::Value(EswitchMode::Switchdev);
    for name in ["a\\\"b", "$(reboot)", "%N", "a b", "x*"] {
        let mut desired = spec(SWITCHDEV);
        desired.interfaces.as_mut().unwrap()[0].name = Some(name.to_owned());
        let plan = plan_node(&desired, &facts);
        let texts = plan.steps.iter().filter_map(|planned| match &planned.step {
            Step::WriteFile { file, .. } => Some(file),
            _ => None,
        });
        let rules: Vec<_> = texts.filter(|file| file.path.starts_with(RULES)).collect();
        assert_eq!(rules.len(), 1, "only the one for NetworkManager");
        assert!(!rules[0].text.contains(name), "{name}");
    }
}

/// Writes a script of the plan to a file, with another path of sysfs.
fn script(path: &str, sysfs: &str) -> PathBuf {
    let host = machine("");
    let text = settle(&host, &spec(SWITCHDEV)).files[path].replace("/sys/", sysfs);
    let name = path.rsplit('/').next().unwrap();
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).unwrap();
    file
}

/// Returns the output of a script, and whether it succeeds.
fn ask(script: &PathBuf, words: &[&str]) -> (String, bool) {
    let output = Command::new("sh").arg(script).args(words).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

#[test]
fn a_representor_is_named_by_its_vf() {
    let script = script(REPRESENTOR_SCRIPT, "/sys/");
    for (port, vf) in [("pf0vf3", "3"), ("pf1vf127", "127"), ("c1pf0vf12", "12")] {
        assert_eq!(ask(&script, &[port]), (format!("VFLEET_VF={vf}\n"), true), "{port}");
    }
    for port in ["p0", "pf0", "pf0sf1", "pf0vf", "pf0vf3x", "vf3", "", "pf0vf$(echo 1)"] {
        assert_eq!(ask(&script, &[port]), (String::new(), false), "{port}");
    }
}

#[test]
fn network_manager_manages_vfs_in_no_group() {
    let host = machine("");
    let grouped = |groups: &str| -> SriovNetworkNodeStateSpec {
        let text = format!(
            "interfaces: [{{pciAddress: \"0000:3b:00.0\", name: ens1f0, numVfs: 8, vfGroups: {groups}}}]"
        );
        serde_saphyr::from_str(&text).unwrap()
    };
    let some = grouped(
        "[{vfRange: 6-7, policyName: b, resourceName: b}, {vfRange: 1-3, policyName: a, resourceName: a}]",
    );
    let text = rule(&settle(&host, &some), "10-nm-disable").to_owned();
    assert!(text.ends_with("sh %k 0000:3b:00.0 1-3 6-7\"\n"), "{text}");
    assert_eq!(files(&settle(&host, &grouped("[]"))), [""; 0]);
}

#[test]
fn the_rule_for_network_manager_applies_only_to_the_ranges_of_its_pf() {
    let sysfs = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sysfs");
    let _ = std::fs::remove_dir_all(&sysfs);
    let link = |target: &str, path: PathBuf| std::os::unix::fs::symlink(target, path).unwrap();
    let devices = sysfs.join("bus/pci/devices");
    for (pf, vfs) in [("0000:3b:00.0", 4), ("0000:3b:00.1", 1)] {
        std::fs::create_dir_all(devices.join(pf)).unwrap();
        for index in 0..vfs {
            let vf = format!("vf{index}-of-{pf}");
            std::fs::create_dir_all(devices.join(&vf)).unwrap();
            link(&format!("../{pf}"), devices.join(&vf).join("physfn"));
            link(&format!("../{vf}"), devices.join(pf).join(format!("virtfn{index}")));
        }
    }
    let interfaces = sysfs.join("class/net");
    let names = [
        "vf0-of-0000:3b:00.0",
        "vf1-of-0000:3b:00.0",
        "vf3-of-0000:3b:00.0",
        "vf0-of-0000:3b:00.1",
        "0000:3b:00.0",
    ];
    for name in names {
        std::fs::create_dir_all(interfaces.join(name)).unwrap();
        link(&format!("../../../bus/pci/devices/{name}"), interfaces.join(name).join("device"));
    }
    let script = script(DISABLE_NM_SCRIPT, &format!("{}/", sysfs.display()));
    let is_unmanaged = |interface: &str, ranges: &[&str]| {
        let words = [&[interface, "0000:3b:00.0"], ranges].concat();
        let (text, succeeds) = ask(&script, &words);
        assert!(succeeds && ["", "NM_UNMANAGED=1\n"].contains(&text.as_str()), "{interface}: {text}");
        !text.is_empty()
    };
    let unmanaged = names.map(|name| is_unmanaged(name, &["0-0", "2-3"]));
    assert_eq!(unmanaged, [true, false, true, false, false]);
    assert!(!is_unmanaged(names[0], &[]) && !is_unmanaged("none", &["0-3"]));
}

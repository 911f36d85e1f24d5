//! `vfleet node`: one machine, without a cluster. A simulated machine ends with the command, so that each one here
//! begins with what an earlier one would have left.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failed expectation is the point")]

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use vfleet_host::{HostRoot, MachineLock};

const PF: &str = "0000:3b:00.0";

/// A machine with one card that has `vfs` VFs, of which vfleet made `recorded`, if any.
fn machine(vfs: u16, recorded: u16) -> String {
    let record = json!([{
        "pf": PF,
        "interface": {
            "pciAddress": PF, "numVfs": recorded, "name": "ens1f0",
            "vfGroups": [{ "vfRange": format!("0-{}", recorded.saturating_sub(1)), "deviceType": "netdevice",
                           "policyName": "four", "resourceName": "four" }],
        },
        "firstSeen": { "mtu": 1500, "driversAutoprobe": true },
        "making": false,
    }]);
    let machine = json!({
        "pfs": [{
            "address": PF, "name": "ens1f0", "vendor": "8086", "device": "158b", "vfDevice": "154c",
            "driver": "i40e", "vfDriver": "iavf", "totalVfs": 8, "numVfs": vfs,
        }],
        "userspaceDrivers": ["vfio-pci"],
        "records": if recorded > 0 { record } else { json!([]) },
    });
    machine.to_string()
}

fn policy(name: &str, num_vfs: i64, selector: &Value) -> String {
    let policy = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1",
        "kind": "SriovNetworkNodePolicy",
        "metadata": { "name": name },
        "spec": { "resourceName": name, "numVfs": num_vfs, "nodeSelector": {}, "nicSelector": selector },
    });
    format!("---\n{policy}\n")
}

/// Returns the program under test: the shipped one in `make test`.
fn vfleet() -> OsString {
    std::env::var_os("VFLEET_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_vfleet").into())
}

/// Runs `vfleet node` on a machine, with policies on its standard input.
fn node(arguments: &[&str], machine: &str, policies: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("machine.yaml");
    std::fs::write(&file, machine).unwrap();
    let mut child = Command::new(vfleet())
        .arg("node")
        .args(arguments)
        .arg("--sim")
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input closes it: no matter.
    let _ = child.stdin.take().unwrap().write_all(policies.as_bytes());
    child.wait_with_output().unwrap()
}

fn told(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)))
}

const APPLY: [&str; 5] = ["apply", "-f", "-", "--format", "json"];

#[test]
fn apply_makes_vfs_and_tells_what_was_done() {
    let output = node(&APPLY, &machine(0, 0), &policy("four", 4, &json!({ "pfNames": ["ens1f0"] })));
    let told = told(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert_eq!(told["steps"].as_array().unwrap().len() as u64, told["executed"].as_u64().unwrap());
    let card = &told["cards"][0];
    assert_eq!(card["record"], "ours");
    let vfs = card["vfs"].as_array().unwrap();
    assert_eq!(vfs.len(), 4);
    assert!(vfs.iter().all(|vf| vf["driver"] == "iavf" && vf["policy"] == "four"), "{card}");
}

#[test]
fn the_table_says_the_same() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0"] }));
    let output = node(&["apply", "-f", "-"], &machine(0, 0), &policies);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("set 0000:3b:00.0 numvfs 4"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("ens1f0 3 ") && line.contains("iavf")), "{text}");
    assert!(text.ends_with("all is as wanted\n"), "{text}");
}

#[test]
fn a_card_that_is_not_there_is_waited_for_in_so_many_words() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0", "ens9"] }));
    let output = node(&[&APPLY[..], &["--wait", "1"]].concat(), &machine(0, 0), &policies);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("waiting for ens9, 1 s at most"), "{said}");
    assert_eq!(told(&output)["cards"][0]["vfs"].as_array().unwrap().len(), 4, "the others are configured");
}

#[test]
fn plan_and_dry_run_do_nothing() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0"] }));
    let plan = node(&["plan", "-f", "-", "--format", "json"], &machine(0, 0), &policies);
    let dry_run = node(&[&APPLY[..], &["--dry-run"]].concat(), &machine(0, 0), &policies);
    assert_eq!(plan.stdout, dry_run.stdout);
    let told = told(&plan);
    assert_eq!(plan.status.code(), Some(0));
    assert!(!told["steps"].as_array().unwrap().is_empty());
    assert!(told["executed"].is_null() && told["cards"][0]["vfs"] == json!([]), "{told}");
}

#[test]
fn vfs_that_exist_go_away_only_by_force() {
    let policies = policy("eight", 8, &json!({ "pfNames": ["ens1f0"] }));
    let refused = node(&APPLY, &machine(4, 4), &policies);
    let told_refused = told(&refused);
    assert_eq!(refused.status.code(), Some(3), "{told_refused}");
    assert!(told_refused["refused"].as_str().unwrap().contains("numvfs 0"), "{told_refused}");
    assert_eq!(told_refused["cards"][0]["vfs"].as_array().unwrap().len(), 4);

    let forced = node(&[&APPLY[..], &["--force"]].concat(), &machine(4, 4), &policies);
    assert_eq!(forced.status.code(), Some(0));
    assert_eq!(told(&forced)["cards"][0]["vfs"].as_array().unwrap().len(), 8);
}

#[test]
fn reset_gives_back_what_is_ours_and_nothing_else() {
    let ours = node(&["reset", "--force", "--format", "json"], &machine(4, 4), "");
    assert_eq!(ours.status.code(), Some(0));
    let card = &told(&ours)["cards"][0];
    assert!(card["vfs"] == json!([]) && card["record"].is_null(), "{card}");

    let foreign = told(&node(&["reset", "--force", "--format", "json"], &machine(4, 0), ""));
    assert_eq!(foreign["cards"][0]["vfs"].as_array().unwrap().len(), 4);
    assert_eq!(foreign["executed"], 0);
}

#[test]
fn show_tells_whose_the_cards_are_and_what_is_amiss() {
    let output = node(&["show", "--format", "json"], &machine(4, 0), "");
    assert_eq!((output.status.code(), &told(&output)["cards"][0]["record"]), (Some(0), &Value::Null));
    assert_eq!(told(&node(&["show", "--format", "json"], &machine(4, 4), ""))["cards"][0]["record"], "ours");
    let output = node(&["show", "--format", "json"], &machine(3, 4), "");
    let drifted = told(&output);
    assert_eq!(output.status.code(), Some(1), "{drifted}");
    assert!(drifted["steps"].to_string().contains("numvfs"), "{drifted}");
}

#[test]
fn policies_that_select_nothing_are_told_why_and_faults_fail() {
    let other = policy("other", 2, &json!({ "vendor": "15b3" }));
    let output = node(&APPLY, &machine(0, 0), &other);
    let told_other = told(&output);
    assert_eq!(output.status.code(), Some(0), "{told_other}");
    assert!(told_other["policies"][0]["says"].as_str().unwrap().contains("15b3"), "{told_other}");

    let fault = policy("fault", 2, &json!({ "pfNames": ["ens1f0#4-7"] }));
    let output = node(&APPLY, &machine(0, 0), &fault);
    let told_fault = told(&output);
    assert_eq!(output.status.code(), Some(1), "{told_fault}");
    assert_eq!(told_fault["policies"][0]["verdict"], "atFault");
}

/// The card that vfleet configured, after a boot: its VFs are gone, its record is there.
fn booted() -> String {
    machine(0, 4)
}

fn without_cards(machine: &str) -> String {
    let mut machine: Value = serde_json::from_str(machine).unwrap();
    machine["pfs"] = json!([]);
    machine.to_string()
}

fn with_record(told: &Value) -> bool {
    !told["steps"].to_string().contains("forget") && told["cards"][0]["record"] == "ours"
}

#[test]
fn a_slip_of_the_pen_fails_and_gives_no_card_back() {
    for (policies, reason) in [
        // A mistyped PF.
        (policy("four", 4, &json!({ "pfNames": ["ens1f9"] })), "no network card ens1f9"),
        (policy("four", 4, &json!({ "rootDevices": ["0000:3b:00.7"] })), "no network card 0000:3b:00.7"),
        // Under another name as well.
        (policy("five", 4, &json!({ "pfNames": ["ens1f9"] })), "no network card ens1f9"),
        // Policies that admission refuses.
        (policy("four", 9, &json!({ "pfNames": ["ens1f0"] })), "at most 8"),
        (policy("four", 0, &json!({ "pfNames": ["ens1f0"] })), "numVfs is 0"),
        (policy("four", 4, &json!({ "pfNames": ["ens1f0#2-9"] })), "2-9"),
        (policy("four", 4, &json!({})), "nicSelector is empty"),
        (policy("with.dot", 4, &json!({ "pfNames": ["ens1f0"] })), "only letters, digits"),
        // One that cannot be read.
        (policy("four", 4, &json!({ "pfNames": ["ens1f0"] })).replace('4', "\"many\""), "many"),
    ] {
        let output = node(&APPLY, &booted(), &policies);
        let told_fault = told(&output);
        assert_eq!(output.status.code(), Some(1), "{policies}: {told_fault}");
        let line = &told_fault["policies"][0];
        assert_eq!(line["verdict"], "atFault", "{policies}: {told_fault}");
        assert!(line["says"].as_str().unwrap().contains(reason), "{policies}: {line}");
        assert!(with_record(&told_fault), "{policies}: {told_fault}");
        // What was configured is made again at boot.
        assert_eq!(told_fault["cards"][0]["vfs"].as_array().unwrap().len(), 4, "{policies}: {told_fault}");
        let notes = told_fault["notes"].to_string();
        assert!(notes.contains("ens1f0 (0000:3b:00.0) stays as it was configured"), "{policies}: {notes}");
    }
    // What is right is known: it is given back.
    let other = policy("four", 4, &json!({ "vendor": "15b3" }));
    assert!(!with_record(&told(&node(&APPLY, &booted(), &other))));
}

#[test]
fn a_configured_card_that_is_not_there_fails_and_its_record_is_kept() {
    for selector in
        [json!({ "pfNames": ["ens1f0"] }), json!({ "rootDevices": [PF] }), json!({ "vendor": "8086" })]
    {
        let output = node(&APPLY, &without_cards(&booted()), &policy("four", 4, &selector));
        let told_missing = told(&output);
        assert_eq!(output.status.code(), Some(1), "{selector}: {told_missing}");
        assert!(!told_missing["steps"].to_string().contains("forget"), "{selector}: {told_missing}");
    }
    // Nobody wants it any more.
    let output = node(&["reset", "--format", "json"], &without_cards(&booted()), "");
    assert!(told(&output)["steps"].to_string().contains("forget"), "{output:?}");
}

#[test]
fn a_policy_at_fault_does_not_keep_others_from_being_followed() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0"] }))
        + &policy("typo", 4, &json!({ "pfNames": ["ens9"] }));
    let output = node(&APPLY, &machine(0, 0), &policies);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(told(&output)["cards"][0]["vfs"].as_array().unwrap().len(), 4);
}

#[test]
fn beside_a_fault_the_last_line_is_not_that_there_is_nothing_to_do() {
    for policies in
        [policy("typo", 4, &json!({ "pfNames": ["ens9"] })), policy("many", 9, &json!({ "vendor": "8086" }))]
    {
        for command in ["plan", "apply"] {
            let output = node(&[command, "-f", "-"], &machine(0, 0), &policies);
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains("AT FAULT: "), "{text}");
            assert!(text.lines().last().unwrap().contains("NOT all is as wanted"), "{text}");
        }
    }
}

#[test]
fn a_run_that_ends_with_a_restart_has_a_status_of_its_own() {
    let mut machine: Value = serde_json::from_str(&machine(0, 0)).unwrap();
    machine["kernel"] = json!({ "iommu": false, "processor": "intel", "bootLoader": "grubby" });
    let policies = policy("dpdk", 2, &json!({ "pfNames": ["ens1f0"] }))
        .replace("\"numVfs\"", "\"deviceType\":\"vfio-pci\",\"numVfs\"");
    let refused = node(&APPLY, &machine.to_string(), &policies);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let output = node(&[&APPLY[..], &["--allow-reboot"]].concat(), &machine.to_string(), &policies);
    let told = told(&output);
    assert_eq!((output.status.code(), &told["restarts"]), (Some(4), &json!(true)), "{told}");
    assert_eq!(told["exit"], "restarting");
}

#[test]
fn labels_choose_policies() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0"] }))
        .replace("\"nodeSelector\":{}", "\"nodeSelector\":{\"role\":\"a\"}");
    let other = node(&[&APPLY[..], &["--label", "role=b"]].concat(), &machine(0, 0), &policies);
    assert_eq!(told(&other)["executed"], 0);
    let same = node(&[&APPLY[..], &["--label", "role=a"]].concat(), &machine(0, 0), &policies);
    assert_eq!(told(&same)["cards"][0]["vfs"].as_array().unwrap().len(), 4);
    let none = told(&node(&APPLY, &machine(0, 0), &policies));
    assert!(none["notes"][0].as_str().unwrap().contains("nodeSelector of four does not count"), "{none}");
}

#[test]
fn mistakes_on_the_command_line_are_told_from_failures() {
    assert_eq!(node(&["apply"], &machine(0, 0), "").status.code(), Some(2));
    assert_eq!(node(&["apply", "-f", "-", "--label", "x"], &machine(0, 0), "").status.code(), Some(2));
    assert_eq!(node(&["show", "--host-ips", "10.0.0.1,x"], &machine(0, 0), "").status.code(), Some(2));
}

/// What is said about policies that cannot be read.
fn refused(policies: &str) -> String {
    let output = node(&["apply", "-f", "-"], &machine(4, 4), policies);
    assert_eq!(output.status.code(), Some(1), "{policies}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_file_that_is_none_of_policies_is_refused_in_a_line_or_two() {
    for (policies, expected) in [
        ("kind: Pod", "document 1: its kind is \"Pod\""),
        ("hello", "document 1: it has no kind"),
        ("kind: SriovNetworkNodePolicy", "it has no metadata.name"),
        ("{apiVersion: apps/v1, kind: SriovNetworkNodePolicy}", "its apiVersion is \"apps/v1\""),
        // All PFs would be given back, which nobody asks for by a file that is empty by mistake.
        ("", "there is no policy in it: `vfleet node reset` gives back what is ours"),
        ("kind: List\nitems: []", "there is no policy in it"),
    ] {
        let said = refused(policies);
        assert!(said.contains(expected), "{policies}: {said}");
    }
    let said = refused("a: [");
    assert!(said.starts_with("vfleet: - is not a file of policies: ") && said.contains("line 1"), "{said}");
    assert_eq!(said.matches("unclosed").count(), 2, "once in the sentence, once in the picture: {said}");
}

#[test]
fn what_is_not_known_in_a_policy_is_told_and_does_not_count() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0"], "pfName": "x" }))
        .replace("\"numVfs\"", "\"mtuu\":9000,\"numVfs\"");
    let told = told(&node(&APPLY, &machine(0, 0), &policies));
    let notes = told["notes"].to_string();
    assert!(notes.contains("spec.mtuu and spec.nicSelector.pfName of four"), "{notes}");
    assert_eq!(told["cards"][0]["vfs"].as_array().unwrap().len(), 4);
}

#[test]
fn a_list_of_kubectl_is_read() {
    let policy: Value =
        serde_json::from_str(policy("four", 4, &json!({ "pfNames": ["ens1f0"] })).trim_start_matches("---"))
            .unwrap();
    for kind in ["List", "SriovNetworkNodePolicyList"] {
        let list = json!({ "apiVersion": "v1", "kind": kind, "items": [policy] }).to_string();
        let told = told(&node(&APPLY, &machine(0, 0), &list));
        assert_eq!(told["cards"][0]["vfs"].as_array().unwrap().len(), 4, "{kind}");
    }
}

#[test]
fn a_machine_without_cards_says_so() {
    let text = String::from_utf8(node(&["show"], "pfs: []", "").stdout).unwrap();
    assert!(text.contains("there is no network card that can have VFs"), "{text}");
}

fn runs_as_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "the tests do not run as root");
        eprintln!("skipped: the tests do not run as root");
    }
    is_root
}

#[test]
fn a_run_beside_another_one_or_an_agent_says_who_that_is_and_does_nothing() {
    if !runs_as_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = HostRoot::new(directory.path());
    let reset = || {
        let mut command = Command::new(vfleet());
        let output = command.args(["node", "reset", "--host-root"]).arg(directory.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let another = MachineLock::for_run(&root, "vfleet node apply").unwrap();
    let (status, said) = reset();
    assert_eq!(status, Some(1), "{said}");
    let holder = format!("vfleet node apply (process {})", std::process::id());
    assert!(said.contains("another program is configuring this machine") && said.contains(&holder), "{said}");
    drop(another);
    let agent = MachineLock::for_agent(&root, "vfleet agent of node a").unwrap();
    let (status, said) = reset();
    assert!(status == Some(1) && said.contains("an agent looks after this machine"), "{said}");
    drop(agent);
    let (_, said) = reset();
    assert!(!said.contains("Nothing was done"), "{said}");
}

/// Only where the tests run as root can they be somebody else.
#[test]
fn changing_the_machine_takes_root() {
    if !runs_as_root() {
        return;
    }
    for command in [&["apply", "-f", "/dev/null"][..], &["reset"]] {
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups"])
            .arg(vfleet())
            .arg("node")
            .args(command)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("takes root: run it with sudo"), "{said}");
    }
}

#[test]
fn plan_says_what_a_cluster_would_refuse() {
    let select = json!({ "pfNames": ["ens1f0"] });
    let policies = policy("four", 4, &select) + &policy("with.dot", 4, &json!({ "pfNames": ["ens9"] }));
    let output = node(&["plan", "-f", "-", "--format", "json"], &machine(0, 0), &policies);
    let told = told(&output);
    let finding = &told["findings"][0];
    assert_eq!((&finding["policy"], &finding["refused"]), (&json!("with.dot"), &json!(true)), "{told}");
    assert_eq!(finding["field"], "spec.resourceName");
    assert!(finding["says"].as_str().unwrap().contains("only letters, digits"), "{told}");
    assert_eq!(told["findings"].as_array().unwrap().len(), 1, "the other one is fine: {told}");
    assert_eq!(output.status.code(), Some(1), "it is refused here as well: {told}");

    let mut with_bridge: Value =
        serde_json::from_str(policy("with-bridge", 4, &select).trim_start_matches("---\n")).unwrap();
    with_bridge["spec"]["eSwitchMode"] = json!("switchdev");
    with_bridge["spec"]["bridge"] = json!({ "ovs": {} });
    let output = node(&["plan", "-f", "-", "--format", "json"], &machine(0, 0), &with_bridge.to_string());
    let told = self::told(&output);
    assert!(told["findings"].is_null(), "whether a cluster has bridges switched on is not known: {told}");

    let output = node(&["plan", "-f", "-"], &machine(0, 0), &policy("many", 9, &select));
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("AT FAULT")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("spec.numVfs") && line.contains("ens1f0 on this machine"), "{line}");
}

//! Tests of `vfleet node`. A simulated machine ends with the command, so each test starts with a machine in the state
//! that an earlier command would have left.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failed expectation is the point")]

mod bridges;
mod pods;

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use vfleet_host::{HostRoot, MachineLock};

const PF: &str = "0000:3b:00.0";

/// Returns a machine with one card that has `vfs` VFs, of which vfleet created `recorded`.
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
    // A command that does not read its input closes it.
    let _ = child.stdin.take().unwrap().write_all(policies.as_bytes());
    child.wait_with_output().unwrap()
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)))
}

const APPLY: [&str; 5] = ["apply", "-f", "-", "--format", "json"];

#[test]
fn apply_creates_vfs_and_reports_the_steps() {
    let output = node(&APPLY, &machine(0, 0), &policy("four", 4, &json!({ "pfNames": ["ens1f0"] })));
    let parsed = report(&output);
    assert_eq!(output.status.code(), Some(0), "{parsed}");
    assert_eq!(parsed["steps"].as_array().unwrap().len() as u64, parsed["executed"].as_u64().unwrap());
    let card = &parsed["cards"][0];
    assert_eq!(card["record"], "ours");
    let vfs = card["vfs"].as_array().unwrap();
    assert_eq!(vfs.len(), 4);
    assert!(vfs.iter().all(|vf| vf["driver"] == "iavf" && vf["policy"] == "four"), "{card}");
}

#[test]
fn the_table_has_the_same_content() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0"] }));
    let output = node(&["apply", "-f", "-"], &machine(0, 0), &policies);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("set 0000:3b:00.0 numvfs 4"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("ens1f0 3 ") && line.contains("iavf")), "{text}");
    assert!(text.ends_with("all cards are configured\n"), "{text}");
}

#[test]
fn a_missing_card_is_waited_for_with_a_message() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0", "ens9"] }));
    let output = node(&[&APPLY[..], &["--wait", "1"]].concat(), &machine(0, 0), &policies);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("waiting for ens9, at most 1 s"), "{stderr}");
    assert_eq!(report(&output)["cards"][0]["vfs"].as_array().unwrap().len(), 4, "the others are configured");
}

#[test]
fn plan_and_dry_run_execute_nothing() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0"] }));
    let plan = node(&["plan", "-f", "-", "--format", "json"], &machine(0, 0), &policies);
    let dry_run = node(&[&APPLY[..], &["--dry-run"]].concat(), &machine(0, 0), &policies);
    assert_eq!(plan.stdout, dry_run.stdout);
    let parsed = report(&plan);
    assert_eq!(plan.status.code(), Some(0));
    assert!(!parsed["steps"].as_array().unwrap().is_empty());
    assert!(parsed["executed"].is_null() && parsed["cards"][0]["vfs"] == json!([]), "{parsed}");
}

#[test]
fn existing_vfs_are_only_removed_with_force() {
    let policies = policy("eight", 8, &json!({ "pfNames": ["ens1f0"] }));
    let refused = node(&APPLY, &machine(4, 4), &policies);
    let refused_report = report(&refused);
    assert_eq!(refused.status.code(), Some(3), "{refused_report}");
    assert!(refused_report["refused"].as_str().unwrap().contains("numvfs 0"), "{refused_report}");
    assert_eq!(refused_report["cards"][0]["vfs"].as_array().unwrap().len(), 4);

    let forced = node(&[&APPLY[..], &["--force"]].concat(), &machine(4, 4), &policies);
    assert_eq!(forced.status.code(), Some(0));
    assert_eq!(report(&forced)["cards"][0]["vfs"].as_array().unwrap().len(), 8);
}

#[test]
fn reset_resets_configured_pfs_and_no_others() {
    let ours = node(&["reset", "--force", "--format", "json"], &machine(4, 4), "");
    assert_eq!(ours.status.code(), Some(0));
    let card = &report(&ours)["cards"][0];
    assert!(card["vfs"] == json!([]) && card["record"].is_null(), "{card}");

    let foreign = report(&node(&["reset", "--force", "--format", "json"], &machine(4, 0), ""));
    assert_eq!(foreign["cards"][0]["vfs"].as_array().unwrap().len(), 4);
    assert_eq!(foreign["executed"], 0);
}

#[test]
fn show_prints_records_and_differences() {
    let output = node(&["show", "--format", "json"], &machine(4, 0), "");
    assert_eq!((output.status.code(), &report(&output)["cards"][0]["record"]), (Some(0), &Value::Null));
    assert_eq!(
        report(&node(&["show", "--format", "json"], &machine(4, 4), ""))["cards"][0]["record"],
        "ours"
    );
    let output = node(&["show", "--format", "json"], &machine(3, 4), "");
    let drifted = report(&output);
    assert_eq!(output.status.code(), Some(1), "{drifted}");
    assert!(drifted["steps"].to_string().contains("numvfs"), "{drifted}");
}

#[test]
fn a_record_that_cannot_be_read_is_never_success() {
    let mut torn: Value = serde_json::from_str(&machine(4, 0)).unwrap();
    torn["damagedRecords"] = json!([PF]);
    let torn = torn.to_string();
    let other = policy("other", 2, &json!({ "pfNames": ["eth9"] }));
    for (arguments, policies) in [
        (&["reset", "--force", "--format", "json"][..], ""),
        (&APPLY, &other),
        (&["plan", "-f", "-", "--format", "json"], &other),
        (&["show", "--format", "json"], ""),
    ] {
        let output = node(arguments, &torn, policies);
        let parsed = report(&output);
        assert_eq!(output.status.code(), Some(1), "{parsed}");
        assert_eq!(parsed["problems"][0]["reason"], "RecordDamaged", "{parsed}");
        assert!(
            parsed["problems"][0]["says"].as_str().unwrap().contains("remove it to make vfleet"),
            "{parsed}"
        );
        assert!(parsed["cards"][0]["unread"].as_str().unwrap().starts_with("RecordDamaged"), "{parsed}");
    }
}

#[test]
fn the_go_daemons_copy_replaces_a_damaged_record() {
    let mut torn: Value = serde_json::from_str(&machine(4, 4)).unwrap();
    torn["goRecords"] = json!([torn["records"][0]["interface"]]);
    torn["records"] = json!([]);
    torn["damagedRecords"] = json!([PF]);
    let output = node(&["reset", "--force", "--format", "json"], &torn.to_string(), "");
    let card = &report(&output)["cards"][0];
    assert_eq!(output.status.code(), Some(0), "{card}");
    assert!(card["vfs"] == json!([]) && card["record"].is_null(), "{card}");
}

#[test]
fn policies_that_select_nothing_get_a_reason_and_faults_fail() {
    let other = policy("other", 2, &json!({ "vendor": "15b3" }));
    let output = node(&APPLY, &machine(0, 0), &other);
    let other_report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{other_report}");
    assert!(other_report["policies"][0]["says"].as_str().unwrap().contains("15b3"), "{other_report}");

    let fault = policy("fault", 2, &json!({ "pfNames": ["ens1f0#4-7"] }));
    let output = node(&APPLY, &machine(0, 0), &fault);
    let fault_report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{fault_report}");
    assert_eq!(fault_report["policies"][0]["verdict"], "atFault");
}

/// Returns a machine after a boot: the card has a record but no VFs.
fn booted() -> String {
    machine(0, 4)
}

fn without_cards(machine: &str) -> String {
    let mut machine: Value = serde_json::from_str(machine).unwrap();
    machine["pfs"] = json!([]);
    machine.to_string()
}

fn with_record(parsed: &Value) -> bool {
    !parsed["steps"].to_string().contains("remove state file") && parsed["cards"][0]["record"] == "ours"
}

#[test]
fn a_mistake_in_a_policy_fails_and_resets_no_card() {
    for (policies, reason) in [
        // A mistyped PF.
        (policy("four", 4, &json!({ "pfNames": ["ens1f9"] })), "there is no card ens1f9"),
        (policy("four", 4, &json!({ "rootDevices": ["0000:3b:00.7"] })), "there is no card 0000:3b:00.7"),
        // With another policy name, too.
        (policy("five", 4, &json!({ "pfNames": ["ens1f9"] })), "there is no card ens1f9"),
        // Policies that admission refuses.
        (policy("four", 9, &json!({ "pfNames": ["ens1f0"] })), "at most 8"),
        (policy("four", 0, &json!({ "pfNames": ["ens1f0"] })), "numVfs is 0"),
        (policy("four", 4, &json!({ "pfNames": ["ens1f0#2-9"] })), "2-9"),
        (policy("four", 4, &json!({})), "nicSelector is empty"),
        (policy("with.dot", 4, &json!({ "pfNames": ["ens1f0"] })), "only letters, digits"),
        // A policy that cannot be read.
        (policy("four", 4, &json!({ "pfNames": ["ens1f0"] })).replace('4', "\"many\""), "many"),
    ] {
        let output = node(&APPLY, &booted(), &policies);
        let fault_report = report(&output);
        assert_eq!(output.status.code(), Some(1), "{policies}: {fault_report}");
        let line = &fault_report["policies"][0];
        assert_eq!(line["verdict"], "atFault", "{policies}: {fault_report}");
        assert!(line["says"].as_str().unwrap().contains(reason), "{policies}: {line}");
        assert!(with_record(&fault_report), "{policies}: {fault_report}");
        // The last configuration is restored at boot.
        assert_eq!(
            fault_report["cards"][0]["vfs"].as_array().unwrap().len(),
            4,
            "{policies}: {fault_report}"
        );
        let notes = fault_report["notes"].to_string();
        assert!(notes.contains("PF ens1f0 (0000:3b:00.0) keeps its configuration"), "{policies}: {notes}");
    }
    // A valid policy that does not select the card resets it.
    let other = policy("four", 4, &json!({ "vendor": "15b3" }));
    assert!(!with_record(&report(&node(&APPLY, &booted(), &other))));
}

#[test]
fn a_configured_card_that_is_not_there_fails_and_its_record_is_kept() {
    for selector in
        [json!({ "pfNames": ["ens1f0"] }), json!({ "rootDevices": [PF] }), json!({ "vendor": "8086" })]
    {
        let output = node(&APPLY, &without_cards(&booted()), &policy("four", 4, &selector));
        let missing_report = report(&output);
        assert_eq!(output.status.code(), Some(1), "{selector}: {missing_report}");
        assert!(
            !missing_report["steps"].to_string().contains("remove state file"),
            "{selector}: {missing_report}"
        );
    }
    // No policy selects it any more.
    let output = node(&["reset", "--format", "json"], &without_cards(&booted()), "");
    assert!(report(&output)["steps"].to_string().contains("remove state file"), "{output:?}");
}

#[test]
fn a_policy_with_a_fault_does_not_affect_others() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0"] }))
        + &policy("typo", 4, &json!({ "pfNames": ["ens9"] }));
    let output = node(&APPLY, &machine(0, 0), &policies);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report(&output)["cards"][0]["vfs"].as_array().unwrap().len(), 4);
}

#[test]
fn the_last_line_reports_a_fault() {
    for policies in
        [policy("typo", 4, &json!({ "pfNames": ["ens9"] })), policy("many", 9, &json!({ "vendor": "8086" }))]
    {
        for command in ["plan", "apply"] {
            let output = node(&[command, "-f", "-"], &machine(0, 0), &policies);
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains("FAULT: "), "{text}");
            assert!(text.lines().last().unwrap().contains("NOT all cards are configured"), "{text}");
        }
    }
}

#[test]
fn a_reboot_has_its_own_exit_status() {
    let mut machine: Value = serde_json::from_str(&machine(0, 0)).unwrap();
    machine["kernel"] = json!({ "iommu": false, "processor": "intel", "bootLoader": "grubby" });
    let policies = policy("dpdk", 2, &json!({ "pfNames": ["ens1f0"] }))
        .replace("\"numVfs\"", "\"deviceType\":\"vfio-pci\",\"numVfs\"");
    let refused = node(&APPLY, &machine.to_string(), &policies);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let output = node(&[&APPLY[..], &["--allow-reboot"]].concat(), &machine.to_string(), &policies);
    let parsed = report(&output);
    assert_eq!((output.status.code(), &parsed["restarts"]), (Some(4), &json!(true)), "{parsed}");
    assert_eq!(parsed["exit"], "restarting");
}

#[test]
fn labels_select_policies() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0"] }))
        .replace("\"nodeSelector\":{}", "\"nodeSelector\":{\"role\":\"a\"}");
    let other = node(&[&APPLY[..], &["--label", "role=b"]].concat(), &machine(0, 0), &policies);
    assert_eq!(report(&other)["executed"], 0);
    let same = node(&[&APPLY[..], &["--label", "role=a"]].concat(), &machine(0, 0), &policies);
    assert_eq!(report(&same)["cards"][0]["vfs"].as_array().unwrap().len(), 4);
    let none = report(&node(&APPLY, &machine(0, 0), &policies));
    assert!(none["notes"][0].as_str().unwrap().contains("ignored nodeSelector of four"), "{none}");
}

#[test]
fn an_invalid_command_line_has_its_own_exit_status() {
    assert_eq!(node(&["apply"], &machine(0, 0), "").status.code(), Some(2));
    assert_eq!(node(&["apply", "-f", "-", "--label", "x"], &machine(0, 0), "").status.code(), Some(2));
    assert_eq!(node(&["show", "--host-ips", "10.0.0.1,x"], &machine(0, 0), "").status.code(), Some(2));
}

/// Returns the error message for a file that is refused.
fn refusal(policies: &str) -> String {
    let output = node(&["apply", "-f", "-"], &machine(4, 4), policies);
    assert_eq!(output.status.code(), Some(1), "{policies}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_file_without_policies_is_refused_with_a_short_message() {
    for (policies, expected) in [
        ("kind: Pod", "document 1: kind is \"Pod\""),
        ("hello", "document 1: kind is missing"),
        ("kind: SriovNetworkNodePolicy", "metadata.name is missing"),
        ("{apiVersion: apps/v1, kind: SriovNetworkNodePolicy}", "apiVersion is \"apps/v1\""),
        // An empty file is a mistake: it would reset all PFs.
        ("", "contains no policy: use `vfleet node reset`"),
        ("kind: List\nitems: []", "contains no policy"),
    ] {
        let stderr = refusal(policies);
        assert!(stderr.contains(expected), "{policies}: {stderr}");
    }
    let stderr = refusal("a: [");
    assert!(
        stderr.starts_with("vfleet: - is not a file of policies: ") && stderr.contains("line 1"),
        "{stderr}"
    );
    assert_eq!(stderr.matches("unclosed").count(), 2, "once in the sentence, once in the picture: {stderr}");
}

#[test]
fn unknown_fields_of_a_policy_are_reported_and_ignored() {
    let policies = policy("four", 4, &json!({ "pfNames": ["ens1f0"], "pfName": "x" }))
        .replace("\"numVfs\"", "\"mtuu\":9000,\"numVfs\"");
    let parsed = report(&node(&APPLY, &machine(0, 0), &policies));
    let notes = parsed["notes"].to_string();
    assert!(
        notes.contains("ignored unknown fields of policy four: spec.mtuu, spec.nicSelector.pfName"),
        "{notes}"
    );
    assert_eq!(parsed["cards"][0]["vfs"].as_array().unwrap().len(), 4);
}

#[test]
fn a_list_of_kubectl_is_read() {
    let policy: Value =
        serde_json::from_str(policy("four", 4, &json!({ "pfNames": ["ens1f0"] })).trim_start_matches("---"))
            .unwrap();
    for kind in ["List", "SriovNetworkNodePolicyList"] {
        let list = json!({ "apiVersion": "v1", "kind": kind, "items": [policy] }).to_string();
        let parsed = report(&node(&APPLY, &machine(0, 0), &list));
        assert_eq!(parsed["cards"][0]["vfs"].as_array().unwrap().len(), 4, "{kind}");
    }
}

#[test]
fn a_machine_without_cards_is_reported() {
    let text = String::from_utf8(node(&["show"], "pfs: []", "").stdout).unwrap();
    assert!(text.contains("the machine has no network card that supports SR-IOV"), "{text}");
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
fn a_command_beside_another_one_or_an_agent_names_it_and_changes_nothing() {
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
    let (status, stderr) = reset();
    assert_eq!(status, Some(1), "{stderr}");
    let holder = format!("vfleet node apply (process {})", std::process::id());
    assert!(
        stderr.contains("another program is configuring this machine") && stderr.contains(&holder),
        "{stderr}"
    );
    drop(another);
    let agent = MachineLock::for_agent(&root, "vfleet agent of node a").unwrap();
    let (status, stderr) = reset();
    assert!(status == Some(1) && stderr.contains("an agent manages this machine"), "{stderr}");
    drop(agent);
    let (_, stderr) = reset();
    assert!(!stderr.contains("Nothing was changed"), "{stderr}");
}

/// Only tests that run as root can change their user.
#[test]
fn changing_the_machine_needs_root() {
    if !runs_as_root() {
        return;
    }
    for command in [&["apply", "-f", "/dev/null"][..], &["reset"], &["pods", "--repair"]] {
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups"])
            .arg(vfleet())
            .arg("node")
            .args(command)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("needs root: run the command with sudo"), "{stderr}");
    }
}

#[test]
fn plan_reports_what_a_cluster_would_refuse() {
    let select = json!({ "pfNames": ["ens1f0"] });
    let policies = policy("four", 4, &select) + &policy("with.dot", 4, &json!({ "pfNames": ["ens9"] }));
    let output = node(&["plan", "-f", "-", "--format", "json"], &machine(0, 0), &policies);
    let parsed = report(&output);
    let finding = &parsed["findings"][0];
    assert_eq!((&finding["policy"], &finding["refused"]), (&json!("with.dot"), &json!(true)), "{parsed}");
    assert_eq!(finding["field"], "spec.resourceName");
    assert!(finding["says"].as_str().unwrap().contains("only letters, digits"), "{parsed}");
    assert_eq!(parsed["findings"].as_array().unwrap().len(), 1, "the other one is fine: {parsed}");
    assert_eq!(output.status.code(), Some(1), "it is refused here as well: {parsed}");

    let mut with_bridge: Value =
        serde_json::from_str(policy("with-bridge", 4, &select).trim_start_matches("---\n")).unwrap();
    with_bridge["spec"]["eSwitchMode"] = json!("switchdev");
    with_bridge["spec"]["bridge"] = json!({ "ovs": {} });
    let output = node(&["plan", "-f", "-", "--format", "json"], &machine(0, 0), &with_bridge.to_string());
    let parsed = self::report(&output);
    assert!(parsed["findings"].is_null(), "whether a cluster has bridges switched on is not known: {parsed}");

    let output = node(&["plan", "-f", "-"], &machine(0, 0), &policy("many", 9, &select));
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("FAULT")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("spec.numVfs") && line.contains("ens1f0 on this machine"), "{line}");
}

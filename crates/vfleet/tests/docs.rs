//! Examples of the documentation: policies are planned on a machine that has their cards.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failed expectation is the point")]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde_json::json;

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

#[test]
fn policies_in_the_documentation_are_valid() {
    let card = |address: &str, name: &str, vfs: u16| {
        json!({ "address": address, "name": name, "vendor": "8086", "device": "158b", "vfDevice": "154c",
                "driver": "i40e", "vfDriver": "iavf", "totalVfs": 64, "numVfs": vfs })
    };
    // The VFs of ens3f0 are externally managed.
    let cards = [card("0000:3b:00.0", "ens1f0", 0), card("0000:5e:00.0", "ens3f0", 10)];
    let machine = json!({ "pfs": cards, "userspaceDrivers": ["vfio-pci"] });
    let directory = tempfile::tempdir().unwrap();
    let (machine_file, policy_file) = (directory.path().join("machine"), directory.path().join("policy"));
    std::fs::write(&machine_file, machine.to_string()).unwrap();
    for page in PAGES {
        let text = read(page);
        let policies: Vec<_> = blocks(&text, "yaml")
            .into_iter()
            .filter(|yaml| yaml.contains("SriovNetworkNodePolicy"))
            .collect();
        assert!(!policies.is_empty(), "{page} contains no policy");
        for policy in policies {
            std::fs::write(&policy_file, policy).unwrap();
            let mut command = Command::new(vfleet());
            command.args(["node", "plan", "-f"]).arg(&policy_file).arg("--sim").arg(&machine_file);
            let output = command.output().unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(0), "{page}: {stdout}");
            assert!(stdout.contains("selected"), "{page}: {stdout}");
        }
    }
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

//! Gaps of the contract suite: cases that cannot run in an environment, with the reason. Every case runs in at least
//! one.
//!
//! Every run is checked against this table ([`check_against_gaps`]): a case that was unsupported and is not listed has
//! failed, and so has a case that is listed and ran.

use super::cases::all_cases;
use super::suite::CaseOutcome;

/// Environment in which cases run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// `SimHost`, a model.
    Sim,
    /// `LinuxHost` on the kernel of the VM lab.
    Kernel,
}

impl Environment {
    pub const ALL: [Self; 2] = [Self::Sim, Self::Kernel];

    /// Returns the name in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sim => "SimHost",
            Self::Kernel => "lab kernel",
        }
    }
}

/// Cases that cannot run in an environment, with the reason.
struct Gap {
    environment: Environment,
    reason: &'static str,
    cases: &'static [&'static str],
}

const GAPS: &[Gap] = &[
    Gap {
        environment: Environment::Sim,
        reason: "files of the model have no permissions",
        cases: &["a_record_is_accessible_only_by_root", "a_script_is_executable_and_a_rule_is_not"],
    },
    Gap {
        environment: Environment::Sim,
        reason: "the model has the documented defaults of bridge ports, not those of a kernel",
        cases: &["a_new_bridge_port_has_the_documented_defaults"],
    },
    Gap {
        environment: Environment::Sim,
        reason: "Open vSwitch of the model has no statistics",
        cases: &["statistics_of_ovs_are_no_notification"],
    },
    Gap {
        environment: Environment::Kernel,
        reason: "no card in the lab has vDPA on its VFs",
        cases: &[
            "creates_and_removes_vdpa_devices",
            "a_vdpa_device_needs_its_driver",
            "a_vdpa_device_needs_switchdev",
            "unbinding_a_vf_deletes_its_vdpa_device",
        ],
    },
    Gap {
        environment: Environment::Kernel,
        reason: "no card in the lab has RDMA",
        cases: &["an_rdma_vf_that_is_bound_with_a_mac_has_a_guid"],
    },
    Gap {
        environment: Environment::Kernel,
        reason: "no card in the lab has firmware settings",
        cases: &[
            "firmware_settings_take_effect_after_a_firmware_reset",
            "firmware_is_not_reset_while_vfs_exist",
            "other_firmware_settings_are_kept",
        ],
    },
    Gap {
        environment: Environment::Kernel,
        reason: "InfiniBand is not emulated in the lab",
        cases: &[
            "new_infiniband_vfs_have_no_guid",
            "sets_the_guid_of_the_right_vf",
            "a_guid_takes_effect_at_the_next_bind",
            "a_guid_survives_a_driver_change",
            "refuses_a_mac_on_infiniband",
        ],
    },
    Gap {
        environment: Environment::Kernel,
        reason: "the lab has no lone VF",
        cases: &[
            "reports_a_lone_vf_as_its_own_vf",
            "binds_a_lone_vf_to_a_named_driver_and_back",
            "refuses_to_set_the_number_of_vfs_of_a_lone_vf",
        ],
    },
];

/// Returns why a case cannot run in an environment, or `None` if it can.
pub fn find_gap(case: &str, environment: Environment) -> Option<&'static str> {
    let matches = |gap: &&Gap| gap.environment == environment && gap.cases.contains(&case);
    GAPS.iter().find(matches).map(|gap| gap.reason)
}

/// Returns the outcome of a case, turned into a failure if it contradicts the table of gaps.
#[must_use]
pub fn check_against_gaps(case: &str, environment: Environment, outcome: CaseOutcome) -> CaseOutcome {
    match (&outcome, find_gap(case, environment)) {
        (CaseOutcome::Unsupported(reason), None) => CaseOutcome::Failed(format!(
            "the case cannot run here ({reason}), but is not in the table of gaps: add it"
        )),
        (CaseOutcome::Ok, Some(reason)) => CaseOutcome::Failed(format!(
            "the case ran, but the table of gaps says that it cannot ({reason}): remove it from the table"
        )),
        _ => outcome,
    }
}

/// Returns the table of gaps in Markdown. Cases that run everywhere are only counted.
pub fn render_table() -> String {
    let total = all_cases().count();
    let mut lines =
        vec!["| environment | cases that run | of |".to_owned(), "| --- | --- | --- |".to_owned()];
    for environment in Environment::ALL {
        let count = all_cases().filter(|case| find_gap(case.name, environment).is_none()).count();
        lines.push(format!("| {} | {count} | {total} |", environment.as_str()));
    }
    lines.extend(["", "| case | does not run on | reason |", "| --- | --- | --- |"].map(str::to_owned));
    for (gap, case) in GAPS.iter().flat_map(|gap| gap.cases.iter().map(move |case| (gap, case))) {
        lines.push(format!("| `{case}` | {} | {} |", gap.environment.as_str(), gap.reason));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::{env, fs};

    use super::*;
    use crate::contract::cases::find_case;

    #[test]
    fn every_case_runs_somewhere() {
        let nowhere: Vec<&str> = all_cases()
            .map(|case| case.name)
            .filter(|name| Environment::ALL.iter().all(|environment| find_gap(name, *environment).is_some()))
            .collect();
        assert_eq!(nowhere, Vec::<&str>::new());
    }

    #[test]
    fn the_table_lists_only_existing_cases_and_each_once() {
        let mut named = BTreeSet::new();
        for (gap, case) in GAPS.iter().flat_map(|gap| gap.cases.iter().map(move |case| (gap, case))) {
            assert!(find_case(case).is_some(), "{case}");
            assert!(named.insert((gap.environment.as_str(), case)), "{case}");
        }
    }

    #[test]
    fn a_run_that_contradicts_the_table_fails() {
        let unlisted = check_against_gaps(
            "creates_vfs",
            Environment::Sim,
            CaseOutcome::Unsupported("reason".to_owned()),
        );
        assert!(matches!(unlisted, CaseOutcome::Failed(_)), "{unlisted:?}");
        let listed = check_against_gaps(
            "refuses_to_set_the_number_of_vfs_of_a_lone_vf",
            Environment::Kernel,
            CaseOutcome::Ok,
        );
        assert!(matches!(listed, CaseOutcome::Failed(_)), "{listed:?}");
        assert_eq!(check_against_gaps("creates_vfs", Environment::Kernel, CaseOutcome::Ok), CaseOutcome::Ok);
    }

    /// `UPDATE_DOCS=1 cargo test -p vfleet-tests --lib coverage` updates it.
    #[test]
    fn the_readme_contains_the_table() {
        const BEGIN: &str = "<!-- table of gaps -->\n";
        const END: &str = "<!-- end of the table of gaps -->";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/contract/README.md");
        let text = fs::read_to_string(path).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (found, after) = rest.split_once(END).unwrap();
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(path, format!("{before}{BEGIN}{}{END}{after}", render_table())).unwrap();
        } else {
            assert_eq!(found, render_table(), "run with UPDATE_DOCS=1 to update it");
        }
    }
}

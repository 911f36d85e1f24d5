//! Which case cannot run in which environment, and why. Every case runs in at least one.
//!
//! A run is held to this table in both directions: a case that cannot be shown and is not listed has failed, and so has
//! one that is listed and was shown ([`hold_to_table`]).

use super::cases::all_cases;
use super::suite::Ending;

/// Where cases are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// `SimHost`, a model.
    Sim,
    /// `LinuxHost` on the kernel of the VM lab.
    Kernel,
}

impl Environment {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Sim, Self::Kernel];

    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sim => "SimHost",
            Self::Kernel => "lab kernel",
        }
    }
}

/// Cases that cannot run in an environment.
struct Gap {
    environment: Environment,
    why: &'static str,
    cases: &'static [&'static str],
}

const GAPS: &[Gap] = &[
    Gap {
        environment: Environment::Sim,
        why: "files of the model have no permissions",
        cases: &["a_record_is_for_root_alone", "a_program_may_be_started_and_a_rule_only_read"],
    },
    Gap {
        environment: Environment::Kernel,
        why: "no card in the lab has vDPA on its VFs",
        cases: &[
            "makes_and_removes_vdpa_devices",
            "a_vdpa_device_needs_its_driver",
            "a_vdpa_device_needs_switchdev",
            "a_vdpa_device_goes_with_the_driver_of_its_vf",
        ],
    },
    Gap {
        environment: Environment::Kernel,
        why: "no card in the lab has RDMA",
        cases: &["an_rdma_vf_has_a_guid_once_it_is_bound_with_an_address"],
    },
    Gap {
        environment: Environment::Kernel,
        why: "no card in the lab has settings in its firmware",
        cases: &[
            "firmware_settings_count_after_a_restart_of_the_firmware",
            "firmware_is_not_restarted_under_vfs",
            "other_firmware_settings_stay",
        ],
    },
    Gap {
        environment: Environment::Kernel,
        why: "nothing in the lab emulates InfiniBand",
        cases: &[
            "new_infiniband_vfs_have_no_guid",
            "sets_the_guid_of_the_right_vf",
            "a_guid_reaches_the_vf_at_the_next_bind",
            "a_guid_survives_other_drivers",
            "refuses_an_ethernet_address_on_infiniband",
        ],
    },
    Gap {
        environment: Environment::Kernel,
        why: "no hypervisor gives the lab a VF without its PF",
        cases: &["tells_a_lone_vf_as_its_own_vf", "binds_a_lone_vf_and_back", "a_lone_vf_makes_no_vfs"],
    },
];

/// Why the case of this name cannot run in an environment; `None` when it can.
pub fn gap(case: &str, environment: Environment) -> Option<&'static str> {
    let holds = |gap: &&Gap| gap.environment == environment && gap.cases.contains(&case);
    GAPS.iter().find(holds).map(|gap| gap.why)
}

/// The ending of a case that was tried in an environment; a failure when the table says otherwise.
#[must_use]
pub fn hold_to_table(case: &str, environment: Environment, ending: Ending) -> Ending {
    match (&ending, gap(case, environment)) {
        (Ending::CannotShow(why), None) => {
            Ending::Failed(format!("it cannot be shown ({why}), and the table of gaps does not say so"))
        }
        (Ending::Ok, Some(why)) => {
            Ending::Failed(format!("it was shown, and the table of gaps says that it cannot be: {why}"))
        }
        _ => ending,
    }
}

/// The table for people: cases that run everywhere are only counted.
pub fn table() -> String {
    let total = all_cases().count();
    let mut lines =
        vec!["| environment | cases that run | of |".to_owned(), "| --- | --- | --- |".to_owned()];
    for environment in Environment::ALL {
        let count = all_cases().filter(|case| gap(case.name, environment).is_none()).count();
        lines.push(format!("| {} | {count} | {total} |", environment.as_str()));
    }
    lines.extend(["", "| case | does not run on | because |", "| --- | --- | --- |"].map(str::to_owned));
    for (gap, case) in GAPS.iter().flat_map(|gap| gap.cases.iter().map(move |case| (gap, case))) {
        lines.push(format!("| `{case}` | {} | {} |", gap.environment.as_str(), gap.why));
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
            .filter(|name| Environment::ALL.iter().all(|environment| gap(name, *environment).is_some()))
            .collect();
        assert_eq!(nowhere, Vec::<&str>::new());
    }

    #[test]
    fn the_table_names_cases_once_and_only_those_that_are() {
        let mut named = BTreeSet::new();
        for (gap, case) in GAPS.iter().flat_map(|gap| gap.cases.iter().map(move |case| (gap, case))) {
            assert!(find_case(case).is_some(), "{case}");
            assert!(named.insert((gap.environment.as_str(), case)), "{case}");
        }
    }

    #[test]
    fn a_run_that_differs_from_the_table_has_failed() {
        let unlisted = hold_to_table("makes_vfs", Environment::Sim, Ending::CannotShow("why".to_owned()));
        assert!(matches!(unlisted, Ending::Failed(_)), "{unlisted:?}");
        let shown = hold_to_table("a_lone_vf_makes_no_vfs", Environment::Kernel, Ending::Ok);
        assert!(matches!(shown, Ending::Failed(_)), "{shown:?}");
        assert_eq!(hold_to_table("makes_vfs", Environment::Kernel, Ending::Ok), Ending::Ok);
    }

    /// `UPDATE_DOCS=1 cargo test -p vfleet-tests --lib coverage` writes it.
    #[test]
    fn the_documentation_has_the_table() {
        const BEGIN: &str = "<!-- table of gaps -->\n";
        const END: &str = "<!-- end of the table of gaps -->";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/contract/README.md");
        let text = fs::read_to_string(path).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (found, after) = rest.split_once(END).unwrap();
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
        } else {
            assert_eq!(found, table(), "UPDATE_DOCS=1 writes it");
        }
    }
}

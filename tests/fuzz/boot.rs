//! Boot of a node: config and result of the units, kernel arguments, files of boot loaders.

use vfleet_agent::boot::{parse_config, parse_result};
use vfleet_host::fuzzing;
use vfleet_plan::boot::config_text;
use vfleet_plan::kernel_arguments::{
    KernelArgument, contradicting_arguments, iommu_off_arguments, missing_arguments, rdma_mode_arguments,
};
use vfleet_plan::{BootPhase, plan_phase};

use crate::driver::{Target, Verdict};
use crate::node_files::MACHINE;

#[test]
fn boot_config() {
    Target::new("boot_config").with_cases(600).run(|bytes| {
        let config = match parse_config(&String::from_utf8_lossy(bytes)) {
            Ok(config) => config,
            Err(reason) => {
                assert!(reason.len() > "cannot be read: ".len());
                return Verdict::Refused;
            }
        };
        let printed = config_text(&config);
        let again = parse_config(&printed)
            .unwrap_or_else(|error| panic!("{error}: what we write ourselves:\n{printed}"));
        assert_eq!(again, config);
        for phase in [BootPhase::BeforeNetwork, BootPhase::Bridges, BootPhase::AfterNetwork] {
            let _ = plan_phase(phase, &config, &MACHINE);
        }
        Verdict::Accepted
    });
}

#[test]
fn boot_result() {
    Target::new("boot_result").run(|bytes| {
        let result = parse_result(&String::from_utf8_lossy(bytes));
        if !["Succeeded", "InProgress", "Failed"].contains(&result.sync_status.as_str()) {
            return Verdict::Refused;
        }
        assert_eq!(parse_result(&result.file().text), result);
        Verdict::of(!result.last_sync_error.contains("cannot be read"))
    });
}

#[test]
fn kernel_command_line() {
    const WORDS: &[&str] = &[
        "intel_iommu=off",
        "intel_iommu=on,sm_on",
        "iommu=nopt",
        "iommu=off",
        "ib_core.netns_mode=0",
        " -- ",
        "\"",
    ];
    let required =
        [KernelArgument::IntelIommu, KernelArgument::IommuPassthrough, KernelArgument::RdmaShared(false)];
    Target::new("kernel_command_line").with_words(WORDS).run(move |bytes| {
        let line = String::from_utf8_lossy(bytes);
        let found = [
            contradicting_arguments(&required, &line),
            rdma_mode_arguments(&line),
            iommu_off_arguments(&line),
        ]
        .concat();
        assert!(
            found.iter().all(|argument| line.contains(argument.as_str())),
            "{found:?} is not part of the command line"
        );
        let missing = missing_arguments(&required, &line);
        // Arguments after `--` belong to init, and an open quote includes the rest.
        if !line.contains("--") && !line.contains('"') {
            let added = format!("{line} {}", missing.join(" "));
            assert_eq!(
                missing_arguments(&required, &added),
                Vec::<String>::new(),
                "missing arguments were added"
            );
        }
        Verdict::of(missing.len() < required.len())
    });
}

#[test]
fn grub_drop_in() {
    const WORDS: &[&str] = &["vfleet_with='", "vfleet_without='", "$(reboot)", "`id`", "';", "\\"];
    Target::new("grub_drop_in").with_words(WORDS).run(|bytes| {
        let (with, without, text) = fuzzing::grub_drop_in(&String::from_utf8_lossy(bytes));
        for argument in with.iter().chain(&without) {
            assert!(fuzzing::is_plain_argument(argument), "{argument:?} has a special meaning in a shell");
            assert!(
                !argument.contains(['\'', '"', '$', '`', '\\', ';', '&', '|', '\n', ' ']),
                "{argument:?}"
            );
        }
        let (with_again, without_again, _) = fuzzing::grub_drop_in(&text);
        assert_eq!((&with_again, &without_again), (&with, &without));
        Verdict::of(!with.is_empty())
    });
}

#[test]
fn grub_config() {
    Target::new("grub_config").run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (first, quoted) = (fuzzing::grub_config(&text), fuzzing::grubby_info(&text));
        assert!(text.contains(&first) && text.contains(&quoted));
        assert!(!first.contains('\n') && !quoted.contains('\n'));
        Verdict::of(!first.is_empty() || !quoted.is_empty())
    });
}

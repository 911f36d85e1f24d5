//! How a node boots: the units' config and result, the kernel's arguments, the boot loader's files.

use vfleet_agent::boot::{parse, parse_result};
use vfleet_host::fuzzing;
use vfleet_plan::boot::config_text;
use vfleet_plan::kernel_arguments::{Wanted, about_rdma_mode, contrary, missing, switching_iommu_off};
use vfleet_plan::{BootPhase, plan_phase};

use crate::driver::{Target, Verdict};
use crate::node_files::MACHINE;

#[test]
fn boot_config() {
    Target::new("boot_config").with_cases(600).run(|bytes| {
        let config = match parse(&String::from_utf8_lossy(bytes)) {
            Ok(config) => config,
            Err(reason) => {
                assert!(reason.len() > "cannot be read: ".len());
                return Verdict::Refused;
            }
        };
        let printed = config_text(&config);
        let again =
            parse(&printed).unwrap_or_else(|error| panic!("{error}: what we write ourselves:\n{printed}"));
        assert_eq!(again, config);
        for phase in [BootPhase::BeforeNetwork, BootPhase::AfterNetwork] {
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
    let wanted = [Wanted::IntelIommu, Wanted::IommuPassthrough, Wanted::RdmaShared(false)];
    Target::new("kernel_command_line").with_words(WORDS).run(move |bytes| {
        let line = String::from_utf8_lossy(bytes);
        let told = [contrary(&wanted, &line), about_rdma_mode(&line), switching_iommu_off(&line)].concat();
        assert!(
            told.iter().all(|argument| line.contains(argument.as_str())),
            "{told:?} is not what is written"
        );
        let lacking = missing(&wanted, &line);
        // Arguments after `--` are for init, and an open quote swallows the rest.
        if !line.contains("--") && !line.contains('"') {
            let added = format!("{line} {}", lacking.join(" "));
            assert_eq!(missing(&wanted, &added), Vec::<String>::new(), "what was missing was added");
        }
        Verdict::of(lacking.len() < wanted.len())
    });
}

#[test]
fn grub_drop_in() {
    const WORDS: &[&str] = &["vfleet_with='", "vfleet_without='", "$(reboot)", "`id`", "';", "\\"];
    Target::new("grub_drop_in").with_words(WORDS).run(|bytes| {
        let (with, without, text) = fuzzing::grub_drop_in(&String::from_utf8_lossy(bytes));
        for argument in with.iter().chain(&without) {
            assert!(fuzzing::is_plain_argument(argument), "{argument:?} means something to a shell");
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

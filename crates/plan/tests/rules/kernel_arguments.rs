//! Arguments of the kernel, compared by what they mean.

use proptest::prelude::*;
use vfleet_plan::kernel_arguments::Wanted::{IntelIommu, IommuPassthrough, RdmaShared};
use vfleet_plan::kernel_arguments::{Wanted, about_rdma_mode, contrary, missing, switching_iommu_off};

const ALL: [Wanted; 4] = [IntelIommu, IommuPassthrough, RdmaShared(true), RdmaShared(false)];

fn is_missing(wanted: Wanted, command_line: &str) -> bool {
    missing(&[wanted], command_line) == [wanted.argument()]
}

#[test]
fn what_means_the_same_counts() {
    let cases = [
        (IntelIommu, "intel_iommu=on"),
        (IntelIommu, "quiet intel_iommu=sm_on,on ro"),
        (IntelIommu, "intel_iommu=on,sm_on"),
        (IntelIommu, "intel_iommu=off intel_iommu=on"),
        (IntelIommu, "intel_iommu=off,on"),
        (IntelIommu, "intel-iommu=on"),
        (IntelIommu, r#"intel_iommu="on""#),
        (IntelIommu, r#""intel_iommu=on""#),
        (IommuPassthrough, "iommu=pt"),
        (IommuPassthrough, "iommu=force,pt\n"),
        (IommuPassthrough, "iommu=nopt iommu=pt"),
        (IommuPassthrough, "iommu=pt iommu=pt"),
        (IommuPassthrough, "iommu.passthrough=1"),
        (IommuPassthrough, "iommu.passthrough=0 iommu.passthrough=on"),
        (RdmaShared(false), "ib_core.netns_mode=0"),
        (RdmaShared(false), "ib-core.netns-mode=N"),
        (RdmaShared(false), "ib_core.netns_mode=1 ib_core.netns_mode=off"),
        (RdmaShared(true), "ib_core.netns_mode=Y"),
        (RdmaShared(true), "ib_core.netns_mode"),
        (RdmaShared(true), "ib_core.netns_mode=0 ib_core.netns_mode=on"),
    ];
    for (wanted, command_line) in cases {
        assert!(!is_missing(wanted, command_line), "{wanted:?} in {command_line}");
    }
}

#[test]
fn what_means_something_else_does_not() {
    let cases = [
        (IntelIommu, ""),
        (IntelIommu, "intel_iommu"),
        (IntelIommu, "intel_iommu=sm_on"),
        (IntelIommu, "intel_iommu=on intel_iommu=off"),
        (IntelIommu, "intel_iommu=on,off"),
        (IntelIommu, "my_intel_iommu=on"),
        (IntelIommu, "intel_iommu=onion"),
        (IntelIommu, "BOOT_IMAGE=intel_iommu=on"),
        (IntelIommu, r#"dyndbg="file x intel_iommu=on +p""#),
        (IntelIommu, "quiet -- intel_iommu=on"),
        (IommuPassthrough, "intel_iommu=pt amd_iommu=pt"),
        (IommuPassthrough, "iommu=nopt"),
        (IommuPassthrough, "iommu=pt iommu.passthrough=0"),
        (IommuPassthrough, "iommu.strict=1"),
        (RdmaShared(false), "ib_core.netns_mode=0 ib_core.netns_mode=1"),
        (RdmaShared(false), "ib_core.netns_mode=2"),
        (RdmaShared(true), "netns_mode=1"),
    ];
    for (wanted, command_line) in cases {
        assert!(is_missing(wanted, command_line), "{wanted:?} in {command_line}");
    }
}

#[test]
fn the_contrary_is_found_as_it_is_written() {
    let line = r#"quiet intel_iommu=sm_on,off iommu="pt" ib-core.netns_mode=Y ib-core.netns_mode=Y ib_core.netns_mode=0"#;
    assert_eq!(contrary(&[IntelIommu], line), ["intel_iommu=sm_on,off"]);
    assert_eq!(contrary(&[RdmaShared(false)], line), ["ib-core.netns_mode=Y"]);
    assert_eq!(about_rdma_mode(line), ["ib-core.netns_mode=Y", "ib_core.netns_mode=0"]);
    assert!(contrary(&[IommuPassthrough], line).is_empty());
}

#[test]
fn what_switches_the_iommu_off_is_found_as_it_is_written() {
    let line =
        "amd_iommu=force_enable,off quiet iommu=off iommu=off iommu=pt intel_iommu=off iommu.strict=off";
    assert_eq!(switching_iommu_off(line), ["amd_iommu=force_enable,off", "iommu=off"]);
    assert!(switching_iommu_off("iommu=soft amd_iommu=fullflush -- iommu=off").is_empty());
}

proptest! {
    #![proptest_config(crate::config(1000))]

    #[test]
    fn any_line_can_be_asked(line in r#"([a-z_.=,"-]| |\PC){0,80}"#) {
        for wanted in ALL {
            let _ = (missing(&[wanted], &line), contrary(&[wanted], &line));
        }
    }

    /// Whatever stands there: with the missing arguments added and the contrary ones removed, nothing is missing.
    #[test]
    fn adding_what_is_missing_helps(
        words in prop::collection::vec(prop::sample::select(vec![
            "quiet", "intel_iommu=on", "intel_iommu=off", "intel_iommu=sm_on", "iommu=pt", "iommu=nopt", "iommu=soft",
            "iommu.passthrough=0", "ib_core.netns_mode=0", "ib_core.netns_mode=1", "ib_core.netns_mode=yes",
        ]), 0..10),
        shared in any::<bool>(),
        at_the_beginning in any::<bool>(),
    ) {
        let wanted = [IntelIommu, IommuPassthrough, RdmaShared(shared)];
        let line = words.join(" ");
        let (added, removed) = (missing(&wanted, &line), contrary(&wanted, &line));
        let mut rest: Vec<&str> = words.into_iter().filter(|word| !removed.iter().any(|gone| gone == word)).collect();
        let at = if at_the_beginning { 0 } else { rest.len() };
        rest.splice(at..at, added.iter().map(String::as_str));
        prop_assert!(missing(&wanted, &rest.join(" ")).is_empty());
        prop_assert!(contrary(&wanted, &rest.join(" ")).is_empty());
    }
}

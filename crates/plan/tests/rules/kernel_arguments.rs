//! Kernel arguments, compared by meaning.

use proptest::prelude::*;
use vfleet_plan::kernel_arguments::KernelArgument::{IntelIommu, IommuPassthrough, RdmaShared};
use vfleet_plan::kernel_arguments::{
    KernelArgument, contradicting_arguments, iommu_off_arguments, missing_arguments, rdma_mode_arguments,
};

const ALL: [KernelArgument; 4] = [IntelIommu, IommuPassthrough, RdmaShared(true), RdmaShared(false)];

fn is_missing(desired: KernelArgument, command_line: &str) -> bool {
    missing_arguments(&[desired], command_line) == [desired.text()]
}

#[test]
fn equivalent_arguments_count() {
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
    for (desired, command_line) in cases {
        assert!(!is_missing(desired, command_line), "{desired:?} in {command_line}");
    }
}

#[test]
fn other_arguments_do_not_count() {
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
    for (desired, command_line) in cases {
        assert!(is_missing(desired, command_line), "{desired:?} in {command_line}");
    }
}

#[test]
fn contradicting_arguments_are_found_as_written() {
    let line = r#"quiet intel_iommu=sm_on,off iommu="pt" ib-core.netns_mode=Y ib-core.netns_mode=Y ib_core.netns_mode=0"#;
    assert_eq!(contradicting_arguments(&[IntelIommu], line), ["intel_iommu=sm_on,off"]);
    assert_eq!(contradicting_arguments(&[RdmaShared(false)], line), ["ib-core.netns_mode=Y"]);
    assert_eq!(rdma_mode_arguments(line), ["ib-core.netns_mode=Y", "ib_core.netns_mode=0"]);
    assert!(contradicting_arguments(&[IommuPassthrough], line).is_empty());
}

#[test]
fn arguments_that_disable_the_iommu_are_found_as_written() {
    let line =
        "amd_iommu=force_enable,off quiet iommu=off iommu=off iommu=pt intel_iommu=off iommu.strict=off";
    assert_eq!(iommu_off_arguments(line), ["amd_iommu=force_enable,off", "iommu=off"]);
    assert!(iommu_off_arguments("iommu=soft amd_iommu=fullflush -- iommu=off").is_empty());
}

proptest! {
    #![proptest_config(crate::config(1000))]

    #[test]
    fn any_command_line_is_accepted(line in r#"([a-z_.=,"-]| |\PC){0,80}"#) {
        for desired in ALL {
            let _ = (missing_arguments(&[desired], &line), contradicting_arguments(&[desired], &line));
        }
    }

    /// With missing arguments added and contradicting ones removed, no argument of any command line is missing.
    #[test]
    fn adding_missing_arguments_helps(
        words in prop::collection::vec(prop::sample::select(vec![
            "quiet", "intel_iommu=on", "intel_iommu=off", "intel_iommu=sm_on", "iommu=pt", "iommu=nopt", "iommu=soft",
            "iommu.passthrough=0", "ib_core.netns_mode=0", "ib_core.netns_mode=1", "ib_core.netns_mode=yes",
        ]), 0..10),
        shared in any::<bool>(),
        at_the_beginning in any::<bool>(),
    ) {
        let desired = [IntelIommu, IommuPassthrough, RdmaShared(shared)];
        let line = words.join(" ");
        let (added, removed) = (missing_arguments(&desired, &line), contradicting_arguments(&desired, &line));
        let mut rest: Vec<&str> = words.into_iter().filter(|word| !removed.iter().any(|gone| gone == word)).collect();
        let at = if at_the_beginning { 0 } else { rest.len() };
        rest.splice(at..at, added.iter().map(String::as_str));
        prop_assert!(missing_arguments(&desired, &rest.join(" ")).is_empty());
        prop_assert!(contradicting_arguments(&desired, &rest.join(" ")).is_empty());
    }
}

//! Facts about the kernel, and kernel arguments.

use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::{BootLoader, KernelFacts, Step};

use super::cases;
use crate::contract::check::{ensure, expect_eq, expect_refusal};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    reports_the_kernel_command_line: NoVfs,
    reports_the_boot_id: NoVfs,
    reports_the_iommu: NoVfs,
    reports_the_rdma_mode_set_by_others: NoVfs,
    refuses_kernel_arguments_for_a_missing_boot_loader: NoVfs,
}

fn read_kernel_facts(testbed: &dyn TestBed) -> Result<KernelFacts, CaseError> {
    Ok(testbed.host().facts()?.kernel)
}

fn reports_the_kernel_command_line(testbed: &dyn TestBed) -> CaseResult {
    let observed = testbed.observer().command_line()?;
    ensure(!observed.is_empty(), "the command line is empty")?;
    expect_eq("the command line", &read_kernel_facts(testbed)?.command_line.trim(), &observed.trim())
}

fn reports_the_boot_id(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the boot ID", &read_kernel_facts(testbed)?.boot_id, &testbed.observer().boot_id()?)?;
    expect_eq(
        "the boot ID in another process",
        &testbed.new_host().facts()?.kernel.boot_id,
        &read_kernel_facts(testbed)?.boot_id,
    )
}

fn reports_the_iommu(testbed: &dyn TestBed) -> CaseResult {
    expect_eq(
        "whether an IOMMU is enabled",
        &read_kernel_facts(testbed)?.has_iommu,
        &testbed.observer().has_iommu()?,
    )
}

fn reports_the_rdma_mode_set_by_others(testbed: &dyn TestBed) -> CaseResult {
    for mode in [RdmaMode::Exclusive, RdmaMode::Shared] {
        testbed.admin().set_rdma_mode(mode)?;
        expect_eq("the RDMA mode", &read_kernel_facts(testbed)?.rdma_mode, &Some(mode))?;
    }
    Ok(())
}

fn refuses_kernel_arguments_for_a_missing_boot_loader(testbed: &dyn TestBed) -> CaseResult {
    for loader in [BootLoader::RpmOstree, BootLoader::Grubby] {
        let step =
            Step::SetKernelArguments { loader, add: vec!["contract=1".to_owned()], remove: Vec::new() };
        expect_refusal(testbed, &step, "WrongBootLoader")?;
    }
    Ok(())
}

//! What a host tells of the kernel, and how it is started.

use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::{BootLoader, KernelFacts, Step};

use super::cases;
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{ensure, refused, same};

cases! {
    tells_the_command_line: NoVfs,
    tells_the_boot: NoVfs,
    tells_the_iommu: NoVfs,
    tells_the_rdma_mode_that_others_set: NoVfs,
    refuses_arguments_for_a_boot_loader_that_is_not_there: NoVfs,
}

fn kernel(bench: &dyn Bench) -> Result<KernelFacts, Stop> {
    Ok(bench.host().facts()?.kernel)
}

fn tells_the_command_line(bench: &dyn Bench) -> Shown {
    let seen = bench.witness().command_line()?;
    ensure(!seen.is_empty(), "there are no arguments")?;
    same("the command line", &kernel(bench)?.command_line.trim(), &seen.trim())
}

fn tells_the_boot(bench: &dyn Bench) -> Shown {
    same("the boot", &kernel(bench)?.boot_id, &bench.witness().boot_id()?)?;
    same(
        "the boot, told to another process",
        &bench.new_host().facts()?.kernel.boot_id,
        &kernel(bench)?.boot_id,
    )
}

fn tells_the_iommu(bench: &dyn Bench) -> Shown {
    same("whether an IOMMU is at work", &kernel(bench)?.has_iommu, &bench.witness().has_iommu()?)
}

fn tells_the_rdma_mode_that_others_set(bench: &dyn Bench) -> Shown {
    for mode in [RdmaMode::Exclusive, RdmaMode::Shared] {
        bench.outsider().set_rdma_mode(mode)?;
        same("the RDMA mode", &kernel(bench)?.rdma_mode, &Some(mode))?;
    }
    Ok(())
}

fn refuses_arguments_for_a_boot_loader_that_is_not_there(bench: &dyn Bench) -> Shown {
    for loader in [BootLoader::RpmOstree, BootLoader::Grubby] {
        let step =
            Step::SetKernelArguments { loader, add: vec!["contract=1".to_owned()], remove: Vec::new() };
        refused(bench, &step, "NoSuchBootLoader")?;
    }
    Ok(())
}

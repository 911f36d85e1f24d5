use std::collections::BTreeMap;

use vfleet_plan::{HostFacts, KernelFacts, LinkFacts, ModuleState, PfFacts, VfFacts, modules};

use super::kernel::{Kernel, Link, Pf, Vf};

pub(super) fn facts(kernel: &Kernel) -> HostFacts {
    HostFacts {
        pfs: kernel.pfs.iter().map(pf_facts).collect(),
        records: kernel.records.values().cloned().collect(),
        kernel: KernelFacts { modules: modules(kernel), ..KernelFacts::default() },
        ..HostFacts::default()
    }
}

fn modules(kernel: &Kernel) -> BTreeMap<String, ModuleState> {
    let modules = kernel.userspace_drivers.iter().filter_map(|driver| modules::of_driver(driver));
    modules.map(|module| (module.to_owned(), ModuleState::Loaded)).collect()
}

fn pf_facts(pf: &Pf) -> PfFacts {
    PfFacts {
        address: pf.address,
        vendor: pf.vendor,
        device: pf.device,
        driver: pf.driver.clone(),
        numa_node: None,
        total_vfs: u16::try_from(pf.vf_addresses.len()).unwrap_or(u16::MAX),
        drivers_autoprobe: pf.autoprobe,
        eswitch: None,
        tc_offload: None,
        rdma: None,
        firmware: None,
        is_lone_vf: false,
        net_filter: None,
        link: pf.link.as_ref().map(link_facts),
        vfs: (0..).zip(&pf.vfs).map(|(index, vf)| vf_facts(index, vf, pf)).collect(),
    }
}

fn vf_facts(index: u16, vf: &Vf, pf: &Pf) -> VfFacts {
    VfFacts {
        index,
        address: vf.address,
        vendor: pf.vendor,
        device: pf.vf_device,
        driver: vf.driver.clone(),
        admin_mac: pf.link.as_ref().map(|_| vf.admin_mac),
        admin_guid: None,
        rdma: None,
        vdpa: None,
        representor: None,
        link: vf.link.as_ref().filter(|_| !vf.is_held_elsewhere).map(link_facts),
    }
}

fn link_facts(link: &Link) -> LinkFacts {
    LinkFacts {
        name: link.name.clone(),
        alt_names: link.alt_names.clone(),
        kind: link.kind,
        mac: Some(link.mac),
        permanent_mac: None,
        mtu: link.mtu,
        max_mtu: link.max_mtu,
        admin_up: link.up,
        speed: link.speed.filter(|_| link.up),
        switch_port: None,
        host_use: None,
    }
}

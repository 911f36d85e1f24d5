//! Disturbances: changes of a machine by others.

use std::fmt;

use proptest::prelude::*;
use vfleet_api::{Guid, MacAddr, VfRef};
use vfleet_host::SimHost;
use vfleet_host::sim::{Kernel, Refusal};
use vfleet_plan::HostUse;

/// Change of a VF, or of its PF, by others.
#[derive(Clone, Copy)]
pub(crate) struct Disturbance {
    name: &'static str,
    effect: Effect,
}

#[derive(Clone, Copy)]
enum Effect {
    OnKernel(fn(&mut Kernel, VfRef) -> Result<(), Refusal>),
    OnHost(fn(&SimHost, VfRef)),
}

const ALL: [Disturbance; 17] = [
    in_kernel("unbound", Kernel::unbind),
    in_kernel("bound to vfio-pci", |kernel, vf| {
        kernel.set_override(vf, Some("vfio-pci"))?;
        kernel.unbind(vf)?;
        kernel.probe(vf)?;
        kernel.set_override(vf, None)
    }),
    in_kernel("driver override left", |kernel, vf| kernel.set_override(vf, Some("vfio-pci"))),
    in_kernel("MAC removed", |kernel, vf| kernel.set_vf_mac(vf, MacAddr::ZERO)),
    in_kernel("MAC changed", |kernel, vf| kernel.set_vf_mac(vf, MacAddr([2, 0, 0, 0, 7, 7]))),
    in_kernel("GUID removed", |kernel, vf| kernel.set_vf_guid(vf, Guid([0; 8]))),
    in_kernel("GUID changed", |kernel, vf| kernel.set_vf_guid(vf, Guid([2, 0, 0, 0, 0, 7, 7, 7]))),
    in_kernel("vDPA device removed", Kernel::remove_vdpa),
    in_kernel("in another network namespace", |kernel, vf| kernel.set_in_other_namespace(vf, true)),
    in_kernel("VF in use", |kernel, vf| kernel.set_vf_host_use(vf, Some(HostUse::DefaultRoute))),
    in_kernel("PF in use", |kernel, vf| kernel.set_pf_host_use(vf.pf, Some(HostUse::NodeAddress))),
    in_kernel("VFs removed", |kernel, vf| kernel.set_num_vfs(vf.pf, 0)),
    in_kernel("PF down", |kernel, vf| kernel.set_link_up(vf.pf, false)),
    in_kernel("autoprobe off", |kernel, vf| kernel.set_autoprobe(vf.pf, false)),
    in_kernel("PF has another MTU", |kernel, vf| kernel.set_pf_mtu(vf.pf, 2000)),
    in_kernel("rebooted", |kernel, _| {
        kernel.reboot();
        Ok(())
    }),
    Disturbance { name: "card hangs", effect: Effect::OnHost(|host, vf| host.hang_card(vf.pf)) },
];

const fn in_kernel(name: &'static str, effect: fn(&mut Kernel, VfRef) -> Result<(), Refusal>) -> Disturbance {
    Disturbance { name, effect: Effect::OnKernel(effect) }
}

pub(crate) fn disturbance() -> impl Strategy<Value = Disturbance> {
    prop::sample::select(ALL.to_vec())
}

impl Disturbance {
    /// Applies the disturbance, unless the kernel refuses it.
    pub(crate) fn apply(self, host: &SimHost, vf: VfRef) {
        match self.effect {
            Effect::OnHost(effect) => effect(host, vf),
            Effect::OnKernel(effect) => {
                let _ = host.modify_kernel(|kernel| effect(kernel, vf));
            }
        }
    }
}

impl fmt::Debug for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

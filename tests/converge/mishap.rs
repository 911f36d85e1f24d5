//! What somebody else does to a machine.

use std::fmt;

use proptest::prelude::*;
use vfleet_api::{Guid, MacAddr, VfRef};
use vfleet_host::SimHost;
use vfleet_host::sim::{Kernel, Refusal};
use vfleet_plan::HostUse;

/// Done to a VF, or to its PF.
#[derive(Clone, Copy)]
pub(crate) struct Mishap {
    name: &'static str,
    happens: Happens,
}

#[derive(Clone, Copy)]
enum Happens {
    ToKernel(fn(&mut Kernel, VfRef) -> Result<(), Refusal>),
    ToHost(fn(&SimHost, VfRef)),
}

const ALL: [Mishap; 17] = [
    in_kernel("unbound", Kernel::unbind),
    in_kernel("bound to vfio-pci", |kernel, vf| {
        kernel.set_override(vf, Some("vfio-pci"))?;
        kernel.unbind(vf)?;
        kernel.probe(vf)?;
        kernel.set_override(vf, None)
    }),
    in_kernel("override left", |kernel, vf| kernel.set_override(vf, Some("vfio-pci"))),
    in_kernel("address taken", |kernel, vf| kernel.set_vf_mac(vf, MacAddr::ZERO)),
    in_kernel("address given", |kernel, vf| kernel.set_vf_mac(vf, MacAddr([2, 0, 0, 0, 7, 7]))),
    in_kernel("GUID taken", |kernel, vf| kernel.set_vf_guid(vf, Guid([0; 8]))),
    in_kernel("GUID given", |kernel, vf| kernel.set_vf_guid(vf, Guid([2, 0, 0, 0, 0, 7, 7, 7]))),
    in_kernel("vDPA device removed", Kernel::remove_vdpa),
    in_kernel("held elsewhere", |kernel, vf| kernel.hold_elsewhere(vf, true)),
    in_kernel("VF in use", |kernel, vf| kernel.use_vf(vf, Some(HostUse::DefaultRoute))),
    in_kernel("PF in use", |kernel, vf| kernel.use_pf(vf.pf, Some(HostUse::NodeAddress))),
    in_kernel("VFs removed", |kernel, vf| kernel.set_num_vfs(vf.pf, 0)),
    in_kernel("PF down", |kernel, vf| kernel.set_up(vf.pf, false)),
    in_kernel("autoprobe off", |kernel, vf| kernel.set_autoprobe(vf.pf, false)),
    in_kernel("PF has another MTU", |kernel, vf| kernel.set_pf_mtu(vf.pf, 2000)),
    in_kernel("rebooted", |kernel, _| {
        kernel.reboot();
        Ok(())
    }),
    Mishap { name: "card hangs", happens: Happens::ToHost(|host, vf| host.hang_card(vf.pf)) },
];

const fn in_kernel(name: &'static str, happens: fn(&mut Kernel, VfRef) -> Result<(), Refusal>) -> Mishap {
    Mishap { name, happens: Happens::ToKernel(happens) }
}

pub(crate) fn mishap() -> impl Strategy<Value = Mishap> {
    prop::sample::select(ALL.to_vec())
}

impl Mishap {
    /// What the kernel refuses did not happen.
    pub(crate) fn befall(self, host: &SimHost, vf: VfRef) {
        match self.happens {
            Happens::ToHost(happens) => happens(host, vf),
            Happens::ToKernel(happens) => {
                let _ = host.behind_its_back(|kernel| happens(kernel, vf));
            }
        }
    }
}

impl fmt::Debug for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

//! What somebody else does to a machine.

use proptest::prelude::*;
use vfleet_api::{Guid, MacAddr, VfRef};
use vfleet_host::SimHost;
use vfleet_host::sim::Kernel;
use vfleet_plan::HostUse;

/// Done to a VF, or to its PF.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    Unbound,
    BoundToVfio,
    OverrideLeft,
    AddressTaken,
    AddressGiven,
    GuidTaken,
    GuidGiven,
    VdpaRemoved,
    HeldElsewhere,
    VfInUse,
    PfInUse,
    VfsRemoved,
    PfDown,
    AutoprobeOff,
    PfMtu,
    CardHangs,
    Rebooted,
}

pub(crate) fn mishap() -> impl Strategy<Value = Mishap> {
    use Mishap::{
        AddressGiven, AddressTaken, AutoprobeOff, BoundToVfio, CardHangs, GuidGiven, GuidTaken,
        HeldElsewhere, OverrideLeft, PfDown, PfInUse, PfMtu, Rebooted, Unbound, VdpaRemoved, VfInUse,
        VfsRemoved,
    };
    prop::sample::select(vec![
        Unbound,
        BoundToVfio,
        OverrideLeft,
        AddressTaken,
        AddressGiven,
        GuidTaken,
        GuidGiven,
        VdpaRemoved,
        HeldElsewhere,
        VfInUse,
        PfInUse,
        VfsRemoved,
        PfDown,
        AutoprobeOff,
        PfMtu,
        CardHangs,
        Rebooted,
    ])
}

impl Mishap {
    /// What the kernel refuses did not happen.
    pub(crate) fn befall(self, host: &SimHost, vf: VfRef) {
        match self {
            Self::CardHangs => host.hang_card(vf.pf),
            _ => host.behind_its_back(|kernel| self.befall_kernel(kernel, vf)),
        }
    }

    fn befall_kernel(self, kernel: &mut Kernel, vf: VfRef) {
        let _ = match self {
            Self::Unbound => kernel.unbind(vf),
            Self::BoundToVfio => kernel
                .set_override(vf, Some("vfio-pci"))
                .and_then(|()| kernel.unbind(vf))
                .and_then(|()| kernel.probe(vf))
                .and_then(|()| kernel.set_override(vf, None)),
            Self::OverrideLeft => kernel.set_override(vf, Some("vfio-pci")),
            Self::AddressTaken => kernel.set_vf_mac(vf, MacAddr::ZERO),
            Self::AddressGiven => kernel.set_vf_mac(vf, MacAddr([2, 0, 0, 0, 7, 7])),
            Self::GuidTaken => kernel.set_vf_guid(vf, Guid([0; 8])),
            Self::GuidGiven => kernel.set_vf_guid(vf, Guid([2, 0, 0, 0, 0, 7, 7, 7])),
            Self::VdpaRemoved => kernel.remove_vdpa(vf),
            Self::HeldElsewhere => kernel.hold_elsewhere(vf, true),
            Self::VfInUse => kernel.use_vf(vf, Some(HostUse::DefaultRoute)),
            Self::PfInUse => kernel.use_pf(vf.pf, Some(HostUse::NodeAddress)),
            Self::VfsRemoved => kernel.set_num_vfs(vf.pf, 0),
            Self::PfDown => kernel.set_up(vf.pf, false),
            Self::AutoprobeOff => kernel.set_autoprobe(vf.pf, false),
            Self::PfMtu => kernel.set_pf_mtu(vf.pf, 2000),
            Self::Rebooted => {
                kernel.reboot();
                Ok(())
            }
            Self::CardHangs => Ok(()),
        };
    }
}

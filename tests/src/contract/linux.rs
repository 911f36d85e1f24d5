//! The bench of `LinuxHost`: the machine that this runs on. It changes the machine's network cards.

mod carrier;
mod labswitch;
mod leftovers;
mod outsider;
mod routes;
mod switch;
mod tools;
mod witness;

use std::time::Duration;

use vfleet_api::PciAddress;
use vfleet_host::{Host, HostRoot, LinuxHost};

use self::outsider::LinuxOutsider;
use self::tools::run;
use self::witness::LinuxWitness;
use super::bench::{Bench, Outsider, Shown, Stop, Witness};
use super::cases::{GIVEN_VFS, Given};
use super::coverage::Environment;
use super::seen::SeenPf;

/// Two cards of this machine.
///
/// Making and removing VFs takes seconds, so a card is made anew only when it must be: VFs that a case was given
/// are put back into the state that they were made in, and the witness decides whether that succeeded.
pub struct LinuxBench {
    pf: PciAddress,
    other_pf: PciAddress,
    host: LinuxHost,
    /// What cards looked like when they were new.
    as_new: Vec<(Given, SeenPf)>,
}

impl LinuxBench {
    /// With the first two cards that can have VFs, whatever they are used for.
    pub fn new() -> Result<Self, Stop> {
        let pfs: Vec<PciAddress> = LinuxWitness.pfs()?.into_iter().map(|pf| pf.address).collect();
        let [pf, other_pf, ..] = pfs[..] else {
            let why = format!("this machine has {} cards that can have VFs, two are needed", pfs.len());
            return Err(Stop::CannotShow(why));
        };
        // Bonding keeps a file among the interfaces.
        run("modprobe", &["--all", "vfio-pci", "bonding"])?;
        Ok(Self { pf, other_pf, host: new_host(), as_new: Vec::new() })
    }

    /// Makes a clean bench.
    pub fn begin(&mut self, given: Given) -> Shown {
        let (given, switch) = match given {
            Given::NoVfs | Given::VfsMadeDown | Given::VfsMadeUp => (given, None),
            Given::SwitchForNoVfs => (Given::NoVfs, Some("no_vfs=Y")),
            Given::StuckSwitch => (Given::NoVfs, Some("fail_mode_set=16")),
            Given::SwitchCard => (Given::VfsMadeUp, Some("need_vfs=N")),
            Given::SwitchForFreeVfs => (Given::VfsMadeUp, Some("free_vfs=Y")),
            Given::SwitchForVfs => (Given::VfsMadeUp, Some("need_vfs=Y")),
            Given::RdmaCard => return missing("no card in the lab has RDMA, vDPA or firmware settings"),
            Given::InfinibandCard => return missing("nothing in the lab emulates InfiniBand"),
            Given::LoneVf => return missing("no hypervisor gives the lab a VF without its PF"),
        };
        labswitch::unload()?;
        leftovers::clear()?;
        LinuxOutsider.settle()?;
        self.host = new_host();
        self.prepare(self.other_pf, Given::NoVfs)?;
        self.prepare(self.pf, given)?;
        if given == Given::VfsMadeUp {
            carrier::wait_for(self.pf)?;
        }
        switch.map_or(Ok(()), |rule| labswitch::load(self.pf, rule))
    }

    fn prepare(&mut self, pf: PciAddress, given: Given) -> Shown {
        if let Some(as_new) = self.as_new(pf, given)
            && LinuxOutsider.restore(as_new)?
        {
            return Ok(());
        }
        LinuxOutsider.clean(pf)?;
        if given == Given::VfsMadeUp {
            LinuxOutsider.set_up(pf, true)?;
        }
        if given != Given::NoVfs {
            LinuxOutsider.set_num_vfs(pf, GIVEN_VFS)?;
        }
        LinuxOutsider.settle()?;
        let seen = LinuxWitness.pf(pf)?;
        self.as_new.retain(|(what, as_new)| !(*what == given && as_new.address == pf));
        self.as_new.push((given, seen));
        Ok(())
    }

    fn as_new(&self, pf: PciAddress, given: Given) -> Option<&SeenPf> {
        let is_it = |(what, as_new): &&(Given, SeenPf)| *what == given && as_new.address == pf;
        self.as_new.iter().find(is_it).map(|(_, as_new)| as_new)
    }
}

fn missing(why: &str) -> Shown {
    Err(Stop::CannotShow(why.to_owned()))
}

/// What one case leaves must not protect a card from the next one.
fn new_host() -> LinuxHost {
    LinuxHost::new(HostRoot::default()).with_protection(Duration::ZERO)
}

impl Bench for LinuxBench {
    fn host(&self) -> &dyn Host {
        &self.host
    }

    fn new_host(&self) -> Box<dyn Host + '_> {
        Box::new(new_host())
    }

    fn pf(&self) -> PciAddress {
        self.pf
    }

    fn other_pf(&self) -> PciAddress {
        self.other_pf
    }

    fn witness(&self) -> &dyn Witness {
        &LinuxWitness
    }

    fn outsider(&self) -> &dyn Outsider {
        &LinuxOutsider
    }

    fn environment(&self) -> Environment {
        Environment::Kernel
    }
}

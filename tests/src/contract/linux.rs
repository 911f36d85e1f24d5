//! Test bed of `LinuxHost`: the machine on which the program runs. It changes the network cards of that machine.

mod administrator;
mod bridge_observer;
mod bridges;
mod carrier;
mod eswitch;
mod labswitch;
mod leftovers;
mod observer;
mod ovs;
mod pods;
mod routes;
mod switch_ports;
mod tools;

use std::time::Duration;

use vfleet_api::PciAddress;
use vfleet_host::attachment::AttachmentHost;
use vfleet_host::{Host, HostRoot, LinuxHost};

use self::administrator::LinuxAdministrator;
use self::observer::LinuxObserver;
use self::tools::run;
use super::cases::{CardSetup, INITIAL_VFS};
use super::coverage::Environment;
use super::observed::ObservedPf;
use super::testbed::{Administrator, CaseError, CaseResult, Observer, TestBed};

/// Test bed with two cards of this machine.
///
/// Creating and removing VFs takes seconds. VFs of the previous case are therefore restored to their initial state
/// where possible, and created anew only if the observer finds that this did not succeed.
pub struct LinuxTestBed {
    pf: PciAddress,
    other_pf: PciAddress,
    host: LinuxHost,
    /// Initial state of each card in each setup.
    initial_states: Vec<(CardSetup, ObservedPf)>,
}

impl LinuxTestBed {
    /// Creates a test bed with the first two cards that can have VFs, regardless of their use.
    pub fn new() -> Result<Self, CaseError> {
        let pfs: Vec<PciAddress> = LinuxObserver.pfs()?.into_iter().map(|pf| pf.address).collect();
        let [pf, other_pf, ..] = pfs[..] else {
            let reason = format!("this machine has {} cards that can have VFs, but 2 are needed", pfs.len());
            return Err(CaseError::Unsupported(reason));
        };
        // The bonding module adds a file to /sys/class/net, which hosts must skip.
        run("modprobe", &["--all", "vfio-pci", "bonding"])?;
        Ok(Self { pf, other_pf, host: new_host(), initial_states: Vec::new() })
    }

    /// Brings the machine into the setup of the next case.
    pub fn prepare(&mut self, setup: CardSetup) -> CaseResult {
        let (setup, eswitch_rule) = match setup {
            CardSetup::NoVfs | CardSetup::VfsCreatedDown | CardSetup::VfsCreatedUp => (setup, None),
            CardSetup::EswitchRequiresNoVfs => (CardSetup::NoVfs, Some("no_vfs=Y")),
            CardSetup::EswitchRefusesModes => (CardSetup::NoVfs, Some("fail_mode_set=16")),
            CardSetup::EswitchAnyTime => (CardSetup::VfsCreatedUp, Some("need_vfs=N")),
            CardSetup::EswitchRequiresUnboundVfs => (CardSetup::VfsCreatedUp, Some("free_vfs=Y")),
            CardSetup::EswitchRequiresVfs => (CardSetup::VfsCreatedUp, Some("need_vfs=Y")),
            CardSetup::RdmaCard => {
                return unsupported("no card in the lab has RDMA, vDPA or firmware settings");
            }
            CardSetup::InfinibandCard => return unsupported("InfiniBand is not emulated in the lab"),
            CardSetup::LoneVf => return unsupported("the lab has no lone VF"),
        };
        labswitch::unload()?;
        leftovers::clear()?;
        LinuxAdministrator.settle()?;
        self.host = new_host();
        self.prepare_pf(self.other_pf, CardSetup::NoVfs)?;
        self.prepare_pf(self.pf, setup)?;
        if setup == CardSetup::VfsCreatedUp {
            carrier::wait_for(self.pf)?;
        }
        eswitch_rule.map_or(Ok(()), |rule| labswitch::load(self.pf, rule))
    }

    fn prepare_pf(&mut self, pf: PciAddress, setup: CardSetup) -> CaseResult {
        if let Some(initial) = self.initial_state(pf, setup)
            && LinuxAdministrator.restore(initial)?
        {
            return Ok(());
        }
        LinuxAdministrator.clean(pf)?;
        if setup == CardSetup::VfsCreatedUp {
            LinuxAdministrator.set_up(pf, true)?;
        }
        if setup != CardSetup::NoVfs {
            LinuxAdministrator.set_num_vfs(pf, INITIAL_VFS)?;
        }
        LinuxAdministrator.settle()?;
        let observed = LinuxObserver.pf(pf)?;
        self.initial_states.retain(|(of, state)| !(*of == setup && state.address == pf));
        self.initial_states.push((setup, observed));
        Ok(())
    }

    fn initial_state(&self, pf: PciAddress, setup: CardSetup) -> Option<&ObservedPf> {
        let matches = |(of, state): &&(CardSetup, ObservedPf)| *of == setup && state.address == pf;
        self.initial_states.iter().find(matches).map(|(_, state)| state)
    }
}

fn unsupported(reason: &str) -> CaseResult {
    Err(CaseError::Unsupported(reason.to_owned()))
}

/// Creates a host that reads Open vSwitch, without a protection period, so that a use by one case does not protect the
/// card in the next case.
fn new_host() -> LinuxHost {
    LinuxHost::new(HostRoot::default()).with_protection(Duration::ZERO).with_ovs(true)
}

impl TestBed for LinuxTestBed {
    fn host(&self) -> &dyn Host {
        &self.host
    }

    fn attachments(&self) -> &dyn AttachmentHost {
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

    fn observer(&self) -> &dyn Observer {
        &LinuxObserver
    }

    fn admin(&self) -> &dyn Administrator {
        &LinuxAdministrator
    }

    fn environment(&self) -> Environment {
        Environment::Kernel
    }
}

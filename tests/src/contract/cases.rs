//! The contract, case by case.

mod at_once;
mod autoprobe;
mod bind;
mod discovery;
mod elsewhere;
mod eswitch;
mod external;
mod files;
mod firmware;
mod guids;
mod host_use;
mod kernel;
mod links;
mod lone_vf;
mod macs;
mod modules;
mod num_vfs;
mod outside;
mod plans;
mod records;
mod take_over;
mod vdpa;
mod watch;

use super::bench::{Bench, Shown};

/// One thing that every host does.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    /// The VFs that the card has at the beginning.
    pub given: Given,
    pub run: fn(&dyn Bench) -> Shown,
}

/// The VFs that somebody else made on a card, and nobody has touched since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Given {
    NoVfs,
    /// [`GIVEN_VFS`], made while the card was down, as it still is: their drivers could not talk to it.
    VfsMadeDown,
    /// [`GIVEN_VFS`], made while the card was up, as it still is.
    VfsMadeUp,
    /// [`GIVEN_VFS`] on a card that is up and has an embedded switch (in legacy mode), RDMA and settings in its
    /// firmware.
    SwitchCard,
    /// [`GIVEN_VFS`] on a card that is up and speaks InfiniBand.
    InfinibandCard,
    /// A VF whose PF is not on the machine, as the card.
    LoneVf,
}

impl Given {
    /// Why no such card can be had on a machine with the lab's cards.
    pub const fn is_missing_in_the_lab(self) -> Option<&'static str> {
        match self {
            Self::NoVfs | Self::VfsMadeDown | Self::VfsMadeUp => None,
            Self::SwitchCard => {
                Some("no card in the lab has PCI VFs and an embedded switch (netdevsim is no PCI device)")
            }
            Self::InfinibandCard => Some("nothing emulates InfiniBand"),
            Self::LoneVf => Some("no hypervisor gives the lab a VF without its PF"),
        }
    }
}

/// How many VFs are given.
pub const GIVEN_VFS: u16 = 3;

/// All cases.
pub fn all_cases() -> impl Iterator<Item = &'static Case> {
    let groups = [
        discovery::CASES,
        num_vfs::CASES,
        autoprobe::CASES,
        macs::CASES,
        bind::CASES,
        at_once::CASES,
        modules::CASES,
        links::CASES,
        records::CASES,
        take_over::CASES,
        files::CASES,
        kernel::CASES,
        host_use::CASES,
        watch::CASES,
        elsewhere::CASES,
        outside::CASES,
        external::CASES,
        plans::CASES,
        eswitch::CASES,
        vdpa::CASES,
        guids::CASES,
        firmware::CASES,
        lone_vf::CASES,
    ];
    groups.into_iter().flatten()
}

/// The case of this name.
pub fn find_case(name: &str) -> Option<&'static Case> {
    all_cases().find(|case| case.name == name)
}

/// A list of cases, each named as its function, with what it is given.
macro_rules! cases {
    ($($name:ident: $given:ident),* $(,)?) => {
        pub(super) const CASES: &[crate::contract::cases::Case] = &[
            $(crate::contract::cases::Case {
                name: stringify!($name),
                given: crate::contract::cases::Given::$given,
                run: $name,
            }),*
        ];
    };
}
pub(crate) use cases;

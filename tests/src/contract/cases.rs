//! The contract, case by case.

mod at_once;
mod autoprobe;
mod bind;
mod discovery;
mod elsewhere;
mod eswitch;
mod eswitch_plans;
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

/// The card that a case is given, with the VFs that somebody else made on it and nobody has touched since. In an order
/// in which few VFs are made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Given {
    NoVfs,
    /// A card that is down, without VFs, whose embedded switch changes its mode only then, as those of ice.
    SwitchForNoVfs,
    /// A card that is down, without VFs, whose embedded switch refuses to change its mode.
    StuckSwitch,
    /// [`GIVEN_VFS`], made while the card was down, as it still is: their drivers could not talk to it.
    VfsMadeDown,
    /// [`GIVEN_VFS`], made while the card was up, as it still is.
    VfsMadeUp,
    /// [`GIVEN_VFS`] on a card that is up and has an embedded switch, in legacy mode.
    SwitchCard,
    /// As [`Given::SwitchCard`], but into switchdev mode it goes only while no driver holds a VF, as mlx5 may want it.
    SwitchForFreeVfs,
    /// As [`Given::SwitchCard`], but it has a mode only while there are VFs, as mlx5 before Linux 6.0.
    SwitchForVfs,
    /// [`GIVEN_VFS`] on a card that is up and has an embedded switch (in legacy mode), RDMA, vDPA and settings in its
    /// firmware.
    RdmaCard,
    /// [`GIVEN_VFS`] on a card that is up and speaks InfiniBand.
    InfinibandCard,
    /// A VF whose PF is not on the machine, as the card.
    LoneVf,
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
        eswitch_plans::CASES,
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

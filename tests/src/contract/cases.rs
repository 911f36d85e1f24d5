//! The contract, case by case.

mod autoprobe;
mod bind;
mod discovery;
mod elsewhere;
mod links;
mod macs;
mod num_vfs;
mod plans;
mod records;
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
        links::CASES,
        records::CASES,
        watch::CASES,
        elsewhere::CASES,
        plans::CASES,
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

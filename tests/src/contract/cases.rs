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
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    /// It looks at both cards, or at what is announced: nobody else may be at work on the machine.
    pub alone: bool,
    pub run: fn(&dyn Bench) -> Shown,
}

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

/// A list of cases, each named as its function; those after `alone:` want the machine for themselves.
macro_rules! cases {
    ($($name:ident),* $(,)? $(; alone: $($lonely:ident),* $(,)?)?) => {
        pub(super) const CASES: &[crate::contract::cases::Case] = &[
            $(crate::contract::cases::Case { name: stringify!($name), alone: false, run: $name },)*
            $($(crate::contract::cases::Case { name: stringify!($lonely), alone: true, run: $lonely },)*)?
        ];
    };
}
pub(crate) use cases;

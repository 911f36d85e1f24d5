//! Cases of the contract.

mod attachments;
mod autoprobe;
mod bind;
mod bridge_plans;
mod bridge_ports;
mod bridge_watch;
mod discovery;
mod eswitch;
mod eswitch_plans;
mod externally_managed;
mod files;
mod firmware;
mod foreign_changes;
mod guids;
mod host_use;
mod kernel;
mod links;
mod linux_bridges;

mod lone_vf;
mod macs;
mod modules;
mod num_vfs;
mod other_netns;
mod ovs_bridges;
mod ovs_failures;
mod ovs_others;
mod parallel;
mod plans;
mod records;
mod switch_ports;
mod take_over;
mod vdpa;
mod watch;

use super::testbed::{CaseResult, TestBed};

/// One requirement that every host meets.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    /// State of the card when the case starts.
    pub setup: CardSetup,
    pub run: fn(&dyn TestBed) -> CaseResult,
}

/// State of the card when a case starts. VFs were created by an administrator and not changed since.
///
/// The order of the variants minimizes how often VFs must be created when cases are sorted by setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CardSetup {
    /// Link down, without VFs.
    NoVfs,
    /// Link down, without VFs. The embedded switch changes its mode only while there are no VFs, as with ice.
    EswitchRequiresNoVfs,
    /// Link down, without VFs. The embedded switch refuses every change of its mode.
    EswitchRefusesModes,
    /// [`INITIAL_VFS`] VFs, created while the link was down; it still is. The VF drivers could not reach the PF.
    VfsCreatedDown,
    /// [`INITIAL_VFS`] VFs, created while the link was up; it still is.
    VfsCreatedUp,
    /// [`INITIAL_VFS`] VFs, link up. The embedded switch is in legacy mode and changes its mode at any time.
    EswitchAnyTime,
    /// Like [`CardSetup::EswitchAnyTime`], but changes to switchdev mode only while all VFs are unbound, as mlx5 may
    /// require.
    EswitchRequiresUnboundVfs,
    /// Like [`CardSetup::EswitchAnyTime`], but has a mode only while there are VFs, as mlx5 before Linux 6.0.
    EswitchRequiresVfs,
    /// [`INITIAL_VFS`] VFs, link up. The card has an embedded switch in legacy mode, RDMA, vDPA and firmware settings.
    RdmaCard,
    /// [`INITIAL_VFS`] VFs on an InfiniBand card, link up.
    InfinibandCard,
    /// Lone VF: the PF is not visible on the machine.
    LoneVf,
}

/// Number of VFs in setups with VFs.
pub const INITIAL_VFS: u16 = 3;

/// Returns all cases.
pub fn all_cases() -> impl Iterator<Item = &'static Case> {
    let groups = [
        discovery::CASES,
        num_vfs::CASES,
        autoprobe::CASES,
        macs::CASES,
        bind::CASES,
        parallel::CASES,
        modules::CASES,
        links::CASES,
        linux_bridges::CASES,
        bridge_ports::CASES,
        ovs_bridges::CASES,
        ovs_others::CASES,
        ovs_failures::CASES,
        bridge_watch::CASES,
        records::CASES,
        take_over::CASES,
        files::CASES,
        kernel::CASES,
        host_use::CASES,
        watch::CASES,
        other_netns::CASES,
        attachments::CASES,
        switch_ports::CASES,
        foreign_changes::CASES,
        externally_managed::CASES,
        plans::CASES,
        eswitch::CASES,
        eswitch_plans::CASES,
        bridge_plans::CASES,
        vdpa::CASES,
        guids::CASES,
        firmware::CASES,
        lone_vf::CASES,
    ];
    groups.into_iter().flatten()
}

/// Returns the case with this name.
pub fn find_case(name: &str) -> Option<&'static Case> {
    all_cases().find(|case| case.name == name)
}

/// Returns whether the case with this name is about software bridges.
pub fn is_about_bridges(name: &str) -> bool {
    let groups = [
        linux_bridges::CASES,
        bridge_ports::CASES,
        ovs_bridges::CASES,
        ovs_others::CASES,
        ovs_failures::CASES,
        bridge_watch::CASES,
        bridge_plans::CASES,
    ];
    groups.into_iter().flatten().any(|case| case.name == name)
}

/// Defines the list `CASES` of a module. Each entry is the name of a function and the setup of its card.
macro_rules! cases {
    ($($name:ident: $setup:ident),* $(,)?) => {
        pub(super) const CASES: &[crate::contract::cases::Case] = &[
            $(crate::contract::cases::Case {
                name: stringify!($name),
                setup: crate::contract::cases::CardSetup::$setup,
                run: $name,
            }),*
        ];
    };
}
pub(crate) use cases;

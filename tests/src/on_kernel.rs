//! Scenarios with the real programs on a real kernel: they run in the machine of the lab, with the API server on the
//! host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

mod boot_loader;
mod bridges;
mod crashes;
mod crashing_agent;
mod external;
mod guest;
mod lab_cluster;
mod policy;
mod protection;
mod repair;
mod standalone;
mod systemd;
mod takeover;

use std::path::Path;

use fixture_lab::Vm;
use futures::future::LocalBoxFuture;

use self::lab_cluster::LabCluster;

/// Scenario on the machine of the lab. It must leave the cards without VFs.
pub struct Scenario {
    pub name: &'static str,
    play: for<'a> fn(&'a LabCluster<'a>) -> LocalBoxFuture<'a, ()>,
}

/// Programs that run in the machine.
#[derive(Clone, Copy, Debug)]
pub struct Programs {
    /// The release build of vfleet.
    pub vfleet: &'static Path,
    /// Agent that crashes at some kinds of steps.
    pub crashing_agent: &'static Path,
}

/// All scenarios. Those that reboot the machine come last, in an order that needs the fewest reboots.
pub const SCENARIOS: [Scenario; 12] = [
    Scenario {
        name: "agent::a_policy_creates_vfs_on_a_real_kernel",
        play: |lab| Box::pin(policy::creates_vfs(lab)),
    },
    Scenario {
        name: "agent::an_unbound_vf_is_bound_again_and_nothing_else_is_changed",
        play: |lab| Box::pin(repair::binds_an_unbound_vf(lab)),
    },
    Scenario {
        name: "agent::only_vfs_of_the_policy_are_configured_on_an_externally_managed_pf",
        play: |lab| Box::pin(external::configures_only_vfs_of_the_policy(lab)),
    },
    Scenario {
        name: "agent::pfs_and_vfs_that_the_node_uses_are_protected",
        play: |lab| Box::pin(protection::protects_what_the_node_uses(lab)),
    },
    Scenario {
        name: "agent::crashes_at_every_kind_of_step_do_not_change_the_result",
        play: |lab| Box::pin(crashes::at_every_kind_of_step(lab)),
    },
    Scenario {
        name: "bridges::policies_configure_bridges_of_both_kinds",
        play: |lab| Box::pin(bridges::configures_bridges(lab)),
    },
    Scenario {
        name: "bridges::crashes_at_every_kind_of_step_do_not_change_the_result",
        play: |lab| Box::pin(bridges::at_every_kind_of_step(lab)),
    },
    Scenario {
        name: "node::policies_are_applied_without_a_cluster",
        play: |lab| Box::pin(standalone::apply_show_reset(lab)),
    },
    Scenario {
        name: "agent::vfs_of_the_go_daemon_are_taken_over_and_created_again_after_a_reboot",
        play: |lab| Box::pin(takeover::survives_a_reboot(lab)),
    },
    Scenario {
        name: "agent::an_ineffective_boot_loader_causes_only_two_reboots",
        play: |lab| Box::pin(boot_loader::gives_up_after_two_reboots(lab)),
    },
    Scenario {
        name: "agent::kernel_arguments_are_set_and_take_effect_after_a_reboot",
        play: |lab| Box::pin(boot_loader::sets_kernel_arguments(lab)),
    },
    Scenario {
        name: "agent::in_systemd_mode_units_configure_the_cards_at_boot",
        play: |lab| Box::pin(systemd::units_configure_cards_at_boot(lab)),
    },
];

impl Scenario {
    /// Runs the scenario.
    ///
    /// # Panics
    /// If an expectation of the scenario is not met.
    pub async fn run(&self, vm: &Vm, programs: Programs) {
        let lab = LabCluster::start(vm, programs).await;
        (self.play)(&lab).await;
        lab.finish();
    }
}

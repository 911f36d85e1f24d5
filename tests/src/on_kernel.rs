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
mod cni;
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

use self::cni::PodNode;
use self::lab_cluster::LabCluster;

/// Scenario on the machine of the lab.
pub struct Scenario {
    pub name: &'static str,
    play: Play,
}

/// Course of a scenario.
enum Play {
    /// With a cluster whose node is the machine. It must leave the cards without VFs.
    InCluster(for<'a> fn(&'a LabCluster<'a>) -> LocalBoxFuture<'a, ()>),
    /// On the machine without a cluster. It must leave all VFs of both cards as they were.
    OnPodNode(fn(&PodNode<'_>)),
    /// The same, with a cluster whose node is the machine. No policy selects its cards.
    OnPodNodeInCluster(for<'a> fn(&'a PodNode<'a>, &'a LabCluster<'a>) -> LocalBoxFuture<'a, ()>),
}

/// Programs that run in the machine.
#[derive(Clone, Copy, Debug)]
pub struct Programs {
    /// The release build of vfleet.
    pub vfleet: &'static Path,
    /// The release build of vfleet-cni.
    pub vfleet_cni: &'static Path,
    /// Agent that crashes at some kinds of steps.
    pub crashing_agent: &'static Path,
    /// `vfleet-cni` that crashes at one moment.
    pub crashing_cni: &'static Path,
}

/// All scenarios. Those that reboot the machine come last, in an order that needs the fewest reboots.
pub const SCENARIOS: [Scenario; 24] = [
    Scenario {
        name: "agent::a_policy_creates_vfs_on_a_real_kernel",
        play: Play::InCluster(|lab| Box::pin(policy::creates_vfs(lab))),
    },
    Scenario {
        name: "agent::an_unbound_vf_is_bound_again_and_nothing_else_is_changed",
        play: Play::InCluster(|lab| Box::pin(repair::binds_an_unbound_vf(lab))),
    },
    Scenario {
        name: "agent::only_vfs_of_the_policy_are_configured_on_an_externally_managed_pf",
        play: Play::InCluster(|lab| Box::pin(external::configures_only_vfs_of_the_policy(lab))),
    },
    Scenario {
        name: "agent::pfs_and_vfs_that_the_node_uses_are_protected",
        play: Play::InCluster(|lab| Box::pin(protection::protects_what_the_node_uses(lab))),
    },
    Scenario {
        name: "agent::crashes_at_every_kind_of_step_do_not_change_the_result",
        play: Play::InCluster(|lab| Box::pin(crashes::at_every_kind_of_step(lab))),
    },
    Scenario {
        name: "bridges::policies_configure_bridges_of_both_kinds",
        play: Play::InCluster(|lab| Box::pin(bridges::configures_bridges(lab))),
    },
    Scenario {
        name: "bridges::crashes_at_every_kind_of_step_do_not_change_the_result",
        play: Play::InCluster(|lab| Box::pin(bridges::at_every_kind_of_step(lab))),
    },
    Scenario {
        name: "bridges::open_vswitch_bridges_are_resources_of_the_node",
        play: Play::InCluster(|lab| Box::pin(bridges::reports_resources(lab))),
    },
    Scenario {
        name: "node::policies_are_applied_without_a_cluster",
        play: Play::InCluster(|lab| Box::pin(standalone::apply_show_reset(lab))),
    },
    Scenario {
        name: "cni::pods_on_vfs_of_two_cards_reach_each_other_in_their_vlan",
        play: Play::OnPodNode(cni::connects_pods),
    },
    Scenario {
        name: "cni::all_options_and_chained_plugins_take_effect",
        play: Play::OnPodNode(cni::applies_all_options),
    },
    Scenario {
        name: "cni::settings_that_other_cards_support_take_effect",
        play: Play::OnPodNode(cni::applies_settings_of_other_cards),
    },
    Scenario {
        name: "cni::settings_that_are_refused_are_undone",
        play: Play::OnPodNode(cni::undoes_what_is_refused),
    },
    Scenario {
        name: "cni::vfs_of_lost_namespaces_are_restored",
        play: Play::OnPodNode(cni::survives_lost_namespaces),
    },
    Scenario {
        name: "cni::vfs_are_restored_after_a_pf_or_vf_has_changed",
        play: Play::OnPodNode(cni::survives_changes_of_the_machine),
    },
    Scenario {
        name: "cni::plugins_that_are_killed_leave_nothing",
        play: Play::OnPodNode(cni::leaves_nothing_when_killed),
    },
    Scenario {
        name: "cni::attachments_at_the_same_time_do_not_disturb_each_other",
        play: Play::OnPodNode(cni::attaches_at_the_same_time),
    },
    Scenario {
        name: "cni::vfs_of_the_go_plugin_are_respected_and_released",
        play: Play::OnPodNode(cni::works_beside_the_go_plugin),
    },
    Scenario { name: "cni::garbage_of_a_network_is_collected", play: Play::OnPodNode(cni::collects_garbage) },
    Scenario {
        name: "cni::an_agent_releases_vfs_of_pods_that_are_gone",
        play: Play::OnPodNodeInCluster(|node, lab| Box::pin(cni::agent_releases_lost_vfs(node, lab))),
    },
    Scenario {
        name: "agent::vfs_of_the_go_daemon_are_taken_over_and_created_again_after_a_reboot",
        play: Play::InCluster(|lab| Box::pin(takeover::survives_a_reboot(lab))),
    },
    Scenario {
        name: "agent::an_ineffective_boot_loader_causes_only_two_reboots",
        play: Play::InCluster(|lab| Box::pin(boot_loader::gives_up_after_two_reboots(lab))),
    },
    Scenario {
        name: "agent::kernel_arguments_are_set_and_take_effect_after_a_reboot",
        play: Play::InCluster(|lab| Box::pin(boot_loader::sets_kernel_arguments(lab))),
    },
    Scenario {
        name: "agent::in_systemd_mode_units_configure_the_cards_at_boot",
        play: Play::InCluster(|lab| Box::pin(systemd::units_configure_cards_at_boot(lab))),
    },
];

impl Scenario {
    /// Runs the scenario.
    ///
    /// # Panics
    /// If an expectation of the scenario is not met.
    pub async fn run(&self, vm: &Vm, programs: Programs) {
        match self.play {
            Play::InCluster(play) => {
                let lab = LabCluster::start(vm, programs).await;
                play(&lab).await;
                lab.finish();
            }
            Play::OnPodNode(play) => {
                let node = PodNode::start(vm, programs);
                play(&node);
                node.finish();
            }
            Play::OnPodNodeInCluster(play) => {
                let lab = LabCluster::join(vm, programs).await;
                let node = PodNode::start(vm, programs);
                play(&node, &lab).await;
                node.finish();
            }
        }
    }
}

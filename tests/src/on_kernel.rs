//! The real programs on a real kernel: they run in the lab's machine, against the API server on the host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

mod boot_loader;
mod external;
mod guest;
mod healing;
mod killed;
mod mortal;
mod policy;
mod protection;
mod records;
mod scene;
mod standalone;
mod systemd;

use std::path::Path;

use fixture_lab::Vm;
use futures::future::LocalBoxFuture;

use self::scene::Scene;

/// A story that is told on the machine. It leaves the cards without VFs.
pub struct Trial {
    /// Its name.
    pub name: &'static str,
    tell: for<'a> fn(&'a Scene<'a>) -> LocalBoxFuture<'a, ()>,
}

/// The programs of this package that run in the machine.
#[derive(Clone, Copy, Debug)]
pub struct Programs {
    /// vfleet, as it is shipped.
    pub vfleet: &'static Path,
    /// An agent that dies at some kinds of steps.
    pub mortal_agent: &'static Path,
}

/// All stories. Those that reboot the machine come last, in an order that needs the fewest reboots.
pub const TRIALS: [Trial; 10] = [
    Trial {
        name: "agent::a_policy_becomes_vfs_on_a_real_kernel",
        tell: |scene| Box::pin(policy::becomes_vfs(scene)),
    },
    Trial {
        name: "agent::a_vf_that_lost_its_driver_is_bound_again_and_nothing_else_is_touched",
        tell: |scene| Box::pin(healing::a_vf_that_lost_its_driver(scene)),
    },
    Trial {
        name: "agent::vfs_that_others_made_are_configured_and_their_neighbours_left_alone",
        tell: |scene| Box::pin(external::only_the_vfs_of_the_policy(scene)),
    },
    Trial {
        name: "agent::what_the_node_itself_uses_is_not_disturbed",
        tell: |scene| Box::pin(protection::of_what_the_node_uses(scene)),
    },
    Trial {
        name: "agent::killed_at_every_kind_of_step_it_ends_the_same",
        tell: |scene| Box::pin(killed::at_every_kind_of_step(scene)),
    },
    Trial {
        name: "node::policies_without_a_cluster",
        tell: |scene| Box::pin(standalone::apply_show_reset(scene)),
    },
    Trial {
        name: "agent::vfs_of_the_go_daemon_are_taken_over_and_a_reboot_makes_ours_again",
        tell: |scene| Box::pin(records::outlive_the_go_daemon_and_a_reboot(scene)),
    },
    Trial {
        name: "agent::a_boot_loader_that_changes_nothing_ends_in_two_reboots",
        tell: |scene| Box::pin(boot_loader::that_changes_nothing(scene)),
    },
    Trial {
        name: "agent::kernel_arguments_are_set_and_the_reboot_makes_them_count",
        tell: |scene| Box::pin(boot_loader::that_works(scene)),
    },
    Trial {
        name: "agent::in_systemd_mode_the_units_do_it_at_boot",
        tell: |scene| Box::pin(systemd::units_do_it_at_boot(scene)),
    },
];

impl Trial {
    /// Tells the story.
    ///
    /// # Panics
    /// When something is not as it should be.
    pub async fn run(&self, vm: &Vm, programs: Programs) {
        let scene = Scene::set(vm, programs).await;
        (self.tell)(&scene).await;
        scene.strike();
    }
}

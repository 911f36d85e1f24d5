//! CNI plugins on real VFs. Judges are ip(8), ping, tcpdump and files of the kernel.

mod agent;
mod changed_machine;
mod connectivity;
mod contention;
mod crashes;
mod garbage;
mod go_plugin;
mod options;
mod other_cards;
mod outcome;
mod pod_node;
mod pods;
mod refusals;

pub(super) use self::agent::agent_releases_lost_vfs;
pub(super) use self::changed_machine::{survives_changes_of_the_machine, survives_lost_namespaces};
pub(super) use self::connectivity::connects_pods;
pub(super) use self::contention::attaches_at_the_same_time;
pub(super) use self::crashes::leaves_nothing_when_killed;
pub(super) use self::garbage::collects_garbage;
pub(super) use self::go_plugin::works_beside_the_go_plugin;
pub(super) use self::options::applies_all_options;
pub(super) use self::other_cards::applies_settings_of_other_cards;
pub(super) use self::pod_node::PodNode;
pub(super) use self::refusals::undoes_what_is_refused;

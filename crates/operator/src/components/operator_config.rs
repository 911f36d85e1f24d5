//! The operator config controller: the config `default` is there, and what it wants is deployed.
//!
//! There is one thing to do, as a whole: [`settle`](settling::settle) the difference between what the config wants and
//! what was last seen. It is done again when the config, or something that is deployed, changes.

mod covers;
mod found;
mod go_webhooks;
mod settling;
mod take_over;
mod verdict;

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;
use vfleet_api::keys::OPERATOR_CONFIG;
use vfleet_cluster::queue::Work;

use crate::OperatorError;
use crate::admission::Standing;
use crate::components::go_device_plugin::Problem;
use crate::components::operator_config::found::Found;
use crate::components::operator_config::settling::{Known, Memory, settle};
use crate::components::settings::{Seen, Settings};
use crate::replica::context::Context;

/// What this depends on.
pub(crate) struct Inputs {
    pub(crate) settings: Settings,
    /// What keeps the separate device plugin from being told what it should know.
    pub(crate) plugin_problem: tokio::sync::watch::Receiver<Problem>,
    /// How admission stands.
    pub(crate) admission: tokio::sync::watch::Receiver<Standing>,
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    context: Context,
    inputs: Inputs,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let Inputs { mut settings, mut plugin_problem, mut admission } = inputs;
    let mut changes = pin!(found::changes(&context));
    let mut found = Found::default();
    let memory = Arc::new(Memory::default());
    let mut work = Work::new("operator-config", 1, Arc::clone(&context.metrics));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => {
                if found.take(change.ok_or(OperatorError::WatchEnded)?) {
                    work.touch([OPERATOR_CONFIG]);
                }
            }
            news = settings.changed() => match news {
                Ok(()) => work.touch([OPERATOR_CONFIG]),
                // Whoever follows the config has ended, and says why.
                Err(_) => break,
            },
            // When its sender is gone there is no separate device plugin, or all ends.
            Ok(()) = plugin_problem.changed() => work.touch([OPERATOR_CONFIG]),
            Ok(()) = admission.changed() => work.touch([OPERATOR_CONFIG]),
            () = work.progress() => {}
        }
        let seen = settings.borrow().clone();
        if seen == Seen::Unknown || !found.is_complete() {
            continue;
        }
        if let Some(key) = work.next_touched() {
            let known = Known {
                found: found.clone(),
                plugin_problem: plugin_problem.borrow_and_update().clone(),
                admission: admission.borrow_and_update().clone(),
            };
            work.start(key, settle(context.clone(), seen, known, Arc::clone(&memory)));
        }
    }
    // What is under way is short, and finished rather than cut.
    work.finish().await;
    Ok(())
}

//! The certificates of the webhooks, and with them the webhook configurations: the API server is told to ask when it can
//! be answered, and whom to trust before a certificate is served.
//!
//! Only the leading replica is here, and writes. There is one thing to do, as a whole, and it is done again when the
//! Secret, a configuration or the operator config changes, or when a certificate is due: one step towards what shall be,
//! which then comes back as a change.

mod followed;
pub(super) mod kept;
mod make;
mod pass;
pub(super) mod pem;
#[cfg(test)]
pub(super) mod testing;

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vfleet_cluster::queue::Work;
use vfleet_cluster::wakes::Wakes;

use self::pass::{Known, Pass, Tell};
use super::configurations::{self, Followed};
use super::index::Ready;
use super::wanted::Wanted;
use super::{PATIENCE, Standing};
use crate::OperatorError;
use crate::components::settings::{Seen, Settings};
use crate::replica::context::Context;

pub(super) use followed::{SecretSeen, Served, follow};

/// The only thing to work on.
const ALL: &str = "admission";

/// What this depends on.
#[derive(Clone)]
pub(crate) struct Inputs {
    pub(crate) settings: Settings,
    pub(crate) secret: watch::Receiver<SecretSeen>,
    /// What this replica serves.
    pub(crate) served: watch::Receiver<Option<Arc<Served>>>,
    /// What can be answered.
    pub(crate) ready: watch::Receiver<Ready>,
}

/// Looks after certificates and configurations until `stop`, and says how it stands.
pub(crate) async fn look_after_certificates(
    context: Context,
    mut inputs: Inputs,
    standing: watch::Sender<Standing>,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let mut changes = pin!(configurations::changes(&context));
    let mut followed = Followed::default();
    let mut work = Work::new(ALL, 1, Arc::clone(&context.metrics));
    let mut wakes = Wakes::default();
    let (set_alarm, mut alarm) = watch::channel(None);
    let tell = Arc::new(Tell { standing, set_alarm });
    let start = Instant::now();
    // Also when nothing of it can ever be read.
    work.touch([ALL]);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => {
                if followed.take(change.ok_or(OperatorError::WatchEnded)?) {
                    work.touch([ALL]);
                }
            }
            news = inputs.settings.changed() => match news {
                Ok(()) => work.touch([ALL]),
                // Whoever follows the config has ended, and says why.
                Err(_) => break,
            },
            news = inputs.secret.changed() => match news {
                Ok(()) => work.touch([ALL]),
                Err(_) => break,
            },
            Ok(()) = inputs.served.changed() => work.touch([ALL]),
            Ok(()) = inputs.ready.changed() => work.touch([ALL]),
            Ok(()) = alarm.changed() => wakes.set(&ALL, *alarm.borrow_and_update()),
            _ = wakes.next() => work.touch([ALL]),
            () = work.progress() => {}
        }
        // What is wanted must be known; all else may be missing for good, and somebody is told so.
        let settings = inputs.settings.borrow().clone();
        if settings == Seen::Unknown {
            continue;
        }
        if let Some(key) = work.next_touched() {
            let known = Known {
                wanted: Wanted::of(&settings),
                // Before what is served: that changes first.
                secret: inputs.secret.borrow_and_update().clone(),
                served: inputs.served.borrow_and_update().clone(),
                found: followed.found(),
                ready: *inputs.ready.borrow_and_update(),
                is_overdue: start.elapsed() >= PATIENCE,
                ready_for: context.health.ready_for(),
            };
            work.start(key, Pass::new(context.clone(), known).settle(Arc::clone(&tell)));
        }
    }
    work.finish().await;
    Ok(())
}

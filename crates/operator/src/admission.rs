//! Admission: objects are checked, and added to, before the API server stores them. What is said of them is decided in
//! `vfleet_plan::admission`; here are the server that is asked, what it knows of the cluster, and its certificates.
//!
//! Every replica serves, whether it leads or not. The one that leads looks after certificates and configurations.

mod answer;
mod catch_up;
mod certificates;
mod config;
mod configurations;
pub mod fuzzing;
mod index;
mod pods;
mod review;
mod server;
mod subject;
mod tls;
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use vfleet_api::meta::Timestamp;

use self::answer::Answering;
use self::certificates::SecretSeen;
use self::index::{Index, Ready};
use self::tls::Resolver;
use self::wanted::Wanted;
use crate::components::settings::{Seen, Settings};
use crate::replica::context::Context;
use crate::{OperatorError, stopped_by};

pub(crate) use certificates::{Inputs, look_after_certificates};
pub use config::{BadAuthority, BadUrl, CertificateSource, WebhookConfig, WebhookUrl, authority};

/// So long something that comes by itself is waited for; then it is done without, or somebody is told.
const PATIENCE: Duration = Duration::from_mins(1);

/// How admission stands, for the condition `Admission` of the operator config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody has looked yet: what was said before still counts.
    Unknown,
    /// Nobody wants it.
    Disabled,
    /// Something is still missing that comes by itself.
    Starting,
    /// The API server asks, and is answered.
    Serving {
        /// When the certificate ends, where that is known.
        until: Option<Timestamp>,
        /// Somebody has to provide another one soon.
        ends_soon: bool,
    },
    /// It does not work until somebody does something.
    Trouble {
        /// Why, in one `PascalCase` word.
        reason: &'static str,
        /// Why, and what to do.
        message: String,
    },
}

/// Starts what every replica does for admission, as `tasks`; gives what the leading one needs besides.
pub(crate) async fn start(
    context: &Context,
    settings: Settings,
    tasks: &mut JoinSet<Result<(), OperatorError>>,
    stop: &CancellationToken,
) -> Result<Inputs, OperatorError> {
    let resolver = Resolver::default();
    let (publish, secret) = watch::channel(SecretSeen::Unknown);
    let (serve, served) = watch::channel(None);
    let (is_ready, ready) = watch::channel(Ready::default());
    let listener = context.config.webhook.at.listen().await;
    if let Some(listener) = listener.map_err(|source| OperatorError::Bind { what: "webhooks", source })? {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(what = "webhooks", %address, "serving");
        }
        let index = Arc::new(Index::default());
        let follow = index::follow(context.clone(), settings.clone(), Arc::clone(&index), is_ready);
        tasks.spawn(stopped_by(stop.clone(), follow));
        let answers = Arc::new(Answering::new(context.clone(), index, settings.clone()));
        let (context, resolver, stop) = (context.clone(), resolver.clone(), stop.clone());
        tasks.spawn(async move { server::serve(&context, listener, answers, resolver, &stop).await });
    }
    let follow = certificates::follow(context.clone(), resolver, publish, serve);
    tasks.spawn(stopped_by(stop.clone(), follow));
    let inputs = Inputs { settings, secret, served, ready };
    if !context.config.webhook.at.is_nowhere() {
        let tell = tell_health(context.clone(), inputs.clone());
        tasks.spawn(stopped_by(stop.clone(), tell));
    }
    Ok(inputs)
}

/// A replica is asked nothing as long as it could not answer. What it is to know of the cluster it does without after a
/// while, but not a certificate.
async fn tell_health(context: Context, mut inputs: Inputs) -> Result<(), OperatorError> {
    let end_of_patience = Instant::now() + PATIENCE;
    let mut was_ready = false;
    loop {
        let settings = inputs.settings.borrow_and_update().clone();
        let is_served = inputs.served.borrow_and_update().is_some();
        let ready = *inputs.ready.borrow_and_update();
        let is_over = Instant::now() >= end_of_patience;
        // What is switched on later is not asked about before it can be answered; all else is.
        let ready = if was_ready { Ready::ALL } else { ready };
        let missing = missing(&settings, is_served, ready, is_over);
        was_ready |= missing.is_none();
        context.health.waits_for(missing);
        tokio::select! {
            Ok(()) = inputs.settings.changed() => {}
            Ok(()) = inputs.served.changed() => {}
            Ok(()) = inputs.ready.changed() => {}
            () = sleep_until(end_of_patience), if !is_over => {}
            // Whoever told us has ended, and says why.
            else => return std::future::pending().await,
        }
    }
}

/// What is missing to be asked; `is_over` when that was waited for long enough.
fn missing(settings: &Seen, is_served: bool, ready: Ready, is_over: bool) -> Option<&'static str> {
    let wanted = Wanted::of(settings);
    match settings {
        // Nobody knows what is wanted; the other controllers say what is wrong.
        Seen::Unknown if is_over => None,
        Seen::Unknown => Some("the operator config has not been read yet"),
        _ if wanted.is_nothing() => None,
        _ if !is_served => Some(
            "there is no certificate to serve webhooks with: condition Admission of the operator config says why",
        ),
        _ if !ready.is_for(wanted) => Some("what webhooks have to know of the cluster is still being read"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_without_a_certificate_is_never_ready_while_one_is_wanted() {
        let [on, off] = [true, false].map(|is_on| wanted::testing::config(is_on, false));
        let ready = Ready { webhook: true, injector: false };
        assert_eq!(missing(&on, true, ready, false), None);
        for is_over in [false, true] {
            assert!(missing(&on, false, ready, is_over).unwrap().contains("certificate"));
            assert!(missing(&on, true, Ready::default(), is_over).unwrap().contains("cluster"));
            assert_eq!(missing(&off, false, Ready::default(), is_over), None);
        }
        assert!(missing(&Seen::Unknown, false, Ready::default(), false).is_some());
        assert_eq!(missing(&Seen::Unknown, false, Ready::default(), true), None);
    }
}

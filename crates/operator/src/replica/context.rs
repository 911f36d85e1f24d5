//! What every controller needs: the client, the settings of the program, and the right to write.

use std::fmt::Debug;
use std::sync::Arc;

use kube::Client;
use kube::core::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vfleet_api::conditions::Verdict;
use vfleet_cluster::events::Announcer;
use vfleet_cluster::leadership::Leadership;
use vfleet_cluster::status::{self, Subject};
use vfleet_cluster::write::{WriteError, Writer};

use crate::Config;
use crate::replica::health::Health;
use crate::replica::metrics::Metrics;

/// Shared by all controllers of one process.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) config: Arc<Config>,
    /// Whether this process may write now.
    pub(crate) leadership: Leadership,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    /// Writes Events.
    pub(crate) announcer: Announcer,
}

impl Context {
    /// Writes the status of an object and announces what changed: see [`status::report`].
    pub(crate) async fn report<K>(
        &self,
        subject: &Subject<'_, K>,
        verdicts: &[Verdict],
        rest: Value,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let writer = Writer::new(self.leadership.clone());
        status::report(&writer, &self.announcer, subject, verdicts, rest).await
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::time::Duration;

    use super::*;

    /// Of an operator that serves nothing and does not lead.
    pub(crate) fn context(client: Client, namespace: &str, identity: &str) -> Context {
        let config = Config {
            namespace: namespace.to_owned(),
            identity: identity.to_owned(),
            resource_prefix: "openshift.io".to_owned(),
            stale_state_after: Duration::ZERO,
            metrics: "0".parse().unwrap(),
            health: "0".parse().unwrap(),
            webhook: crate::WebhookConfig {
                at: "0".parse().unwrap(),
                url: None,
                certificates: crate::CertificateSource::default(),
                lifetime: Duration::from_hours(1),
                only_tls13: false,
            },
            deploy: crate::DeployConfig::default(),
        };
        Context {
            announcer: Announcer::new(client.clone(), identity),
            client,
            config: Arc::new(config),
            leadership: Leadership::none(),
            metrics: Arc::new(Metrics::new()),
            health: Arc::default(),
        }
    }
}

//! Context of all controllers: client, settings of the process, and the permission to write.

use std::fmt::Debug;
use std::sync::Arc;

use kube::Client;
use kube::core::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vfleet_api::conditions::ConditionUpdate;
use vfleet_cluster::events::EventRecorder;
use vfleet_cluster::leadership::Leadership;
use vfleet_cluster::status::{self, StatusSubject};
use vfleet_cluster::write::{WriteError, Writer};

use crate::Config;
use crate::replica::health::Health;
use crate::replica::metrics::Metrics;

/// Values that all controllers of a process share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) config: Arc<Config>,
    /// Permission to write.
    pub(crate) leadership: Leadership,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) event_recorder: EventRecorder,
}

impl Context {
    /// Writes the status of an object and records Events; see [`status::report`].
    pub(crate) async fn report<K>(
        &self,
        subject: &StatusSubject<'_, K>,
        conditions: &[ConditionUpdate],
        rest: Value,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let writer = Writer::new(self.leadership.clone());
        status::report(&writer, &self.event_recorder, subject, conditions, rest).await
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::time::Duration;

    use super::*;

    /// Returns the context of an operator that serves nothing and does not lead.
    pub(crate) fn context(client: Client, namespace: &str, identity: &str) -> Context {
        let config = Config {
            namespace: namespace.to_owned(),
            identity: identity.to_owned(),
            resource_prefix: "openshift.io".to_owned(),
            stale_state_after: Duration::ZERO,
            metrics: "0".parse().unwrap(),
            health: "0".parse().unwrap(),
            webhook: crate::WebhookConfig {
                bind_address: "0".parse().unwrap(),
                url: None,
                certificates: crate::CertificateSource::default(),
                lifetime: Duration::from_hours(1),
                only_tls13: false,
            },
            deploy: crate::DeployConfig::default(),
        };
        Context {
            event_recorder: EventRecorder::new(client.clone(), identity),
            client,
            config: Arc::new(config),
            leadership: Leadership::not_held(),
            metrics: Arc::new(Metrics::new()),
            health: Arc::default(),
        }
    }
}

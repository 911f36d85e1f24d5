//! The operator config `default`, for all who need it.

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Resource};
use tokio::sync::watch;
use vfleet_api::SriovOperatorConfig;
use vfleet_api::keys::OPERATOR_CONFIG;
use vfleet_cluster::watch::{Sight, Single, changes, only, publish, readable};

use crate::OperatorError;
use crate::replica::context::Context;

/// The operator config as last seen.
pub(crate) type Settings = watch::Receiver<Seen>;

/// What is known about the operator config.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Seen {
    /// Not looked for yet.
    #[default]
    Unknown,
    /// There is none.
    Missing,
    /// This one.
    Config(Box<SriovOperatorConfig>),
}

impl Seen {
    pub(crate) fn config(&self) -> Option<&SriovOperatorConfig> {
        match self {
            Self::Config(config) => Some(config),
            Self::Unknown | Self::Missing => None,
        }
    }
}

/// The operator config as the owner of what is made for it: that goes when the config goes. It does not block the
/// config's deletion, for which some clusters (OpenShift) ask for one more right.
pub(crate) fn owner_reference(config: &SriovOperatorConfig) -> Option<OwnerReference> {
    let owner = config.controller_owner_ref(&())?;
    Some(OwnerReference { block_owner_deletion: None, ..owner })
}

/// Follows the operator config and publishes it to `settings`.
pub(crate) async fn follow(context: Context, settings: watch::Sender<Seen>) -> Result<(), OperatorError> {
    let api = Api::namespaced(context.client.clone(), &context.config.namespace);
    let mut changes = std::pin::pin!(changes::<SriovOperatorConfig>(api, only(OPERATOR_CONFIG)));
    let mut config = Single::default();
    while let Some(event) = changes.next().await {
        match config.take(event) {
            Sight::Nothing => {}
            Sight::Gone => publish(&settings, Seen::Missing),
            // When it cannot be read its last state counts.
            Sight::There(config) => {
                if let Some(config) = readable(*config) {
                    publish(&settings, Seen::Config(Box::new(config)));
                }
            }
        }
    }
    Err(OperatorError::WatchEnded)
}

//! Watch of the operator config `default`, shared by all controllers.

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Resource};
use tokio::sync::watch;
use vfleet_api::SriovOperatorConfig;
use vfleet_api::keys::OPERATOR_CONFIG;
use vfleet_cluster::watch::{
    SingleObject, SingleObjectState, into_readable, publish_if_changed, select_name, watch_objects,
};

use crate::OperatorError;
use crate::replica::context::Context;

/// Receiver of the operator config.
pub(crate) type OperatorConfigReceiver = watch::Receiver<OperatorConfigState>;

/// State of the operator config.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum OperatorConfigState {
    /// Not read yet.
    #[default]
    Unknown,
    /// It does not exist.
    Missing,
    /// It exists; the last readable version.
    Config(Box<SriovOperatorConfig>),
}

impl OperatorConfigState {
    /// Returns the operator config, if it exists.
    pub(crate) fn existing(&self) -> Option<&SriovOperatorConfig> {
        match self {
            Self::Config(config) => Some(config),
            Self::Unknown | Self::Missing => None,
        }
    }
}

/// Returns an owner reference to the operator config, so that its objects are deleted with it. The reference does not
/// block the deletion of the config, for which OpenShift requires an additional permission.
pub(crate) fn owner_reference(config: &SriovOperatorConfig) -> Option<OwnerReference> {
    let owner = config.controller_owner_ref(&())?;
    Some(OwnerReference { block_owner_deletion: None, ..owner })
}

/// Watches the operator config and publishes it to `settings`.
pub(crate) async fn watch_config(
    context: Context,
    settings: watch::Sender<OperatorConfigState>,
) -> Result<(), OperatorError> {
    let api = Api::namespaced(context.client.clone(), &context.config.namespace);
    let mut events = std::pin::pin!(watch_objects::<SriovOperatorConfig>(api, select_name(OPERATOR_CONFIG)));
    let mut config = SingleObject::default();
    while let Some(event) = events.next().await {
        match config.update(event) {
            SingleObjectState::Listing => {}
            SingleObjectState::Absent => publish_if_changed(&settings, OperatorConfigState::Missing),
            // An unreadable version is ignored: the last one stays in effect.
            SingleObjectState::Present(config) => {
                if let Some(config) = into_readable(*config) {
                    publish_if_changed(&settings, OperatorConfigState::Config(Box::new(config)));
                }
            }
        }
    }
    Err(OperatorError::WatchEnded)
}

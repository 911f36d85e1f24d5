//! ConfigMap of the separate device plugin, with one key for each node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{ObjectMeta, Patch};
use serde_json::json;
use vfleet_api::keys::DEVICE_PLUGIN_CONFIG_MAP;
use vfleet_cluster::write::{WriteError, Writer};

/// Maximum size of a ConfigMap.
const MAX_SIZE: usize = 1024 * 1024;

/// Change of the ConfigMap.
pub(super) enum ConfigMapChange {
    None,
    Write(ConfigMapWrite),
    /// The API server would reject the new content; with problem and remedy.
    TooLarge(String),
}

/// Write of a new content.
pub(super) struct ConfigMapWrite {
    data: BTreeMap<String, String>,
    /// Resource version that is replaced; `None` to create the ConfigMap.
    version: Option<String>,
}

/// Compares the `current` ConfigMap with the `desired` content.
pub(super) fn plan_config_map(
    current: Option<&ConfigMap>,
    desired: BTreeMap<String, String>,
) -> ConfigMapChange {
    let size: usize = desired.iter().map(|(node, config)| node.len() + config.len()).sum();
    if size > MAX_SIZE {
        return ConfigMapChange::TooLarge(format!(
            "ConfigMap {DEVICE_PLUGIN_CONFIG_MAP} for {} nodes would have {size} bytes, but the maximum is {MAX_SIZE}: the \
             separate device plugin does not get changes of resources any more; combine the VFs of several policies in \
             one resource, or let policies select fewer nodes",
            desired.len(),
        ));
    }
    match current {
        Some(current) if current.data.as_ref().is_some_and(|data| *data == desired) => ConfigMapChange::None,
        Some(current) if current.data.is_none() && desired.is_empty() => ConfigMapChange::None,
        current => ConfigMapChange::Write(ConfigMapWrite {
            data: desired,
            version: current.and_then(|current| current.metadata.resource_version.clone()),
        }),
    }
}

impl ConfigMapWrite {
    pub(super) async fn execute(
        self,
        writer: &Writer,
        api: &Api<ConfigMap>,
        owner: Option<OwnerReference>,
    ) -> Result<(), WriteError> {
        let Some(version) = self.version else {
            let metadata = ObjectMeta {
                name: Some(DEVICE_PLUGIN_CONFIG_MAP.to_owned()),
                owner_references: owner.map(|owner| vec![owner]),
                ..Default::default()
            };
            writer.create(api, &ConfigMap { metadata, data: Some(self.data), ..Default::default() }).await?;
            return Ok(());
        };
        // Replaces all keys, also those of the Go operator, which server-side apply would keep. Setting the resource
        // version fails with a conflict if the object has changed; a `test` operation would fail as an invalid patch.
        let patch: json_patch::Patch = serde_json::from_value(json!([
            { "op": "replace", "path": "/metadata/resourceVersion", "value": version },
            { "op": "add", "path": "/data", "value": self.data },
        ]))
        .map_err(kube::Error::SerdeError)?;
        writer.patch(api, DEVICE_PLUGIN_CONFIG_MAP, &Patch::Json::<()>(patch)).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(size: usize) -> BTreeMap<String, String> {
        [("node".to_owned(), "x".repeat(size))].into()
    }

    #[test]
    fn a_config_map_that_would_be_too_large_is_reported_and_not_written() {
        assert!(matches!(plan_config_map(None, data(MAX_SIZE - 4)), ConfigMapChange::Write(_)));
        let ConfigMapChange::TooLarge(text) = plan_config_map(None, data(MAX_SIZE)) else {
            panic!("expected TooLarge")
        };
        assert!(text.contains("1048580 bytes") && text.contains("select fewer nodes"), "{text}");
    }

    #[test]
    fn the_same_content_is_not_written_again() {
        let current = ConfigMap { data: Some(data(3)), ..Default::default() };
        assert!(matches!(plan_config_map(Some(&current), data(3)), ConfigMapChange::None));
        assert!(matches!(plan_config_map(Some(&current), data(4)), ConfigMapChange::Write(_)));
        assert!(matches!(
            plan_config_map(Some(&ConfigMap::default()), BTreeMap::new()),
            ConfigMapChange::None
        ));
    }
}

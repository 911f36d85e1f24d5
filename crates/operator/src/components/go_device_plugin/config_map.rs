//! The one ConfigMap of the separate device plugin: one key for each node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{ObjectMeta, Patch};
use serde_json::json;
use vfleet_api::keys::DEVICE_PLUGIN_CONFIG_MAP;
use vfleet_cluster::write::{WriteError, Writer};

/// The API server takes no more in a ConfigMap.
const LARGEST: usize = 1024 * 1024;

/// What is to become of the ConfigMap.
pub(super) enum Change {
    Nothing,
    Write(Write),
    /// It would be refused; the text says why and what to do.
    TooLarge(String),
}

/// A new content.
pub(super) struct Write {
    data: BTreeMap<String, String>,
    /// The version that it replaces; `None`: there is none yet.
    version: Option<String>,
}

/// What is to become of it, when it is `found` so and shall be `wanted` so.
pub(super) fn change(found: Option<&ConfigMap>, wanted: BTreeMap<String, String>) -> Change {
    let size: usize = wanted.iter().map(|(node, config)| node.len() + config.len()).sum();
    if size > LARGEST {
        return Change::TooLarge(format!(
            "the ConfigMap {DEVICE_PLUGIN_CONFIG_MAP} for {} nodes would have {size} bytes, and a ConfigMap takes {LARGEST}: \
             nodes are configured, but the separate device plugin is not told of changes any more; put the VFs of several \
             policies into one resource, or let policies select fewer nodes",
            wanted.len(),
        ));
    }
    match found {
        Some(found) if found.data.as_ref().is_some_and(|data| *data == wanted) => Change::Nothing,
        Some(found) if found.data.is_none() && wanted.is_empty() => Change::Nothing,
        found => Change::Write(Write {
            data: wanted,
            version: found.and_then(|found| found.metadata.resource_version.clone()),
        }),
    }
}

impl Write {
    pub(super) async fn carry_out(
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
        // All of it is ours, also keys that the Go operator wrote: server-side apply would leave those. To put the
        // version in that we saw is a conflict when there is another one; to test for it would be an invalid patch.
        let whole: json_patch::Patch = serde_json::from_value(json!([
            { "op": "replace", "path": "/metadata/resourceVersion", "value": version },
            { "op": "add", "path": "/data", "value": self.data },
        ]))
        .map_err(kube::Error::SerdeError)?;
        writer.patch(api, DEVICE_PLUGIN_CONFIG_MAP, &Patch::Json::<()>(whole)).await?;
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
    fn a_config_map_that_would_be_refused_is_not_written_and_says_so() {
        assert!(matches!(change(None, data(LARGEST - 4)), Change::Write(_)));
        let Change::TooLarge(text) = change(None, data(LARGEST)) else { panic!("it is too large") };
        assert!(text.contains("1048580 bytes") && text.contains("select fewer nodes"), "{text}");
    }

    #[test]
    fn the_same_content_is_not_written_again() {
        let found = ConfigMap { data: Some(data(3)), ..Default::default() };
        assert!(matches!(change(Some(&found), data(3)), Change::Nothing));
        assert!(matches!(change(Some(&found), data(4)), Change::Write(_)));
        assert!(matches!(change(Some(&ConfigMap::default()), BTreeMap::new()), Change::Nothing));
    }
}

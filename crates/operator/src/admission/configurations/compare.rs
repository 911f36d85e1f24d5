//! Comparison of webhooks. Every foreign change counts, because it changes the requests that the API server sends.

use serde_json::{Value, json};

/// Returns whether both lists have the same webhooks in any order. `caBundle` is ignored where none is desired.
pub(super) fn are_equal(observed: &[Value], desired: &[Value]) -> bool {
    let is_observed = |desired| find_by_name(observed, desired).is_some_and(|found| is_equal(found, desired));
    observed.len() == desired.len() && desired.iter().all(is_observed)
}

/// Returns whether all desired fields are observed. Fields of a newer API version are ignored.
fn is_equal(observed: &Value, desired: &Value) -> bool {
    let mut client = observed["clientConfig"].clone();
    if let (Some(client), None) = (client.as_object_mut(), bundle(desired)) {
        client.remove("caBundle");
    }
    desired.as_object().into_iter().flatten().all(|(key, value)| match key.as_str() {
        "clientConfig" => client == *value,
        key => observed[key] == *value,
    })
}

/// Returns the desired webhooks, with the observed `caBundle` where none is desired.
pub(super) fn keep_bundles(observed: &[Value], mut desired: Vec<Value>) -> Vec<Value> {
    for webhook in &mut desired {
        let found = find_by_name(observed, webhook).and_then(bundle);
        if let (None, Some(found)) = (bundle(webhook), found) {
            webhook["clientConfig"]["caBundle"] = json!(found);
        }
    }
    desired
}

fn bundle(webhook: &Value) -> Option<&str> {
    webhook["clientConfig"]["caBundle"].as_str()
}

fn find_by_name<'a>(webhooks: &'a [Value], like: &Value) -> Option<&'a Value> {
    webhooks.iter().find(|webhook| webhook["name"] == like["name"])
}

#[cfg(test)]
mod tests {
    use super::super::ConfigurationKind;
    use super::super::webhooks::WebhookSettings;
    use super::*;

    fn desired(bundle: Option<&str>) -> Vec<Value> {
        let settings = WebhookSettings {
            namespace: "home",
            url: None,
            bundle,
            is_reachable: true,
            injector_required: false,
        };
        settings.webhooks(ConfigurationKind::Validating)
    }

    #[test]
    fn every_foreign_change_is_found() {
        let changes: [fn(&mut Vec<Value>); 9] = [
            |all| drop(all.pop()),
            |all| {
                let mut more = all[0].clone();
                more["name"] = json!("another.one");
                all.push(more);
            },
            |all| all[0]["rules"][0]["resources"].as_array_mut().unwrap().push(json!("pods")),
            |all| {
                let rule = all[0]["rules"][0].clone();
                all[0]["rules"].as_array_mut().unwrap().push(rule);
            },
            |all| {
                let more = json!({ "name": "never", "expression": "false" });
                all[0]["matchConditions"].as_array_mut().unwrap().push(more);
            },
            |all| all[0]["namespaceSelector"]["matchLabels"] = json!({ "a": "b" }),
            |all| all[1]["objectSelector"] = json!({ "matchLabels": { "a": "b" } }),
            |all| all[1]["timeoutSeconds"] = json!(30),
            |all| all[2]["clientConfig"]["caBundle"] = json!("b3RoZXI="),
        ];
        let desired = desired(Some("pem"));
        assert!(are_equal(&desired, &desired));
        for (index, change) in changes.into_iter().enumerate() {
            let mut observed = desired.clone();
            change(&mut observed);
            assert!(!are_equal(&observed, &desired), "change {index}");
        }
    }

    #[test]
    fn the_order_and_fields_of_a_newer_api_version_do_not_count() {
        let desired = desired(Some("pem"));
        let mut observed = desired.clone();
        observed.reverse();
        observed[0]["newField"] = json!(true);
        assert!(are_equal(&observed, &desired));
    }

    #[test]
    fn a_foreign_bundle_is_kept_if_none_is_desired() {
        let mut observed = desired(Some("theirs"));
        assert!(are_equal(&observed, &desired(None)));
        observed[0]["timeoutSeconds"] = json!(30);
        assert_eq!(keep_bundles(&observed, desired(None)), desired(Some("theirs")));
        assert_eq!(keep_bundles(&observed, desired(Some("ours"))), desired(Some("ours")));
    }
}

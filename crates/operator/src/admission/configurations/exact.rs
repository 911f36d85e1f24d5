//! Whether webhooks are what they shall be, no more and no less: whatever somebody adds to a rule, a selector or a
//! condition changes what the API server asks about.

use serde_json::{Value, json};

/// Whether these are all there, in whatever order, and nothing else. What is not said about whom to trust is not looked at.
pub(super) fn is(found: &[Value], wanted: &[Value]) -> bool {
    found.len() == wanted.len()
        && wanted.iter().all(|wanted| named(found, wanted).is_some_and(|found| is_one(found, wanted)))
}

/// A field that we do not know of, from an API server of tomorrow, is not ours to judge.
fn is_one(found: &Value, wanted: &Value) -> bool {
    let fields = wanted.as_object().into_iter().flatten();
    let mut client = found["clientConfig"].clone();
    if let (Some(client), None) = (client.as_object_mut(), bundle(wanted)) {
        client.remove("caBundle");
    }
    fields.into_iter().all(|(key, value)| match key.as_str() {
        "clientConfig" => client == *value,
        key => found[key] == *value,
    })
}

/// The wanted ones. Where they do not say whom to trust, it is as found.
pub(super) fn with_bundles_of(found: &[Value], wanted: Vec<Value>) -> Vec<Value> {
    let with_bundle = |mut webhook: Value| {
        let there = named(found, &webhook).and_then(bundle);
        if let (None, Some(there)) = (bundle(&webhook), there) {
            webhook["clientConfig"]["caBundle"] = json!(there);
        }
        webhook
    };
    wanted.into_iter().map(with_bundle).collect()
}

fn bundle(webhook: &Value) -> Option<&str> {
    webhook["clientConfig"]["caBundle"].as_str()
}

fn named<'a>(webhooks: &'a [Value], like: &Value) -> Option<&'a Value> {
    webhooks.iter().find(|webhook| webhook["name"] == like["name"])
}

#[cfg(test)]
mod tests {
    use super::super::text::Frame;
    use super::*;

    fn wanted(bundle: Option<&str>) -> Vec<Value> {
        let frame = Frame { namespace: "home", url: None, bundle, is_answered: true, pods_need_us: false };
        frame.validating().iter().map(|webhook| json!(webhook)).collect()
    }

    #[test]
    fn whatever_somebody_adds_or_takes_away_is_seen() {
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
        let wanted = wanted(Some("pem"));
        assert!(is(&wanted, &wanted));
        for (at, change) in changes.into_iter().enumerate() {
            let mut found = wanted.clone();
            change(&mut found);
            assert!(!is(&found, &wanted), "change {at}");
        }
    }

    #[test]
    fn neither_an_order_nor_a_field_of_tomorrow_counts() {
        let wanted = wanted(Some("pem"));
        let mut found = wanted.clone();
        found.reverse();
        found[0]["tomorrow"] = json!(true);
        assert!(is(&found, &wanted));
    }

    #[test]
    fn whom_to_trust_is_left_to_others_where_nothing_is_said_of_it() {
        let mut found = wanted(Some("theirs"));
        assert!(is(&found, &wanted(None)));
        found[0]["timeoutSeconds"] = json!(30);
        let right = with_bundles_of(&found, wanted(None));
        assert_eq!(right, wanted(Some("theirs")));
        assert_eq!(with_bundles_of(&found, wanted(Some("ours"))), wanted(Some("ours")));
    }
}

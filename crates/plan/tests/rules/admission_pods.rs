//! Properties of resource injection: no annotation causes a panic, and a pod gets the resources that it names.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use vfleet_plan::admission::{
    Injection, NadAnnotations, NamedNetwork, NetworkAnnotationError, NetworkRef, inject_resources,
    read_pod_networks,
};

const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

fn pod_with_networks(text: &str) -> Value {
    json!({ "metadata": { "annotations": { NETWORKS: text } } })
}

fn networks(pod: &Value, namespace: &str) -> Result<Vec<NetworkRef>, NetworkAnnotationError> {
    Ok(read_pod_networks(pod, namespace)?.into_iter().map(|named| named.network).collect())
}

/// Texts that are almost valid annotations.
fn nearly_networks() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "ns",
        "/",
        "@",
        ",",
        " ",
        "net-1",
        "[",
        "]",
        "{",
        "}",
        "\"name\"",
        ":",
        "\"a\"",
        "\"namespace\"",
        "\\",
        "\n",
        "ä",
        "{\"name\":\"a\"}",
        "-",
        ".",
    ]);
    prop_oneof![prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat()), ".*"]
}

fn any_name() -> impl Strategy<Value = String> {
    "[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?"
}

/// Optional namespace, name and optional interface of a network.
fn any_network() -> impl Strategy<Value = (Option<String>, String, Option<String>)> {
    (prop::option::of(any_name()), any_name(), prop::option::of("[a-z0-9]{1,8}"))
}

/// Resources of a container, with their requested numbers.
fn any_resources() -> impl Strategy<Value = Option<Value>> {
    let name = prop::sample::select(vec!["cpu", "openshift.io/a", "openshift.io/b", "x.io/a~b"]);
    let amount = prop_oneof![(0u64..5).prop_map(|n| json!(n)), (0u64..5).prop_map(|n| json!(n.to_string()))];
    let part = prop::collection::btree_map(name, amount, 0..3).prop_map(|part| json!(part));
    let part = prop_oneof![3 => part, 1 => Just(Value::Null)];
    let parts = prop::collection::btree_map(prop::sample::select(vec!["requests", "limits"]), part, 0..3);
    prop::option::of(prop_oneof![5 => parts.prop_map(|parts| json!(parts)), 1 => Just(Value::Null)])
}

fn any_pod() -> impl Strategy<Value = Value> {
    let container = || {
        any_resources().prop_map(|resources| {
            let mut container = json!({ "name": "c" });
            if let Some(resources) = resources {
                container["resources"] = resources;
            }
            container
        })
    };
    let label =
        (prop::sample::select(vec!["rack", "zone", "a/b~c"]), prop::sample::select(vec!["a", "b", ""]));
    let selector = prop::option::of(prop::collection::btree_map(label.0, label.1, 0..3));
    let policy = prop::sample::select(vec![Value::Null, json!("Always"), json!("Never")]);
    let init = (container(), policy).prop_map(|(mut container, policy)| {
        container["restartPolicy"] = policy;
        container
    });
    (prop::collection::vec(container(), 0..4), prop::collection::vec(init, 0..2), selector).prop_map(
        |(containers, init, selector)| {
            let mut spec = json!({ "containers": containers, "initContainers": init });
            if let Some(selector) = selector {
                spec["nodeSelector"] = json!(selector);
            }
            json!({ "metadata": { "name": "pod" }, "spec": spec })
        },
    )
}

fn any_nads() -> impl Strategy<Value = Vec<(NamedNetwork, NadAnnotations)>> {
    let resource = prop::sample::select(vec!["openshift.io/a", "openshift.io/b", "x.io/a~b", "cpu", ""]);
    let selector = prop::sample::select(vec!["rack=a", "rack=b", "zone", "a/b~c=a", "x=y=z", "", "="]);
    let nad = (any_name(), prop::option::of(resource), prop::option::of(selector));
    prop::collection::vec(nad, 0..6).prop_map(|nads| {
        let nads: BTreeMap<_, _> =
            nads.into_iter().map(|(name, resource, selector)| (name, (resource, selector))).collect();
        // The first is named twice.
        let twice = nads.iter().chain(nads.iter().take(1));
        twice
            .map(|(name, (resource, node_selector))| {
                let network = NetworkRef { namespace: "ns".to_owned(), name: name.clone() };
                let text = |text: Option<&str>| text.map(str::to_owned);
                (
                    NamedNetwork { network, may_be_elsewhere: false },
                    NadAnnotations { resource: text(*resource), node_selector: text(*node_selector) },
                )
            })
            .collect()
    })
}

fn patched(pod: &Value, injection: &Injection) -> Value {
    let mut pod = pod.clone();
    let patch: json_patch::Patch = serde_json::from_value(json!(injection.patch)).unwrap();
    json_patch::patch(&mut pod, &patch).unwrap();
    pod
}

/// Returns the entry of a resource in `requests` or `limits`.
fn entry<'a>(container: &'a Value, part: &str, resource: &str) -> Option<&'a Value> {
    container.get("resources")?.get(part)?.get(resource)
}

fn containers(pod: &Value) -> &[Value] {
    pod["spec"]["containers"].as_array().unwrap()
}

fn requests(pod: &Value, resource: &str) -> bool {
    let has_entry =
        |container| ["requests", "limits"].iter().any(|part| entry(container, part, resource).is_some());
    let init = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    let sidecars = init.filter(|container| container["restartPolicy"] == "Always");
    containers(pod).iter().chain(sidecars).any(has_entry)
}

proptest! {
    #![proptest_config(crate::config(5000))]

    #[test]
    fn any_text_is_a_list_of_networks_or_an_error(text in nearly_networks()) {
        match networks(&pod_with_networks(&text), "own") {
            Ok(found) => {
                let words: Vec<_> = found.iter().map(ToString::to_string).collect();
                prop_assert_eq!(networks(&pod_with_networks(&words.join(",")), "other").unwrap(), found);
            }
            Err(bad) => {
                let text = bad.to_string();
                prop_assert!(text.starts_with("annotation k8s.v1.cni.cncf.io/networks") && text.ends_with("no resources are requested"), "{}", text);
            }
        }
    }

    #[test]
    fn the_short_form_and_json_give_the_same_networks(given in prop::collection::vec(any_network(), 1..6)) {
        let word = |(namespace, name, interface): &(Option<String>, String, Option<String>)| {
            let namespace = namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
            let interface = interface.as_ref().map(|interface| format!("@{interface}")).unwrap_or_default();
            format!("{namespace}{name}{interface}")
        };
        let element = |(namespace, name, interface): &(Option<String>, String, Option<String>)| {
            json!({ "namespace": namespace, "name": name, "interface": interface })
        };
        let expected: Vec<_> = given.iter().map(|(namespace, name, _)| NetworkRef {
            namespace: namespace.clone().unwrap_or_else(|| "own".to_owned()),
            name: name.clone(),
        }).collect();
        let words: Vec<_> = given.iter().map(word).collect();
        prop_assert_eq!(&networks(&pod_with_networks(&words.join(" , ")), "own").unwrap(), &expected);
        let elements = given.iter().map(element).collect::<Value>();
        prop_assert_eq!(&networks(&pod_with_networks(&elements.to_string()), "own").unwrap(), &expected);
    }
}

proptest! {
    #![proptest_config(crate::config(2000))]

    #[test]
    fn a_pod_gets_the_resources_that_it_names_and_loses_nothing(pod in any_pod(), nads in any_nads()) {
        let injection = inject_resources(&pod, &nads);
        let after = patched(&pod, &injection);
        if containers(&pod).is_empty() {
            prop_assert_eq!(&after, &pod);
            return Ok(());
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        // The API server would refuse a pod with an invalid resource name.
        let is_valid = |name: &&str| name.contains('/') && !name.contains('~');
        for resource in nads.iter().filter_map(|(_, nad)| nad.resource.as_deref()).filter(is_valid) {
            *counts.entry(resource).or_default() += 1;
        }
        let first = &containers(&after)[0];
        for (resource, count) in &counts {
            if !requests(&pod, resource) {
                for part in ["requests", "limits"] {
                    prop_assert_eq!(entry(first, part, resource), Some(&json!(count.to_string())));
                }
            }
        }
        // Without the added entries the pod is as before.
        let mut without = after.clone();
        let added: Vec<_> = counts.keys().filter(|resource| !requests(&pod, resource)).collect();
        for part in ["requests", "limits"] {
            let part = without["spec"]["containers"][0].pointer_mut(&format!("/resources/{part}"));
            if let Some(Value::Object(part)) = part {
                part.retain(|name, _| !added.contains(&&name.as_str()));
            }
        }
        prop_assert_eq!(without_empty_values(&without["spec"]["containers"]), without_empty_values(&pod["spec"]["containers"]));
        prop_assert_eq!(&after["spec"]["initContainers"], &pod["spec"]["initContainers"]);
        let given = pod["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
        for (label, value) in &given {
            prop_assert_eq!(&after["spec"]["nodeSelector"][label], value);
        }

        let again = inject_resources(&after, &nads);
        prop_assert!(again.patch.is_empty(), "{:?}", again.patch);
    }

    #[test]
    fn any_pod_is_handled_without_a_panic(spec in any_json(), annotations in any_json(), nads in any_nads()) {
        let pod = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        let _ = read_pod_networks(&pod, "own");
        patched(&pod, &inject_resources(&pod, &nads));
    }
}

/// Removes empty values: `resources: {limits: {}}` means the same as no resources.
fn without_empty_values(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), without_empty_values(value)));
            let is_empty = |value: &Value| value.is_null() || *value == Value::Object(Map::new());
            Value::Object(members.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => items.iter().map(without_empty_values).collect(),
        other => other.clone(),
    }
}

/// JSON of any type, with member names that injection reads.
fn any_json() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "containers",
        "resources",
        "requests",
        "limits",
        "nodeSelector",
        "openshift.io/a",
        "rack",
        NETWORKS,
    ]);
    let leaf =
        prop_oneof![Just(Value::Null), any::<u64>().prop_map(Value::from), ".{0,3}".prop_map(Value::from)];
    leaf.prop_recursive(5, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..5).prop_map(|members| json!(members)),
        ]
    })
}

//! Whatever users write into ipam, capabilities and metaPlugins: a fault, or a configuration that is JSON and holds what
//! they wrote.

use proptest::prelude::*;
use serde_json::{Map, Value};
use vfleet_api::network::SriovNetworkSpec;
use vfleet_plan::network::{Nad, NetworkFault, NetworkId, NetworkKind, NetworkSpec, plan_nad};

fn nad(capabilities: &str, ipam: &str, meta_plugins: &str) -> Result<Nad, Vec<NetworkFault>> {
    let id = NetworkId { kind: NetworkKind::Sriov, namespace: "own".into(), name: "net".into() };
    let spec = NetworkSpec::Sriov(SriovNetworkSpec {
        resource_name: "nics".into(),
        capabilities: Some(capabilities.into()),
        ipam: Some(ipam.into()),
        meta_plugins: Some(meta_plugins.into()),
        log_file: Some("a \"quoted\" \\ file\n".into()),
        ..Default::default()
    });
    plan_nad(&id, &spec, "openshift.io", "own")
}

/// JSON of any form.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e15..1e15).prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(".*", any_json(), 0..4).prop_map(Value::from_iter)
}

/// What plugins can be told: each capability is on or off.
fn any_capabilities() -> impl Strategy<Value = Value> {
    let flag = any::<bool>().prop_map(Value::from);
    prop::collection::btree_map(".*", flag, 0..4).prop_map(Value::from_iter)
}

/// A plugin that can be started.
fn any_plugin() -> impl Strategy<Value = Value> {
    (any_object(), ".+").prop_map(|(mut plugin, type_)| {
        plugin["type"] = Value::from(type_);
        plugin
    })
}

/// Texts that are nearly JSON, where a careless program goes wrong.
fn nearly_json() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "'",
        " ",
        "\n",
        "\"a\"",
        "\"b c\"",
        "1",
        "1.0e5",
        "true",
        "null",
        "{}",
        "\"a\":1",
        "}]",
        "\u{a0}",
        "\\u00e9",
        "//",
        "{\"type\":\"t\"}",
        "{\"m\":true}",
    ]);
    prop_oneof![prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat()), ".*"]
}

/// What `text` says, if it is one JSON object; `{}` for nothing.
fn object(text: &str) -> Option<Value> {
    if text.trim().is_empty() {
        return Some(Value::Object(Map::new()));
    }
    serde_json::from_str::<Map<String, Value>>(text).ok().map(Value::Object)
}

/// What `text` says, if it is JSON objects with commas between; an empty list for nothing.
fn objects(text: &str) -> Option<Vec<Value>> {
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    let list: Vec<Value> = serde_json::from_str(&format!("[{text}]")).ok()?;
    (!list.is_empty() && list.iter().all(Value::is_object)).then_some(list)
}

/// The network's own plugin, and the chained ones.
fn plugins(config: &str) -> (Value, Vec<Value>) {
    let config: Value = serde_json::from_str(config).unwrap();
    match config.get("plugins").and_then(Value::as_array) {
        Some(list) => (list[0].clone(), list[1..].to_vec()),
        None => (config, Vec::new()),
    }
}

proptest! {
    #![proptest_config(crate::config(256))]

    #[test]
    fn any_text_gives_a_fault_or_what_it_says(
        capabilities in nearly_json(), ipam in nearly_json(), meta_plugins in nearly_json()
    ) {
        let flags = object(&capabilities).filter(|all| all.as_object().unwrap().values().all(Value::is_boolean));
        let can_start = |plugin: &Value| plugin["type"].as_str().is_some_and(|type_| !type_.is_empty());
        let plugins_wanted = objects(&meta_plugins).filter(|all| all.iter().all(can_start));
        let wanted = (flags, object(&ipam), plugins_wanted);
        match (nad(&capabilities, &ipam, &meta_plugins), wanted) {
            (Ok(nad), (Some(capabilities), Some(ipam), Some(chained))) => {
                let (own, others) = plugins(&nad.config);
                prop_assert_eq!(own.get("capabilities").cloned().unwrap_or_else(|| Value::Object(Map::new())), capabilities);
                prop_assert_eq!(&own["ipam"], &ipam);
                prop_assert_eq!(own["logFile"].as_str(), Some("a \"quoted\" \\ file\n"));
                prop_assert_eq!(others, chained);
            }
            (Err(_), (None, _, _) | (_, None, _) | (_, _, None)) => {}
            (found, wanted) => prop_assert!(false, "{found:?} for {wanted:?}"),
        }
    }

    #[test]
    fn good_json_is_never_refused(
        capabilities in any_capabilities(),
        ipam in any_object(),
        chained in prop::collection::vec(any_plugin(), 1..4)
    ) {
        let meta_plugins: Vec<_> = chained.iter().map(|plugin| serde_json::to_string_pretty(plugin).unwrap()).collect();
        let nad = nad(&capabilities.to_string(), &ipam.to_string(), &meta_plugins.join(" ,\n")).unwrap();
        let (own, others) = plugins(&nad.config);
        prop_assert_eq!(Some(own["capabilities"].clone()), object(&capabilities.to_string()));
        prop_assert_eq!(Some(own["ipam"].clone()), object(&ipam.to_string()));
        prop_assert_eq!(Some(others), objects(&meta_plugins.join(",")));
    }
}

#[test]
fn a_text_that_grows_beyond_bounds_is_refused_in_time() {
    let deep = format!("{{\"a\":{}{}{}}}", "[".repeat(100), vec!["1"; 100_000].join(","), "]".repeat(100));
    assert!(matches!(nad("", &deep, "").unwrap_err()[..], [NetworkFault::TooLong { .. }]));
    let deeper = format!("{{\"a\":{}{}}}", "[".repeat(500_000), "]".repeat(500_000));
    assert!(matches!(nad("", &deeper, "").unwrap_err()[..], [NetworkFault::Json { field: "ipam", .. }]));
}

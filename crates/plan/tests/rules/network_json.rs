//! Any text in ipam, capabilities and metaPlugins leads to a fault, or to a valid JSON configuration with the same
//! content.

use proptest::prelude::*;
use serde_json::{Map, Value};
use vfleet_api::network::SriovNetworkSpec;
use vfleet_plan::network::{DesiredNad, NetworkFault, NetworkId, NetworkKind, NetworkSpec, plan_nad};

fn nad(capabilities: &str, ipam: &str, meta_plugins: &str) -> Result<DesiredNad, Vec<NetworkFault>> {
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

/// Any JSON value.
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

/// Valid capabilities: each is a boolean.
fn any_capabilities() -> impl Strategy<Value = Value> {
    let flag = any::<bool>().prop_map(Value::from);
    prop::collection::btree_map(".*", flag, 0..4).prop_map(Value::from_iter)
}

/// Plugin with a type.
fn any_plugin() -> impl Strategy<Value = Value> {
    (any_object(), ".+").prop_map(|(mut plugin, type_)| {
        plugin["type"] = Value::from(type_);
        plugin
    })
}

/// Texts that are almost JSON.
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

/// Parses one JSON object; `{}` for a blank text.
fn object(text: &str) -> Option<Value> {
    if text.trim().is_empty() {
        return Some(Value::Object(Map::new()));
    }
    serde_json::from_str::<Map<String, Value>>(text).ok().map(Value::Object)
}

/// Parses JSON objects that are separated by commas; an empty list for a blank text.
fn objects(text: &str) -> Option<Vec<Value>> {
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    let list: Vec<Value> = serde_json::from_str(&format!("[{text}]")).ok()?;
    (!list.is_empty() && list.iter().all(Value::is_object)).then_some(list)
}

/// Returns the plugin of the network and the chained plugins.
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
    fn any_text_leads_to_a_fault_or_the_same_content(
        capabilities in nearly_json(), ipam in nearly_json(), meta_plugins in nearly_json()
    ) {
        let flags = object(&capabilities).filter(|all| all.as_object().unwrap().values().all(Value::is_boolean));
        let can_start = |plugin: &Value| plugin["type"].as_str().is_some_and(|type_| !type_.is_empty());
        let chained = objects(&meta_plugins).filter(|all| all.iter().all(can_start));
        let expected = (flags, object(&ipam), chained);
        match (nad(&capabilities, &ipam, &meta_plugins), expected) {
            (Ok(nad), (Some(capabilities), Some(ipam), Some(chained))) => {
                let (own, others) = plugins(&nad.config);
                prop_assert_eq!(own.get("capabilities").cloned().unwrap_or_else(|| Value::Object(Map::new())), capabilities);
                prop_assert_eq!(&own["ipam"], &ipam);
                prop_assert_eq!(own["logFile"].as_str(), Some("a \"quoted\" \\ file\n"));
                prop_assert_eq!(others, chained);
            }
            (Err(_), (None, _, _) | (_, None, _) | (_, _, None)) => {}
            (found, expected) => prop_assert!(false, "{found:?} for {expected:?}"),
        }
    }

    #[test]
    fn valid_json_is_never_rejected(
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
fn a_text_that_grows_beyond_the_limit_is_rejected() {
    let deep = format!("{{\"a\":{}{}{}}}", "[".repeat(100), vec!["1"; 100_000].join(","), "]".repeat(100));
    assert!(matches!(nad("", &deep, "").unwrap_err()[..], [NetworkFault::TooLong { .. }]));
    let deeper = format!("{{\"a\":{}{}}}", "[".repeat(500_000), "]".repeat(500_000));
    assert!(matches!(nad("", &deeper, "").unwrap_err()[..], [NetworkFault::Json { field: "ipam", .. }]));
}

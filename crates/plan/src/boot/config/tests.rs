use super::*;

/// Collects all property names below `schema`.
fn names(schema: &serde_json::Value, found: &mut serde_json::Map<String, serde_json::Value>) {
    // Conditions are written to the status only.
    let is_in_spec = |(name, _): &(&String, _)| *name != "conditions";
    for (name, property) in schema["properties"].as_object().into_iter().flatten().filter(is_in_spec) {
        found.insert(name.clone(), serde_json::json!("x"));
        names(property, found);
        names(&property["items"], found);
    }
}

/// Every field name of the CRD with capital letters is in the table of field names.
#[test]
fn the_config_has_all_field_names_of_the_spec() {
    let crds = serde_json::to_value(vfleet_api::crds::all()).unwrap();
    let states = crds
        .as_array()
        .unwrap()
        .iter()
        .find(|crd| crd["spec"]["names"]["plural"] == "sriovnetworknodestates");
    let schema = &states.unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut found = serde_json::Map::new();
    names(schema, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for name in found.keys() {
        let spec = serde_json::json!({ "spec": { (name.to_lowercase()): "x" } });
        let read = api_names(spec["spec"].clone());
        assert!(read.get(name).is_some(), "{name} is not in the table");
    }
}

#[test]
fn a_config_is_in_the_go_form_and_is_read_back() {
    let spec: SriovNetworkNodeStateSpec = serde_json::from_value(serde_json::json!({
        "interfaces": [{
            "pciAddress": "0000:3b:00.0", "numVfs": 2, "eSwitchMode": "switchdev", "name": "ens1f0",
            "vfGroups": [{ "vfRange": "0-1", "isRdma": true, "policyName": "p: 1", "deviceType": "netdevice" }],
        }],
        "system": { "rdmaMode": "exclusive" },
    }))
    .unwrap();
    let text = config_text(&BootConfig { spec: spec.clone(), ..Default::default() });
    for line in [
        "  \"spec\": {",
        "    \"interfaces\": [",
        "        \"numvfs\": 2,",
        "        \"eswitchmode\": \"switchdev\",",
        "  \"unsupportedNics\": false,",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert_eq!(text, config_text(&BootConfig { spec: spec.clone(), ..Default::default() }));
}

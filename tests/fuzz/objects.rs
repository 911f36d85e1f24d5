//! Texts within objects: annotations, network configurations, the ConfigMap of NIC ids.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::keys::{POD_DEFAULT_NETWORK, POD_NETWORKS};
use vfleet_api::network::{BridgeNetworkSpec, OVSNetworkSpec, SriovIBNetworkSpec, SriovNetworkSpec};
use vfleet_plan::NicIds;
use vfleet_plan::admission::{
    NadAnnotations, NamedNetwork, PatchOperation, inject_resources, read_pod_networks,
};
use vfleet_plan::drain::{ExternalFacts, Moment, NodeFacts, StateFacts};
use vfleet_plan::network::{NetworkId, NetworkKind, NetworkSpec, plan_nad};

use crate::driver::{Target, Verdict};

fn pod(annotation: &str, text: &str) -> Value {
    json!({ "metadata": { "annotations": { annotation: text } }, "spec": { "containers": [{ "name": "a" }] } })
}

/// Applies a patch to `object`, for which it was created.
pub(crate) fn apply_patch(object: &Value, patch: &[PatchOperation]) -> Value {
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(patch).unwrap()).unwrap();
    let mut changed = object.clone();
    json_patch::patch(&mut changed, &patch)
        .unwrap_or_else(|error| panic!("the patch does not apply: {error}"));
    changed
}

#[test]
fn pod_networks() {
    Target::new("pod_networks").run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let networks = match read_pod_networks(&pod(POD_NETWORKS, &text), "here") {
            Ok(networks) => networks,
            Err(bad) => {
                assert!(!bad.problem.is_empty());
                return Verdict::Refused;
            }
        };
        assert!(networks.len() <= 256, "{}", networks.len());
        let is_name = |name: &str| {
            (1..=253).contains(&name.len())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
        };
        assert!(
            networks.iter().all(|named| is_name(&named.network.name) && is_name(&named.network.namespace))
        );
        let printed: Vec<String> = networks.iter().map(|named| named.network.to_string()).collect();
        assert_eq!(
            read_pod_networks(&pod(POD_NETWORKS, &printed.join(", ")), "elsewhere").unwrap(),
            networks
        );
        let default = read_pod_networks(&pod(POD_DEFAULT_NETWORK, &text), "here").unwrap();
        assert_eq!(default.len(), networks.len().min(1));
        Verdict::Accepted
    });
}

#[test]
fn nad_annotations() {
    Target::new("nad_annotations").run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (resource, selector) = text.split_once('\n').unwrap_or((&text, ""));
        let nad =
            NadAnnotations { resource: Some(resource.to_owned()), node_selector: Some(selector.to_owned()) };
        let network =
            vfleet_plan::admission::NetworkRef { namespace: "here".to_owned(), name: "a".to_owned() };
        let named = NamedNetwork { network, may_be_elsewhere: false };
        let pod = pod(POD_NETWORKS, "a,a");
        let injection = inject_resources(&pod, &[(named.clone(), nad.clone()), (named, nad)]);
        let changed = apply_patch(&pod, &injection.patch);
        // All fields of the pod are kept.
        assert_eq!(changed["metadata"], pod["metadata"]);
        assert_eq!(changed["spec"]["containers"][0]["name"], "a");
        let limits = &changed["spec"]["containers"][0]["resources"]["limits"];
        assert!(limits.is_null() || limits[resource] == "2", "{changed}");
        Verdict::of(!injection.patch.is_empty())
    });
}

fn network_spec_of(value: &Value) -> Option<(NetworkKind, NetworkSpec)> {
    let kind = value.get("kind")?.as_str()?.to_owned();
    let spec = value.get("spec")?.clone();
    Some(match kind.as_str() {
        "SriovIBNetwork" => {
            let spec: SriovIBNetworkSpec = serde_json::from_value(spec).ok()?;
            (NetworkKind::InfiniBand, NetworkSpec::InfiniBand(spec))
        }
        "OVSNetwork" => {
            let spec: OVSNetworkSpec = serde_json::from_value(spec).ok()?;
            (NetworkKind::Ovs, NetworkSpec::Ovs(spec))
        }
        "BridgeNetwork" => {
            let spec: BridgeNetworkSpec = serde_json::from_value(spec).ok()?;
            (NetworkKind::Bridge, NetworkSpec::Bridge(spec))
        }
        _ => {
            let spec: SriovNetworkSpec = serde_json::from_value(spec).ok()?;
            (NetworkKind::Sriov, NetworkSpec::Sriov(spec))
        }
    })
}

#[test]
fn network_spec() {
    let target = Target::new("network_spec").with_files("crates/plan/tests/networks");
    let words = &["\\\"", "\\n", "{\\\"type\\\":\\\"a\\\"}", ",", "}", "]", "\\u0000"];
    target.with_words(words).run(|bytes| {
        let found = serde_saphyr::from_slice(bytes).ok().as_ref().and_then(network_spec_of);
        let Some((kind, spec)) = found else { return Verdict::Refused };
        let id = NetworkId { kind, namespace: "operator".to_owned(), name: "net".to_owned() };
        match plan_nad(&id, &spec, "openshift.io", "operator") {
            Ok(nad) => {
                let config: Value = serde_json::from_str(&nad.config).expect("the configuration is JSON");
                assert_eq!(config["name"], "net");
                Verdict::Accepted
            }
            Err(faults) => {
                assert!(!faults.is_empty() && faults.iter().all(|fault| !fault.to_string().is_empty()));
                Verdict::Refused
            }
        }
    });
}

#[test]
fn drain_annotations() {
    Target::new("drain_annotations").run(|bytes| {
        let Ok(annotations) = serde_json::from_slice::<BTreeMap<String, String>>(bytes) else {
            return Verdict::Refused;
        };
        let facts = NodeFacts::of(&annotations, "here", true, true);
        if let Some(mark) = facts.mark {
            assert_eq!(Moment::parse(&mark.request.text()), Some(mark.request));
        }
        let times = annotations.values().filter_map(|text| Moment::parse(text));
        let times = times.inspect(|time| assert_eq!(Moment::parse(&time.text()), Some(*time)));
        Verdict::of(times.count() > 0 || facts.is_marked_by_other_installation)
    });
}

#[test]
fn node_state() {
    Target::new("node_state").run(|bytes| {
        let Ok(state) = serde_json::from_slice::<SriovNetworkNodeState>(bytes) else {
            return Verdict::Refused;
        };
        let facts = StateFacts::of(&state);
        for time in facts.request.into_iter().chain(facts.draining_since).chain(facts.completed_at) {
            assert_eq!(Moment::from(&time.to_time()), time);
        }
        let external = ExternalFacts::of(&state);
        let _ = vfleet_plan::drain::plan_agent_step(&facts, &external, true, None, true, Moment(0));
        Verdict::Accepted
    });
}

#[test]
fn nic_ids() {
    Target::new("nic_ids").run(|bytes| {
        let Ok(data) = serde_json::from_slice::<BTreeMap<String, String>>(bytes) else {
            return Verdict::Refused;
        };
        let (ids, bad) = NicIds::parse(&data);
        assert!(bad.iter().all(|bad| data.get(&bad.key) == Some(&bad.value) && !bad.to_string().is_empty()));
        for (key, value) in data.iter().filter(|(key, _)| !bad.iter().any(|bad| bad.key == **key)) {
            let words: Vec<u16> =
                value.split_whitespace().map(|word| u16::from_str_radix(word, 16).unwrap()).collect();
            let [vendor, pf, vf] = words[..] else { panic!("{key}: {value:?} was taken") };
            assert!(ids.lists(vendor, pf) && ids.lists(vendor, vf), "{value}");
        }
        Verdict::of(bad.len() < data.len())
    });
}

//! Fake cluster, and the facts about it. They are computed by iterating over all objects.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vfleet_api::keys::{
    DEFAULT_POOL, IGNORED_POLICY, NAD_NODE_SELECTOR, NAD_RESOURCE, OPERATOR_CONFIG, SUPPORTED_NIC_IDS,
};
use vfleet_api::node_state::IN_PROGRESS;
use vfleet_api::operator_config::SriovOperatorConfigSpec;
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_api::{
    SriovNetworkNodePolicy, SriovNetworkNodePolicySpec, SriovNetworkNodeState, SriovNetworkPoolConfig,
    SriovOperatorConfig,
};
use vfleet_plan::admission::{
    ConfigFacts, NadAnnotations, NetworkRef, NodeClasses, PolicyFacts, PoolFacts, PoolRival, ResourceFacts,
};
use vfleet_plan::gates::FeatureGate;
use vfleet_plan::{NamedPolicy, NamedPool, NicIds, NodeIdentity, pool, runs_agent};

/// Namespace of the operator, and of objects without a namespace.
pub(crate) const HOME: &str = "sriov-network-operator";

/// Priority of a pool without one.
const DEFAULT_PRIORITY: i64 = 99;

type Labels = BTreeMap<String, String>;
type ReadResult<T> = Result<T, Box<dyn Error>>;

/// File format of a world.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WorldFile {
    like: Option<String>,
    #[serde(default)]
    without: Vec<String>,
    #[serde(default)]
    dev_mode: bool,
    #[serde(default)]
    objects: Vec<Value>,
}

/// Objects by namespace, kind and name.
pub(crate) type Objects = BTreeMap<(String, String, String), Value>;

/// Fake cluster.
#[derive(Debug)]
pub(crate) struct FakeCluster {
    pub(crate) dev_mode: bool,
    /// NADs of all namespaces.
    pub(crate) nads: BTreeMap<NetworkRef, NadAnnotations>,
    nodes: BTreeMap<String, Labels>,
    states: BTreeMap<String, SriovNetworkNodeState>,
    policies: BTreeMap<String, SriovNetworkNodePolicy>,
    pools: BTreeMap<String, SriovNetworkPoolConfig>,
    config: SriovOperatorConfigSpec,
    nic_ids: Option<NicIds>,
}

impl FakeCluster {
    /// Reads the world `name` from the folder `worlds`, and adds objects.
    pub(crate) fn read(worlds: &Path, name: &str, also: &[Value]) -> ReadResult<Self> {
        let (dev_mode, mut objects) = read_objects(worlds, name)?;
        add(&mut objects, also)?;
        let configs: BTreeMap<String, SriovOperatorConfig> = of_kind(&objects, "SriovOperatorConfig")?;
        let config_maps: BTreeMap<String, Value> = of_kind(&objects, "ConfigMap")?;
        let nodes: BTreeMap<String, Value> = of_kind(&objects, "Node")?;
        Ok(Self {
            dev_mode,
            nads: nads(&objects),
            nodes: nodes
                .into_iter()
                .map(|(name, node)| (name, strings(&node["metadata"]["labels"])))
                .collect(),
            states: of_kind(&objects, "SriovNetworkNodeState")?,
            policies: of_kind(&objects, "SriovNetworkNodePolicy")?,
            pools: of_kind(&objects, "SriovNetworkPoolConfig")?,
            config: configs.get(OPERATOR_CONFIG).map(|config| config.spec.clone()).unwrap_or_default(),
            nic_ids: config_maps.get(SUPPORTED_NIC_IDS).map(|map| NicIds::parse(&strings(&map["data"])).0),
        })
    }

    /// Returns the facts about a policy.
    pub(crate) fn policy_facts<'a>(
        &'a self,
        name: &'a str,
        spec: &'a SriovNetworkNodePolicySpec,
    ) -> PolicyFacts<'a> {
        let mut classes = NodeClasses::with_candidate(NamedPolicy { name, spec }, &self.named_policies());
        for (node, labels) in &self.nodes {
            let status = self.states.get(node).and_then(|state| state.status.as_ref());
            let cards = status.and_then(|status| status.interfaces.as_deref());
            classes.add(node, labels, self.has_agent(labels), cards);
        }
        classes.collect_facts(
            name,
            FeatureGate::ManageSoftwareBridges.is_enabled(&self.config),
            self.nic_ids.as_ref(),
        )
    }

    /// Returns the facts about a pool.
    pub(crate) fn pool_facts(&self, name: &str, spec: &SriovNetworkPoolConfigSpec) -> PoolFacts<'_> {
        let priority = |spec: &SriovNetworkPoolConfigSpec| spec.priority.unwrap_or(DEFAULT_PRIORITY);
        let selected = self.selected_by(&NamedPool { name, spec });
        let is_rival = |(other, pool): &(&String, &SriovNetworkPoolConfig)| {
            name != DEFAULT_POOL
                && *other != DEFAULT_POOL
                && *other != name
                && priority(&pool.spec) == priority(spec)
        };
        let rival = self.pools.iter().filter(is_rival).find_map(|(other, pool)| {
            let theirs = self.selected_by(&NamedPool { name: other, spec: &pool.spec });
            let node = selected.iter().find(|node| theirs.contains(node))?;
            Some(PoolRival { name: other, node })
        });
        PoolFacts { selected: selected.len(), rival }
    }

    /// Returns the facts about an operator config that is changed to `new`, or deleted.
    pub(crate) fn config_facts(&self, new: Option<&SriovOperatorConfigSpec>) -> ConfigFacts<'_> {
        let is_in_progress = |state: &SriovNetworkNodeState| {
            state.status.as_ref().is_some_and(|status| status.sync_status.as_deref() == Some(IN_PROGRESS))
        };
        let requests_bridge = |spec: &SriovNetworkNodePolicySpec| {
            spec.bridge.as_ref().is_some_and(|bridge| bridge.ovs.is_some() || bridge.linux.is_some())
        };
        let used = || self.named_policies().into_iter().filter(|policy| policy.name != IGNORED_POLICY);
        ConfigFacts {
            in_progress: names(self.states.iter().filter(|(_, state)| is_in_progress(state))),
            policies: used().map(|policy| policy.name).collect(),
            with_bridge: used()
                .filter(|policy| requests_bridge(policy.spec))
                .map(|policy| policy.name)
                .collect(),
            losing_agent: new.map(|new| self.nodes_losing_agent(new)).unwrap_or_default(),
        }
    }

    /// Returns the facts about a network with this resource.
    pub(crate) fn resource_facts(&self, resource: &str) -> ResourceFacts<'_> {
        let offered_by = self
            .named_policies()
            .into_iter()
            .filter(|policy| policy.spec.resource_name == resource)
            .collect();
        ResourceFacts { offered_by }
    }

    fn named_policies(&self) -> Vec<NamedPolicy<'_>> {
        self.policies.iter().map(|(name, policy)| NamedPolicy { name, spec: &policy.spec }).collect()
    }

    fn selected_by(&self, pool: &NamedPool<'_>) -> Vec<&str> {
        let is_selected = |name: &str, labels| pool::selects(pool, NodeIdentity { name, labels }) == Ok(true);
        names(self.nodes.iter().filter(|(name, labels)| is_selected(name, labels)))
    }

    fn has_agent(&self, labels: &Labels) -> bool {
        has_agent(&self.config, labels)
    }

    fn nodes_losing_agent(&self, new: &SriovOperatorConfigSpec) -> Vec<&str> {
        let has_vfs = |node: &str| {
            let interfaces = self.states.get(node).and_then(|state| state.spec.interfaces.as_ref());
            let mut groups = interfaces.into_iter().flatten().flat_map(|pf| pf.vf_groups.iter().flatten());
            groups.next().is_some()
        };
        let loses_agent =
            |node: &str, labels| self.has_agent(labels) && !has_agent(new, labels) && has_vfs(node);
        names(self.nodes.iter().filter(|(node, labels)| loses_agent(node, labels)))
    }
}

fn has_agent(config: &SriovOperatorConfigSpec, labels: &Labels) -> bool {
    runs_agent(&config.config_daemon_node_selector.clone().unwrap_or_default(), labels)
}

fn names<'a, T: 'a>(entries: impl Iterator<Item = (&'a String, &'a T)>) -> Vec<&'a str> {
    entries.map(|(name, _)| name.as_str()).collect()
}

/// Returns the text at `pointer`, or an empty one.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Reads `devMode` and the objects of the world `name` in the folder `worlds`.
pub(crate) fn read_objects(worlds: &Path, name: &str) -> ReadResult<(bool, Objects)> {
    let path = worlds.join(format!("{name}.yaml"));
    let read = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file: WorldFile =
        serde_saphyr::from_str(&read).map_err(|error| format!("{}: {error}", path.display()))?;
    let (dev_mode, mut objects) = match &file.like {
        Some(other) => read_objects(worlds, other)?,
        None => (false, Objects::new()),
    };
    for removed in &file.without {
        let before = objects.len();
        objects.retain(|(_, kind, name), _| format!("{kind}/{name}") != *removed);
        if objects.len() == before {
            return Err(format!("{}: there is no {removed} to remove", path.display()).into());
        }
    }
    add(&mut objects, &file.objects)?;
    Ok((dev_mode || file.dev_mode, objects))
}

/// Adds objects, or replaces those of the same kind and name.
pub(crate) fn add(objects: &mut Objects, more: &[Value]) -> ReadResult<()> {
    for object in more {
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        if kind.is_empty() || name.is_empty() {
            return Err(format!("an object of a world has no kind or no name: {object}").into());
        }
        let namespace = match text(object, "/metadata/namespace") {
            "" => HOME,
            namespace => namespace,
        };
        objects.insert((namespace.to_owned(), kind.to_owned(), name.to_owned()), object.clone());
    }
    Ok(())
}

/// Returns the objects of one kind in the operator's namespace, or without a namespace.
fn of_kind<T: DeserializeOwned>(objects: &Objects, expected_kind: &str) -> ReadResult<BTreeMap<String, T>> {
    let own = objects.iter().filter(|((namespace, kind, _), _)| namespace == HOME && kind == expected_kind);
    own.map(|((_, _, name), object)| {
        let object = serde_json::from_value(object.clone())
            .map_err(|error| format!("{expected_kind} {name}: {error}"))?;
        Ok((name.clone(), object))
    })
    .collect()
}

fn nads(objects: &Objects) -> BTreeMap<NetworkRef, NadAnnotations> {
    objects
        .iter()
        .filter(|((_, kind, _), _)| kind == "NetworkAttachmentDefinition")
        .map(|((namespace, _, name), object)| {
            let annotations = strings(&object["metadata"]["annotations"]);
            let network = NetworkRef { namespace: namespace.clone(), name: name.clone() };
            let resource = annotations.get(NAD_RESOURCE).cloned();
            (network, NadAnnotations { resource, node_selector: annotations.get(NAD_NODE_SELECTOR).cloned() })
        })
        .collect()
}

fn strings(map: &Value) -> BTreeMap<String, String> {
    let pairs = map.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

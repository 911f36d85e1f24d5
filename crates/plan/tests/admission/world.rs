//! A made-up cluster, and what rules are told of it. Found by looking at every object, one after the other.

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
    Classes, ConfigFacts, NadSight, NetworkRef, PolicyFacts, PoolFacts, PoolRival, ResourceFacts,
};
use vfleet_plan::gates::Gate;
use vfleet_plan::{NamedPolicy, NamedPool, NicIds, NodeIdentity, pool, runs_agent};

/// The operator's namespace, where none is given.
pub(crate) const HOME: &str = "sriov-network-operator";

/// The priority of a pool that gives none.
const USUAL_PRIORITY: i64 = 99;

type Labels = BTreeMap<String, String>;
type ReadResult<T> = Result<T, Box<dyn Error>>;

/// A world, as it is written.
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

/// A made-up cluster.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) dev_mode: bool,
    /// Of all namespaces.
    pub(crate) nads: BTreeMap<NetworkRef, NadSight>,
    nodes: BTreeMap<String, Labels>,
    states: BTreeMap<String, SriovNetworkNodeState>,
    policies: BTreeMap<String, SriovNetworkNodePolicy>,
    pools: BTreeMap<String, SriovNetworkPoolConfig>,
    config: SriovOperatorConfigSpec,
    nic_ids: Option<NicIds>,
}

impl World {
    /// The world `name` of the folder `worlds`, with some objects besides.
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

    /// Of the policy `name` that says this.
    pub(crate) fn policy_facts<'a>(
        &'a self,
        name: &'a str,
        spec: &'a SriovNetworkNodePolicySpec,
    ) -> PolicyFacts<'a> {
        let mut classes = Classes::among(NamedPolicy { name, spec }, &self.named_policies());
        for (node, labels) in &self.nodes {
            let status = self.states.get(node).and_then(|state| state.status.as_ref());
            let cards = status.and_then(|status| status.interfaces.as_deref());
            classes.add(node, labels, self.has_agent(labels), cards);
        }
        classes.facts_of(name, Gate::ManageSoftwareBridges.is_on(&self.config), self.nic_ids.as_ref())
    }

    /// Of the pool `name` that says this.
    pub(crate) fn pool_facts(&self, name: &str, spec: &SriovNetworkPoolConfigSpec) -> PoolFacts<'_> {
        let priority = |spec: &SriovNetworkPoolConfigSpec| spec.priority.unwrap_or(USUAL_PRIORITY);
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

    /// Of an operator config that shall be `new`, or shall go.
    pub(crate) fn config_facts(&self, new: Option<&SriovOperatorConfigSpec>) -> ConfigFacts<'_> {
        let is_in_progress = |state: &SriovNetworkNodeState| {
            state.status.as_ref().is_some_and(|status| status.sync_status.as_deref() == Some(IN_PROGRESS))
        };
        let wants_bridge = |spec: &SriovNetworkNodePolicySpec| {
            spec.bridge.as_ref().is_some_and(|bridge| bridge.ovs.is_some() || bridge.linux.is_some())
        };
        let followed = || self.named_policies().into_iter().filter(|policy| policy.name != IGNORED_POLICY);
        ConfigFacts {
            in_progress: names(self.states.iter().filter(|(_, state)| is_in_progress(state))),
            policies: followed().map(|policy| policy.name).collect(),
            with_bridge: followed()
                .filter(|policy| wants_bridge(policy.spec))
                .map(|policy| policy.name)
                .collect(),
            left_out: new.map(|new| self.left_out_by(new)).unwrap_or_default(),
        }
    }

    /// Of a network that names this resource.
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

    fn left_out_by(&self, new: &SriovOperatorConfigSpec) -> Vec<&str> {
        let has_vfs = |node: &str| {
            let interfaces = self.states.get(node).and_then(|state| state.spec.interfaces.as_ref());
            let mut groups = interfaces.into_iter().flatten().flat_map(|pf| pf.vf_groups.iter().flatten());
            groups.next().is_some()
        };
        let is_left_out =
            |node: &str, labels| self.has_agent(labels) && !has_agent(new, labels) && has_vfs(node);
        names(self.nodes.iter().filter(|(node, labels)| is_left_out(node, labels)))
    }
}

fn has_agent(config: &SriovOperatorConfigSpec, labels: &Labels) -> bool {
    runs_agent(&config.config_daemon_node_selector.clone().unwrap_or_default(), labels)
}

fn names<'a, T: 'a>(entries: impl Iterator<Item = (&'a String, &'a T)>) -> Vec<&'a str> {
    entries.map(|(name, _)| name.as_str()).collect()
}

/// The text at `pointer`, or none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What is in the world `name` of the folder `worlds`, and whether every card is reported there.
pub(crate) fn read_objects(worlds: &Path, name: &str) -> ReadResult<(bool, Objects)> {
    let path = worlds.join(format!("{name}.yaml"));
    let read = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file: WorldFile =
        serde_saphyr::from_str(&read).map_err(|error| format!("{}: {error}", path.display()))?;
    let (dev_mode, mut objects) = match &file.like {
        Some(other) => read_objects(worlds, other)?,
        None => (false, Objects::new()),
    };
    for left_out in &file.without {
        let before = objects.len();
        objects.retain(|(_, kind, name), _| format!("{kind}/{name}") != *left_out);
        if objects.len() == before {
            return Err(format!("{}: there is no {left_out} to leave out", path.display()).into());
        }
    }
    add(&mut objects, &file.objects)?;
    Ok((dev_mode || file.dev_mode, objects))
}

/// Adds objects, in place of those of the same kind and name.
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

/// Objects of one kind in the operator's namespace, or in none.
fn of_kind<T: DeserializeOwned>(objects: &Objects, wanted: &str) -> ReadResult<BTreeMap<String, T>> {
    let here = objects.iter().filter(|((namespace, kind, _), _)| namespace == HOME && kind == wanted);
    here.map(|((_, _, name), object)| {
        let object =
            serde_json::from_value(object.clone()).map_err(|error| format!("{wanted} {name}: {error}"))?;
        Ok((name.clone(), object))
    })
    .collect()
}

fn nads(objects: &Objects) -> BTreeMap<NetworkRef, NadSight> {
    objects
        .iter()
        .filter(|((_, kind, _), _)| kind == "NetworkAttachmentDefinition")
        .map(|((namespace, _, name), object)| {
            let annotations = strings(&object["metadata"]["annotations"]);
            let at = NetworkRef { namespace: namespace.clone(), name: name.clone() };
            let resource = annotations.get(NAD_RESOURCE).cloned();
            (at, NadSight { resource, node_selector: annotations.get(NAD_NODE_SELECTOR).cloned() })
        })
        .collect()
}

fn strings(map: &Value) -> BTreeMap<String, String> {
    let pairs = map.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

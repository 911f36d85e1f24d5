//! Configuration of the Go device plugin, compared byte by byte. The controller of the Go operator (v1.6.0) writes
//! `expected.json` of each folder from the same policies, cards and `supported-nic-ids`, for a node with the label
//! `rack: a`: run `fixtures/kube/go-operator/files/regenerate`. Intended differences are tested in
//! `rules/resources.rs`.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeStateSpec};
use vfleet_plan::{NamedPolicy, NicIds, build_device_plugin_config};

fn case(policies_file: &Path) -> Result<(), Box<dyn Error>> {
    let folder = policies_file.parent().ok_or("each case has its own folder")?;
    let read = |file: &str| std::fs::read_to_string(folder.join(file));
    let policies: Vec<SriovNetworkNodePolicy> = serde_saphyr::from_multiple(&read("policies.yaml")?)?;
    let policies: Vec<_> = policies
        .iter()
        .map(|policy| NamedPolicy { name: policy.metadata.name.as_deref().unwrap_or(""), spec: &policy.spec })
        .collect();
    let cards: Vec<InterfaceExt> = serde_saphyr::from_str(&read("cards.yaml")?)?;
    let ids: BTreeMap<String, String> = serde_saphyr::from_str(&read("../supported-nic-ids.yaml")?)?;
    let (nic_ids, bad) = NicIds::parse(&ids);
    assert_eq!(bad.len(), 1, "{bad:?}");
    let labels = BTreeMap::from([("rack".to_owned(), "a".to_owned())]);
    let found = serde_json::to_string(&build_device_plugin_config(
        &policies,
        &labels,
        &cards,
        &SriovNetworkNodeStateSpec::default(),
        &nic_ids,
    ))?;
    assert_eq!(found, read("expected.json")?);
    Ok(())
}

datatest_stable::harness! {
    { test = case, root = "tests/device_plugin", pattern = r"policies\.yaml$" },
}

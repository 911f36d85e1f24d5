//! Resources whose VFs did not change in a drain: DaemonSet pods that use only these need no restart.

use alloc::collections::BTreeSet;

use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::prelude::*;

/// Returns the resources whose VFs did not change. `touched` are the PFs that were changed since the node was drained;
/// if they are unknown (`None`), the result is unknown too. `before` is the value of [`kept_before_request`].
pub fn kept_resources(
    spec: &SriovNetworkNodeStateSpec,
    touched: Option<&BTreeSet<PciAddress>>,
    before: Option<&[String]>,
) -> Option<Vec<String>> {
    let touched = touched?;
    let (mut all, mut changed) = (BTreeSet::new(), BTreeSet::new());
    for pf in spec.interfaces.iter().flatten() {
        let is_touched = pf.pci_address.value().is_ok_and(|pf| touched.contains(pf));
        for name in pf.vf_groups.iter().flatten().filter_map(|group| group.resource_name.as_ref()) {
            all.insert(name);
            if is_touched {
                changed.insert(name);
            }
        }
    }
    let was_kept = |name: &&&String| before.is_none_or(|before| before.contains(name));
    Some(all.difference(&changed).filter(was_kept).map(|name| (*name).clone()).collect())
}

/// Returns the kept resources to record with a new drain request. If the last drain has not finished (`is_finished`),
/// the node stays drained and its changes still count: only resources that were kept then can be kept now.
pub fn kept_before_request(kept: Option<&[String]>, is_finished: bool) -> Option<Vec<String>> {
    (!is_finished).then(|| kept.unwrap_or_default().to_vec())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> SriovNetworkNodeStateSpec {
        let pf = |address: &str, names: &[&str]| {
            let groups: Vec<_> = names.iter().map(|name| json!({ "resourceName": name })).collect();
            json!({ "pciAddress": address, "vfGroups": groups })
        };
        let pfs = [pf("0000:01:00.0", &["a", "both"]), pf("0000:02:00.0", &["b", "both"])];
        serde_json::from_value(json!({ "interfaces": pfs })).unwrap()
    }

    fn touched(pfs: &[&str]) -> BTreeSet<PciAddress> {
        pfs.iter().map(|pf| pf.parse().unwrap()).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_resource_is_kept_when_none_of_its_pfs_was_touched() {
        let kept = |pfs: &[&str]| kept_resources(&spec(), Some(&touched(pfs)), None).unwrap();
        assert_eq!(kept(&[]), names(&["a", "b", "both"]));
        assert_eq!(kept(&["0000:01:00.0"]), names(&["b"]));
        assert_eq!(kept(&["0000:01:00.0", "0000:02:00.0"]), names(&[]));
        assert_eq!(kept(&["0000:03:00.0"]), names(&["a", "b", "both"]));
        assert_eq!(kept_resources(&spec(), None, Some(&names(&["a"]))), None, "unknown PFs");
    }

    #[test]
    fn a_change_in_an_unfinished_drain_stays_a_change() {
        let first = kept_resources(&spec(), Some(&touched(&["0000:01:00.0"])), None);
        let recorded = kept_before_request(first.as_deref(), false);
        assert_eq!(recorded, first);
        assert_eq!(
            kept_resources(&spec(), Some(&touched(&["0000:02:00.0"])), recorded.as_deref()),
            Some(vec![])
        );
        assert_eq!(kept_before_request(first.as_deref(), true), None);
        assert_eq!(kept_before_request(None, false), Some(vec![]), "unknown counts as changed");
    }
}

//! Resources whose VFs are all as they were: pods of DaemonSets that use only those need no restart after a drain.

use alloc::collections::BTreeSet;

use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::prelude::*;

/// The resources that were kept, when the work is done. `touched` are the PFs that something was done to since the node
/// was drained; `None`, and with it the answer, when nobody knows. `before` is what was noted when the drain was asked for.
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

/// What is noted when a drain is asked for. When the last one is not over (`is_over`), the node stays drained, and what
/// was changed in it still counts: only what was kept then can be kept now.
pub fn kept_at_asking(kept: Option<&[String]>, is_over: bool) -> Option<Vec<String>> {
    (!is_over).then(|| kept.unwrap_or_default().to_vec())
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
        assert_eq!(kept_resources(&spec(), None, Some(&names(&["a"]))), None, "nobody knows");
    }

    #[test]
    fn what_was_changed_in_a_drain_that_is_not_over_stays_changed() {
        let first = kept_resources(&spec(), Some(&touched(&["0000:01:00.0"])), None);
        let noted = kept_at_asking(first.as_deref(), false);
        assert_eq!(noted, first);
        assert_eq!(
            kept_resources(&spec(), Some(&touched(&["0000:02:00.0"])), noted.as_deref()),
            Some(vec![])
        );
        assert_eq!(kept_at_asking(first.as_deref(), true), None);
        assert_eq!(kept_at_asking(None, false), Some(vec![]), "what is not known counts as changed");
    }
}

//! Trunks: the VLANs of a port as single IDs and ranges.

use core::ops::RangeInclusive;

use crate::cni::protocol::json::{KeyFault, Section};
use crate::prelude::*;

/// Reads `trunk`: the union of all IDs and ranges of the list. `None` if there is no list or an empty one. `ids` are the
/// VLANs that the bridge accepts. As in the Go plugins a range without one of its ends, or with 0 for it, does not count.
pub(super) fn read_trunk(
    root: &Section<'_>,
    ids: RangeInclusive<u16>,
) -> Result<Option<BTreeSet<u16>>, KeyFault> {
    if root.list("trunk")?.is_none_or(<[_]>::is_empty) {
        return Ok(None);
    }
    let mut vlans = BTreeSet::new();
    for entry in root.objects("trunk")? {
        let first = entry.integer("minID", 0..=*ids.end())?.unwrap_or(0);
        let last = entry.integer("maxID", 0..=*ids.end())?;
        if let Some(last) = last.filter(|last| *last < first) {
            let problem = format!("{first} is higher than maxID {last}");
            return Err(KeyFault::new(entry.path_of("minID"), problem));
        }
        let last = last.unwrap_or(0);
        if first > 0 && last > 0 {
            vlans.extend(first..=last);
        }
        vlans.extend(entry.integer("id", ids.clone())?);
    }
    if vlans.is_empty() {
        return Err(KeyFault::new("trunk", "has no VLAN: give each entry an id, or minID and maxID"));
    }
    Ok(Some(vlans))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::cni::protocol::json::Json;

    fn read(trunk: &Value, ids: RangeInclusive<u16>) -> Result<Option<BTreeSet<u16>>, KeyFault> {
        let document: Json = serde_json::from_value(json!({ "Trunk": trunk })).unwrap();
        read_trunk(&Section::new("", &document).unwrap(), ids)
    }

    fn vlans(trunk: &Value) -> Vec<u16> {
        read(trunk, 0..=4095).unwrap().unwrap_or_default().into_iter().collect()
    }

    #[test]
    fn ids_and_ranges_are_united() {
        assert_eq!(vlans(&json!([{ "id": 7 }])), [7]);
        assert_eq!(vlans(&json!([{ "MINid": 10, "maxid": 12 }, { "id": 11 }, { "ID": 5 }])), [5, 10, 11, 12]);
        assert_eq!(vlans(&json!([{ "id": 3, "minID": 1, "maxID": 2 }])), [1, 2, 3]);
        assert_eq!(vlans(&json!([{ "minID": 4095, "maxID": 4095 }, { "id": 0 }])), [0, 4095]);
        assert_eq!(vlans(&json!([{ "minID": 1, "maxID": 3 }, { "minID": 2, "maxID": 4 }])), [1, 2, 3, 4]);
    }

    #[test]
    fn ranges_without_an_end_do_not_count() {
        for range in [
            json!({ "minID": 5 }),
            json!({ "maxID": 5 }),
            json!({ "minID": 0, "maxID": 5 }),
            json!({ "minID": 0, "maxID": 0 }),
            json!({ "minID": null, "maxID": 5 }),
            json!({}),
            json!(null),
        ] {
            assert_eq!(vlans(&json!([range, { "id": 9 }])), [9], "{range}");
            let fault = read(&json!([range]), 0..=4095).unwrap_err();
            assert_eq!(fault.key, "trunk", "{range}");
        }
    }

    #[test]
    fn no_list_and_an_empty_one_are_no_trunk() {
        for trunk in [json!(null), json!([])] {
            assert_eq!(read(&trunk, 0..=4095), Ok(None));
        }
    }

    #[test]
    fn faulty_entries_are_named() {
        for (trunk, key) in [
            (json!({ "id": 1 }), "trunk"),
            (json!([5]), "trunk[0]"),
            (json!([{ "id": 1 }, { "id": 4095 }]), "trunk[1].id"),
            (json!([{ "id": 0 }]), "trunk[0].id"),
            (json!([{ "id": -1 }]), "trunk[0].id"),
            (json!([{ "id": "7" }]), "trunk[0].id"),
            (json!([{ "id": 7.5 }]), "trunk[0].id"),
            (json!([{ "minID": 4096, "maxID": 4096 }]), "trunk[0].minID"),
            (json!([{ "minID": 1, "maxID": 4095 }]), "trunk[0].maxID"),
            (json!([{ "minID": 5, "maxID": 4 }]), "trunk[0].minID"),
            (json!([{ "minID": 5, "maxID": 0 }]), "trunk[0].minID"),
        ] {
            assert_eq!(read(&trunk, 1..=4094).unwrap_err().key, key, "{trunk}");
        }
    }

    proptest! {
        #[test]
        fn every_vlan_is_in_an_entry(ends in prop::collection::vec((0_u16..60, 0_u16..60), 1..4)) {
            let entries: Vec<_> = ends.iter().map(|(first, last)| json!({ "minID": first, "maxID": last })).collect();
            let counts = |(first, last): &(u16, u16)| *first > 0 && first <= last;
            match read(&json!(entries), 1..=4094) {
                Ok(vlans) => {
                    let expected: BTreeSet<u16> =
                        ends.iter().filter(|ends| counts(ends)).flat_map(|(first, last)| *first..=*last).collect();
                    prop_assert_eq!(vlans, Some(expected));
                }
                Err(_) => prop_assert!(
                    ends.iter().any(|(first, last)| last < first) || !ends.iter().any(counts)
                ),
            }
        }
    }
}

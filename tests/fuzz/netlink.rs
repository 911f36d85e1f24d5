//! Netlink messages of the kernel.

use vfleet_host::fuzzing;

use crate::driver::{Target, Verdict};

/// Returns an attribute of an unknown type.
fn unknown_attribute() -> Vec<u8> {
    fuzzing::encode_attributes(&[(0x3ffe, vec![1, 2, 3, 4])])
}

/// Asserts that an unknown attribute does not change the parsed message.
fn check_unknown_attributes<T: std::fmt::Debug>(
    parse: impl Fn(&[u8]) -> Option<T>,
    payload: &[u8],
) -> Verdict {
    let found = parse(payload);
    if found.is_some() && payload.len().is_multiple_of(4) {
        let longer = parse(&[payload, &unknown_attribute()].concat());
        assert_eq!(format!("{found:?}"), format!("{longer:?}"));
    }
    Verdict::of(found.is_some())
}

#[test]
fn attributes() {
    Target::new("attributes").run(|bytes| {
        let Some(found) = fuzzing::attributes(bytes) else { return Verdict::Refused };
        let consumed: usize = found.iter().map(|(_, value)| (4 + value.len()).next_multiple_of(4)).sum();
        assert!(consumed + 4 > bytes.len(), "{consumed} of {} bytes were read", bytes.len());
        let encoded = fuzzing::encode_attributes(&found);
        assert_eq!(fuzzing::attributes(&encoded).as_ref(), Some(&found));
        Verdict::Accepted
    });
}

#[test]
fn netlink_reply() {
    Target::new("netlink_reply").run(|bytes| {
        let Some(replies) = fuzzing::replies(bytes) else { return Verdict::Refused };
        let data: usize = replies.iter().flatten().sum();
        assert!(replies.len() * 16 <= bytes.len(), "more messages than the input can contain");
        for reply in &replies {
            assert!(
                reply.as_ref().map_or_else(|errno| *errno > 0, |length| *length < bytes.len()),
                "{reply:?}"
            );
        }
        // Only data messages are complete here: other messages are longer than the parsed part.
        let is_data = replies.iter().all(|reply| matches!(reply, Ok(1..)));
        assert!(
            !is_data || data + (16 + 3) * replies.len() >= bytes.len(),
            "{data} of {} bytes",
            bytes.len()
        );
        Verdict::of(!replies.is_empty())
    });
}

#[test]
fn link() {
    Target::new("link").run(|payload| {
        if let Some(link) = fuzzing::link(payload) {
            assert!(link.max_mtu != Some(0), "{link:?}");
            assert!(!link.name.contains('\0') && !link.alt_names.iter().any(|name| name.contains('\0')));
            // A VF has at least its index, after two headers.
            assert!(link.vfs.len() * 12 <= payload.len(), "{link:?}");
            assert!(link.alias.as_ref().is_none_or(|alias| !alias.is_empty() && !alias.contains('\0')));
            // With its header a setting takes at least 5 bytes.
            assert!(link.port.len() * 5 <= payload.len(), "{link:?}");
            if let Some(bridge) = &link.bridge {
                assert_eq!((&bridge.name, &bridge.alias, bridge.mtu), (&link.name, &link.alias, link.mtu));
            }
        }
        match fuzzing::bridge_event(payload) {
            // The facts of a bridge are the same the second time. A port of an unknown bridge stays relevant.
            Some((is_relevant, again)) => assert!(is_relevant && again == (payload.first() == Some(&7))),
            None => assert!(fuzzing::link(payload).is_none_or(|link| link.bridge.is_none())),
        }
        check_unknown_attributes(fuzzing::link, payload)
    });
}

const RTA_MULTIPATH: u16 = 9;

/// Returns whether a list of hops, each with a length prefix, is complete.
fn are_complete(hops: &[u8]) -> bool {
    let [low, high, _, _, _, _, _, _, ..] = *hops else { return true };
    let length = usize::from(u16::from_ne_bytes([low, high]));
    (8..=hops.len()).contains(&length)
        && are_complete(hops.get(length.next_multiple_of(4)..).unwrap_or_default())
}

#[test]
fn route() {
    Target::new("route").run(|payload| {
        let found = fuzzing::route(payload);
        let hops = found.as_ref().map_or(0, Vec::len);
        let attributes = payload.get(12..).and_then(fuzzing::attributes).unwrap_or_default();
        if let (Some(_), Some((_, hops))) =
            (&found, attributes.iter().find(|(kind, _)| *kind == RTA_MULTIPATH))
        {
            assert!(are_complete(hops), "a truncated hop was accepted");
        }
        assert!(hops * 8 <= payload.len(), "{hops} hops in {} bytes", payload.len());
        check_unknown_attributes(fuzzing::route, payload)
    });
}

#[test]
fn address() {
    Target::new("address").run(|payload| check_unknown_attributes(fuzzing::address, payload));
}

#[test]
fn next_hop() {
    Target::new("next_hop").run(|payload| {
        if let Some((_, _, group)) = fuzzing::next_hop(payload) {
            assert!(group.len() * 8 <= payload.len(), "{group:?}");
        }
        check_unknown_attributes(fuzzing::next_hop, payload)
    });
}

#[test]
fn genl_family() {
    Target::new("genl_family").run(|answer| check_unknown_attributes(fuzzing::family_id, answer));
}

#[test]
fn devlink_eswitch() {
    Target::new("devlink_eswitch").run(|answer| check_unknown_attributes(fuzzing::eswitch_mode, answer));
}

#[test]
fn devlink_parameter() {
    Target::new("devlink_parameter").run(|answer| {
        if let Some((_, value)) = fuzzing::devlink_parameter(answer) {
            assert!(!value.contains('\0'), "{value:?}");
        }
        check_unknown_attributes(fuzzing::devlink_parameter, answer)
    });
}

#[test]
fn devlink_port() {
    Target::new("devlink_port").run(|answer| {
        let found = fuzzing::devlink_port(answer);
        assert!(found.is_none_or(|(interface, _)| interface != Some(0)), "{found:?}");
        check_unknown_attributes(fuzzing::devlink_port, answer)
    });
}

#[test]
fn vdpa_config() {
    Target::new("vdpa_config").run(|answer| check_unknown_attributes(fuzzing::vdpa_config, answer));
}

#[test]
fn port_vlans() {
    Target::new("port_vlans").run(|payload| {
        if let Some((_, vlans)) = fuzzing::port_vlans(payload) {
            assert!(vlans.is_sorted_by(|one, other| one.id < other.id), "{vlans:?}");
            assert!(vlans.iter().all(|vlan| (1..=4094).contains(&vlan.id)), "{vlans:?}");
        }
        check_unknown_attributes(fuzzing::port_vlans, payload)
    });
}

#[test]
fn ethtool_features() {
    Target::new("ethtool_features")
        .run(|answer| check_unknown_attributes(|answer| fuzzing::feature(answer, "hw-tc-offload"), answer));
}

#[test]
fn rdma_mode() {
    Target::new("rdma_mode").run(|answer| check_unknown_attributes(fuzzing::rdma_mode, answer));
}

#[test]
fn rdma_device() {
    Target::new("rdma_device").run(|answer| {
        if let Some((_, name)) = fuzzing::rdma_device(answer) {
            assert!(!name.contains('\0'), "{name:?}");
        }
        check_unknown_attributes(fuzzing::rdma_device, answer)
    });
}

#[test]
fn uevent() {
    Target::new("uevent").run(|bytes| {
        let Some((device, subsystem)) = fuzzing::uevent(bytes) else { return Verdict::Refused };
        assert!(!device.contains(&0) && !subsystem.contains(&0), "{device:?} {subsystem:?}");
        let printed = [b"add@", device, b"\0SUBSYSTEM=", subsystem, b"\0"].concat();
        assert_eq!(fuzzing::uevent(&printed), Some((device, subsystem)));
        Verdict::Accepted
    });
}

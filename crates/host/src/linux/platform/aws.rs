//! Networks of a machine on AWS: the subnet of each of its interfaces.

use vfleet_api::MacAddr;

use super::Networks;
use super::http::Service;
use crate::HostError;

const INTERFACES: &str = "/latest/meta-data/network/interfaces/macs/";
/// Lifetime of the token in seconds. It is used for these requests only.
const TOKEN_LIFETIME: &str = "60";

/// Reads the networks of the machine by MAC address.
pub(super) fn read_networks(service: Service) -> Result<Networks, HostError> {
    let lifetime = ("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_LIFETIME);
    let token = service.put("/latest/api/token", &[lifetime])?;
    let token = [("X-aws-ec2-metadata-token", token.trim())];
    let mut networks = Networks::default();
    for mac in parse_macs(&service.get(INTERFACES, &token)?) {
        let subnet = service.get(&format!("{INTERFACES}{mac}/subnet-id"), &token)?;
        networks.by_mac.insert(mac, format_network(&subnet));
    }
    Ok(networks)
}

/// Parses a list of MAC addresses: one per line, each followed by a slash.
pub(in super::super) fn parse_macs(list: &str) -> Vec<MacAddr> {
    list.lines().filter_map(|line| line.trim().trim_end_matches('/').parse().ok()).collect()
}

/// Returns the network of a subnet in the format of `netFilter`.
pub(in super::super) fn format_network(subnet: &str) -> String {
    let id = subnet.trim();
    format!("aws/NetworkID:{}", id.strip_prefix("subnet-").unwrap_or(id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_address_in_the_list_ends_with_a_slash() {
        let list = "0e:49:61:0f:c3:11/\n0e:49:61:0f:c3:12/\nsomething\n";
        let found: Vec<String> = parse_macs(list).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["0e:49:61:0f:c3:11", "0e:49:61:0f:c3:12"]);
    }

    proptest! {
        #[test]
        fn accepts_any_list(text in "(?s).{0,200}") {
            let _ = (parse_macs(&text), format_network(&text));
        }
    }
}

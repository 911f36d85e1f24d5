//! The networks of a machine in Amazon's cloud: the subnet of each of its interfaces.

use vfleet_api::MacAddr;

use super::Networks;
use super::http::Service;
use crate::HostError;

const INTERFACES: &str = "/latest/meta-data/network/interfaces/macs/";
/// How long our token is good for: we ask only now.
const SECONDS: &str = "60";

pub(super) fn networks(service: Service) -> Result<Networks, HostError> {
    let lifetime = ("X-aws-ec2-metadata-token-ttl-seconds", SECONDS);
    let token = service.put("/latest/api/token", &[lifetime])?;
    let token = [("X-aws-ec2-metadata-token", token.trim())];
    let mut networks = Networks::default();
    for mac in macs(&service.get(INTERFACES, &token)?) {
        let subnet = service.get(&format!("{INTERFACES}{mac}/subnet-id"), &token)?;
        networks.by_mac.insert(mac, network(&subnet));
    }
    Ok(networks)
}

/// One on each line, with a slash behind it.
pub(in super::super) fn macs(list: &str) -> Vec<MacAddr> {
    list.lines().filter_map(|line| line.trim().trim_end_matches('/').parse().ok()).collect()
}

pub(in super::super) fn network(subnet: &str) -> String {
    let id = subnet.trim();
    format!("aws/NetworkID:{}", id.strip_prefix("subnet-").unwrap_or(id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_list_has_a_slash_behind_each_address() {
        let list = "0e:49:61:0f:c3:11/\n0e:49:61:0f:c3:12/\nsomething\n";
        let found: Vec<String> = macs(list).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["0e:49:61:0f:c3:11", "0e:49:61:0f:c3:12"]);
    }

    proptest! {
        #[test]
        fn takes_any_list(text in "(?s).{0,200}") {
            let _ = (macs(&text), network(&text));
        }
    }
}

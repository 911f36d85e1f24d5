//! Metadata of cloud machines.

use vfleet_host::fuzzing;
use vfleet_plan::Platform;

use crate::driver::{Target, Verdict};

#[test]
fn http_answer() {
    const WORDS: &[&str] =
        &["Content-Length: 5", "content-length: 99999999999999999999", "\r\n\r\n", "HTTP/1.0 200 "];
    Target::new("http_answer").with_words(WORDS).run(|answer| {
        let body = match fuzzing::http_body(answer) {
            Ok(body) => body,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return Verdict::Refused;
            }
        };
        let text = String::from_utf8_lossy(answer);
        assert!(text.starts_with("HTTP/1.") && text.ends_with(&body));
        let head = &text[..text.find("\r\n\r\n").unwrap()];
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().to_owned())
        });
        if let Some(length) = length {
            let sent = answer.len() - answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() - 4;
            let length = length.trim_start_matches('0');
            let is_covered = length.is_empty() || length.parse::<usize>().is_ok_and(|length| length <= sent);
            assert!(is_covered, "{length} bytes were announced, and {sent} came");
        }
        Verdict::Accepted
    });
}

/// Parses the two metadata files of OpenStack.
const SEPARATOR: &str = "\n=====\n";

#[test]
fn openstack() {
    Target::new("openstack").with_words(&[SEPARATOR]).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (network_data, meta_data) = text.split_once(SEPARATOR).unwrap_or((&text, "{}"));
        let (by_mac, by_address) = match fuzzing::openstack(network_data, meta_data) {
            Ok(found) => found,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return Verdict::Refused;
            }
        };
        assert!(
            by_mac
                .values()
                .all(|network| network.strip_prefix("openstack/NetworkID:").is_some_and(|id| !id.is_empty()))
        );
        assert!(by_address.values().all(|network| by_mac.values().any(|known| known == network)));
        Verdict::of(!by_mac.is_empty())
    });
}

#[test]
fn aws() {
    Target::new("aws").run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let macs = fuzzing::aws_interfaces(&text);
        let lower = text.to_lowercase();
        assert!(macs.iter().all(|mac| lower.contains(&mac.to_string())), "{macs:?}");
        assert!(fuzzing::aws_network(&text).starts_with("aws/NetworkID:"));
        let is_cloud = Platform::from_provider_id(&text) != Platform::BareMetal;
        Verdict::of(!macs.is_empty() || is_cloud)
    });
}

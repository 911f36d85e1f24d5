//! Limits in the documentation match the code.

use super::*;

#[test]
fn limits_are_documented_correctly() {
    let page = include_str!("../../../../../../docs/ports.md");
    let few = ServerLimits::FEW_CLIENTS;
    let (seconds, kib) = (|time: Duration| time.as_secs(), |bytes: usize| bytes / 1024);
    for row in [
        format!("| connections | {} | {} |", LIMITS.connections, few.connections),
        format!(
            "| connections of one peer (address) | {} | {} |",
            LIMITS.connections_per_peer, few.connections_per_peer
        ),
        format!("| TLS handshake | {} s | |", seconds(LIMITS.handshake)),
        format!(": from the connection on) | {} s | {} s |", seconds(LIMITS.header), seconds(few.header)),
        format!("| between requests | {} min | {} min |", seconds(LIMITS.idle) / 60, seconds(few.idle) / 60),
        format!("end of its response | {} s | {} s |", seconds(LIMITS.request), seconds(few.request)),
        format!("| header | {} KiB | {} KiB |", kib(LIMITS.header_bytes), kib(few.header_bytes)),
        format!(
            "| body | {} MiB, and at most {} over {} KiB at once | not read |",
            kib(REVIEWS.largest) / 1024,
            REVIEWS.large_at_once,
            kib(REVIEWS.small)
        ),
    ] {
        assert!(page.contains(&row), "docs/ports.md does not have: {row}");
    }
}

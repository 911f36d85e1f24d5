//! Limits of a server.

use std::time::Duration;

/// Limits of one server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most connections at once.
    pub connections: usize,
    /// Most connections of one peer at once.
    pub connections_per_peer: usize,
    /// Time from the connection to the end of the TLS handshake.
    pub handshake: Duration,
    /// Time from the first byte of a request to the end of its header. Without TLS, the first request has that long from
    /// the connection on.
    pub header: Duration,
    /// Time between the end of a response, or of the TLS handshake, and the first byte of the next request.
    pub idle: Duration,
    /// Time from the end of a request's header to the end of its response.
    pub request: Duration,
    /// Time that requests in progress have when the server ends.
    pub finish: Duration,
    /// Most bytes of a request's header.
    pub header_bytes: usize,
}

impl Limits {
    /// Limits of a server with few clients: the kubelet, Prometheus.
    pub const FEW_CLIENTS: Self = Self::new(64, 32);

    /// Limits with the usual times and sizes.
    pub const fn new(connections: usize, connections_per_peer: usize) -> Self {
        Self {
            connections,
            connections_per_peer,
            handshake: Duration::from_secs(5),
            header: Duration::from_secs(5),
            // An API server closes an idle connection after 90 seconds. It must be the first to do so: one that is closed
            // here while it sends a request would fail somebody's write.
            idle: Duration::from_mins(3),
            // Webhooks answer within 4.5 seconds, and Prometheus waits for 10 by default.
            request: Duration::from_secs(10),
            finish: Duration::from_secs(5),
            // An API server sends less than one KiB.
            header_bytes: 32 * 1024,
        }
    }
}

//! Limits of a server.

use std::time::Duration;

/// Limits of one server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of connections of one peer.
    pub connections_per_peer: usize,
    /// Time from the connection to the end of the TLS handshake.
    pub handshake: Duration,
    /// Time from the first byte of a request to the end of its header. Without TLS, the time of the first request
    /// starts with the connection.
    pub header: Duration,
    /// Time between the end of a response, or of the TLS handshake, and the first byte of the next request.
    pub idle: Duration,
    /// Time from the end of a request header to the end of the response.
    pub request: Duration,
    /// Time for requests in progress when the server shuts down.
    pub finish: Duration,
    /// Maximum size of a request header in bytes.
    pub header_bytes: usize,
}

impl ServerLimits {
    /// Limits of a server with few clients: the kubelet, Prometheus.
    pub const FEW_CLIENTS: Self = Self::new(64, 32);

    /// Limits with the usual times and sizes.
    pub const fn new(connections: usize, connections_per_peer: usize) -> Self {
        Self {
            connections,
            connections_per_peer,
            handshake: Duration::from_secs(5),
            header: Duration::from_secs(5),
            // An API server closes idle connections after 90 seconds. It must do so first: if this server closed the
            // connection while a request is being sent, a write of a user would fail.
            idle: Duration::from_mins(3),
            // Webhooks answer within 4.5 seconds, and Prometheus waits for 10 by default.
            request: Duration::from_secs(10),
            finish: Duration::from_secs(5),
            // An API server sends less than 1 KiB.
            header_bytes: 32 * 1024,
        }
    }
}

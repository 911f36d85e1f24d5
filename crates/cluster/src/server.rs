//! Small HTTP servers, with or without TLS, that stay available under any number of connections.
//!
//! Any client that can reach a port can open connections and leave them open. Each server therefore has its own
//! [`ServerLimits`]: the number of its connections, in total and per peer, so that no port can use up the file
//! descriptors of the process, and a deadline for each phase of a connection. A new connection is never refused,
//! because it may be a probe of the kubelet or a review of the API server: a full server closes the longest idle
//! connection of the peer that has most of them.
//!
//! A [`Server`] serves the connections of a [`Listener`]: TCP, or any other bidirectional stream.

mod activity;
mod address;
mod body;
mod connection;
mod connections;
mod limits;
mod listener;
mod metrics;
mod table;

use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::connection::Protocol;
use self::connections::Connections;
use self::listener::Acceptor;

pub use self::address::{BindAddress, BindError, ParseAddressError};
pub use self::body::{BodyError, BodyLimits, BodyReader, LargePermit};
pub use self::limits::ServerLimits;
pub use self::listener::Listener;
pub use self::metrics::metrics_route;

/// HTTP/1.1 server.
pub struct Server {
    name: &'static str,
    limits: ServerLimits,
    router: Router,
    tls: Option<TlsAcceptor>,
}

impl Server {
    /// Creates a server for plain HTTP. `name` identifies it in the log.
    pub fn new(name: &'static str, router: Router, limits: ServerLimits) -> Self {
        Self { name, limits, router, tls: None }
    }

    /// Enables TLS.
    #[must_use]
    pub fn with_tls(mut self, acceptor: TlsAcceptor) -> Self {
        self.tls = Some(acceptor);
        self
    }

    /// Serves the connections of `listener` until `end`, then closes the listener and finishes the requests in
    /// progress, for at most [`ServerLimits::finish`].
    pub async fn serve<L: Listener>(self, listener: L, end: impl Future<Output = ()>) {
        let (name, limits) = (self.name, self.limits);
        let finish = CancellationToken::new();
        let protocol =
            Arc::new(Protocol { name, limits, router: self.router, tls: self.tls, finish: finish.clone() });
        let mut connections = Connections::new(name, limits);
        let mut acceptor = Acceptor::new(name, listener);
        let mut end = pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                () = connections.wait_for_one() => {}
                accepted = acceptor.next(), if connections.has_room() => match accepted {
                    Ok((stream, peer)) => {
                        let protocol = Arc::clone(&protocol);
                        connections.open(peer, |peer, activity| protocol.run(stream, peer, activity));
                    }
                    // The process has no file descriptor left: closing an idle connection frees one.
                    Err(_) => connections.close_longest_idle(),
                },
            }
        }
        drop(acceptor);
        finish.cancel();
        // Requests that are not complete by then are aborted.
        let _ = timeout(limits.finish, connections.wait_for_all()).await;
    }
}

#[cfg(test)]
mod tests;

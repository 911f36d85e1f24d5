//! Small HTTP servers, with TLS or without, that stay available whoever connects to them.
//!
//! Everybody who can reach a port can open connections to it and leave them open. Each server therefore has [`Limits`] of
//! its own: the number of its connections, in total and by peer, never exceeds them, so that no port can use up the file
//! descriptors of the process, and each phase of a connection has a deadline. A new connection is never refused, because it
//! may be the kubelet's probe or the API server's question: when a server is full, it closes the longest idle
//! connection of the peer that has most of them.
//!
//! A [`Server`] answers on every connection that a [`Listener`] accepts, be it TCP or anything else with two directions.

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
use self::listener::Accepting;

pub use self::address::{BindAddress, BindError, ParseAddressError};
pub use self::body::{BodyError, BodyLimits, BodyReader, LargePermit};
pub use self::limits::Limits;
pub use self::listener::Listener;
pub use self::metrics::metrics_route;

/// An HTTP/1.1 server.
pub struct Server {
    name: &'static str,
    limits: Limits,
    router: Router,
    tls: Option<TlsAcceptor>,
}

impl Server {
    /// Creates a server of plain HTTP. The log calls it `name`.
    pub fn new(name: &'static str, router: Router, limits: Limits) -> Self {
        Self { name, limits, router, tls: None }
    }

    /// Speaks TLS instead.
    #[must_use]
    pub fn with_tls(mut self, acceptor: TlsAcceptor) -> Self {
        self.tls = Some(acceptor);
        self
    }

    /// Answers on all connections of `listener` until `end`, then closes the listener and finishes the requests in
    /// progress, for at most [`Limits::finish`].
    pub async fn serve<L: Listener>(self, listener: L, end: impl Future<Output = ()>) {
        let (name, limits) = (self.name, self.limits);
        let finish = CancellationToken::new();
        let protocol =
            Arc::new(Protocol { name, limits, router: self.router, tls: self.tls, finish: finish.clone() });
        let mut connections = Connections::new(name, limits);
        let mut accepting = Accepting::new(name, listener);
        let mut end = pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                () = connections.reap() => {}
                accepted = accepting.next(), if connections.has_room() => match accepted {
                    Ok((stream, peer)) => {
                        let protocol = Arc::clone(&protocol);
                        connections.open(peer, |peer, activity| protocol.run(stream, peer, activity));
                    }
                    // The process has no descriptor left for a new connection: an idle one gives up its own.
                    Err(_) => connections.close_longest_idle(),
                },
            }
        }
        drop(accepting);
        finish.cancel();
        // Requests that are not complete by then are given up.
        let _ = timeout(limits.finish, connections.all_ended()).await;
    }
}

#[cfg(test)]
mod tests;

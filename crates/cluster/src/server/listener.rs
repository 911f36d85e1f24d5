//! Sources of connections.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

/// Source of connections.
pub trait Listener {
    /// Stream of a connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Client address, by which [`ServerLimits::connections_per_peer`](super::ServerLimits) counts.
    type Peer: Copy + Debug + Display + Eq + Hash + Send + 'static;

    /// Waits for the next connection. Cancel safe.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, Self::Peer)>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    type Peer = IpAddr;

    async fn accept(&mut self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, address) = Self::accept(self).await?;
        // Requests and responses are small: send them without delay.
        let _ = stream.set_nodelay(true);
        // An IPv4 client has the same address on an IPv4 and on an IPv6 socket.
        Ok((stream, address.ip().to_canonical()))
    }
}

/// First pause after an error; it doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Loop around a listener that pauses after errors.
pub(super) struct Acceptor<L> {
    name: &'static str,
    listener: L,
    /// Pause before the next attempt, and its end.
    pause: Option<(Duration, Instant)>,
}

impl<L: Listener> Acceptor<L> {
    pub(super) fn new(name: &'static str, listener: L) -> Self {
        Self { name, listener, pause: None }
    }

    /// Returns the next connection, or the error that keeps the process from accepting one now.
    pub(super) async fn next(&mut self) -> io::Result<(L::Stream, L::Peer)> {
        loop {
            if let Some((_, end)) = self.pause {
                sleep_until(end).await;
            }
            match self.listener.accept().await {
                Ok(accepted) => {
                    if self.pause.take().is_some() {
                        tracing::info!(server = self.name, "accepting connections again");
                    }
                    return Ok(accepted);
                }
                // Concerns only the connection that was to be accepted.
                Err(error) if is_connection_error(&error) => {}
                Err(error) => {
                    self.start_pause(&error);
                    return Err(error);
                }
            }
        }
    }

    fn start_pause(&mut self, error: &io::Error) {
        let pause = match self.pause {
            // Logged once per series of errors.
            None => {
                tracing::error!(
                    server = self.name, %error,
                    "cannot accept connections: retrying; if the limit of open files is reached, raise it"
                );
                SHORTEST_PAUSE
            }
            Some((last, _)) => (last * 2).min(LONGEST_PAUSE),
        };
        self.pause = Some((pause, Instant::now() + pause));
    }
}

fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

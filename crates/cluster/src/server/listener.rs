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
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// The other end of connections, which [`Limits::connections_per_peer`](super::Limits) counts by.
    type Peer: Copy + Debug + Display + Eq + Hash + Send + 'static;

    /// Waits for the next connection. No connection is lost when the future is dropped before it is ready.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, Self::Peer)>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    type Peer = IpAddr;

    async fn accept(&mut self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, address) = Self::accept(self).await?;
        // Requests and responses are small, and somebody waits for them.
        let _ = stream.set_nodelay(true);
        // An IPv4 peer is the same one by whichever address family it was accepted.
        Ok((stream, address.ip().to_canonical()))
    }
}

/// First pause after an error, which doubles up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Accepts connections one after the other, with pauses after errors.
pub(super) struct Accepting<L> {
    name: &'static str,
    listener: L,
    /// Pause before the next attempt, and its end.
    pause: Option<(Duration, Instant)>,
}

impl<L: Listener> Accepting<L> {
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
                        tracing::info!(server = self.name, "connections are accepted again");
                    }
                    return Ok(accepted);
                }
                // Only the one connection that was to be accepted is gone.
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    self.rest(&error);
                    return Err(error);
                }
            }
        }
    }

    fn rest(&mut self, error: &io::Error) {
        let pause = match self.pause {
            // Once: nothing else is worth saying until it works again.
            None => {
                tracing::error!(
                    server = self.name, %error,
                    "cannot accept connections: trying again; raise the limit of open files if it is reached"
                );
                SHORTEST_PAUSE
            }
            Some((last, _)) => (last * 2).min(LONGEST_PAUSE),
        };
        self.pause = Some((pause, Instant::now() + pause));
    }
}

fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

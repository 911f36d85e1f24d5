//! Servers whose connections are pipes, so that time can be simulated; TCP only where the kernel matters.

mod accepting;
mod bodies;
mod crowds;
mod deadlines;
mod ending;
mod requests;
mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::*;

const GET: &[u8] = b"GET /ok HTTP/1.1\r\nHost: a\r\n\r\n";
const HALF_A_HEADER: &[u8] = b"GET /ok HTTP/1.1\r\nHost";

/// Listener for connections that the test creates.
struct Pipes(mpsc::UnboundedReceiver<io::Result<(DuplexStream, u8)>>);

impl Listener for Pipes {
    type Stream = DuplexStream;
    type Peer = u8;

    async fn accept(&mut self) -> io::Result<(DuplexStream, u8)> {
        match self.0.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }
}

/// Server that is stopped at the end of the test.
struct Fixture {
    connections: mpsc::UnboundedSender<io::Result<(DuplexStream, u8)>>,
    /// `/later` takes one of these before it answers.
    permits: Arc<Semaphore>,
    end: CancellationToken,
    task: JoinHandle<()>,
}

impl Fixture {
    fn start(limits: ServerLimits) -> Self {
        Self::start_with(limits, |server| server)
    }

    fn start_with(limits: ServerLimits, change: impl FnOnce(Server) -> Server) -> Self {
        let (connections, accepted) = mpsc::unbounded_channel();
        let (permits, end) = (Arc::new(Semaphore::new(0)), CancellationToken::new());
        let server = change(Server::new("test", router(&permits), limits));
        let task = tokio::spawn(server.serve(Pipes(accepted), end.clone().cancelled_owned()));
        Self { connections, permits, end, task }
    }

    /// Connects as `peer`.
    fn connect(&self, peer: u8) -> Client<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(1024);
        self.connections.send(Ok((theirs, peer))).unwrap();
        Client(ours)
    }

    /// Connects as `peer`, and advances time so that the next connection is younger.
    async fn connect_before_others(&self, peer: u8) -> Client<DuplexStream> {
        let client = self.connect(peer);
        advance(Duration::from_millis(5)).await;
        client
    }

    fn fail(&self, errno: i32) {
        self.connections.send(Err(io::Error::from_raw_os_error(errno))).unwrap();
    }
}

fn router(permits: &Arc<Semaphore>) -> Router {
    let permits = Arc::clone(permits);
    let later = async move || {
        permits.acquire().await.unwrap().forget();
        "later"
    };
    let echo = async |body: Body| axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    Router::new()
        .route("/ok", get(async || "ok"))
        .route("/later", get(later))
        .route("/large", get(async || "x".repeat(1024 * 1024)))
        .route("/panic", get(async || -> &'static str { panic!("requested by the test") }))
        .route("/echo", post(echo))
}

/// Advances simulated time, and runs everything that is due until then.
async fn advance(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

/// Other end of a connection.
struct Client<S>(S);

impl<S: AsyncReadExt + AsyncWriteExt + Unpin> Client<S> {
    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Returns the status and the body of the next response; `None` when the connection is closed.
    async fn read_response(&mut self) -> Option<(u16, String)> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.0.read_exact(&mut body).await.ok()?;
        Some((status, String::from_utf8(body).unwrap()))
    }

    /// Sends a request for `/ok` and returns whether it is answered.
    async fn is_answered(&mut self) -> bool {
        self.0.write_all(GET).await.is_ok() && self.read_response().await == Some((200, "ok".to_owned()))
    }

    /// Waits until the server closes the connection; returns the time until then.
    async fn wait_until_closed(&mut self) -> Duration {
        let start = Instant::now();
        let _ = self.0.read_to_end(&mut Vec::new()).await;
        start.elapsed()
    }

    /// Returns whether the server has closed the connection.
    async fn is_closed(&mut self) -> bool {
        timeout(Duration::from_millis(1), self.0.read_u8()).await.is_ok()
    }
}

/// Asserts that `time` equals `limit`, up to the resolution of timers.
#[track_caller]
fn assert_took(time: Duration, limit: Duration) {
    let tolerance = Duration::from_millis(10);
    assert!(time + tolerance >= limit && time <= limit + tolerance, "{time:?}, not {limit:?}");
}

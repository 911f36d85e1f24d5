//! Connections: TLS handshake, requests and deadlines.

use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::ServerLimits;
use super::activity::{Activity, Phase};

/// Settings that all connections of a server share.
pub(super) struct Protocol {
    pub(super) name: &'static str,
    pub(super) limits: ServerLimits,
    pub(super) router: Router,
    pub(super) tls: Option<TlsAcceptor>,
    /// Ends each connection after the request in progress.
    pub(super) finish: CancellationToken,
}

/// Error that ends a connection.
#[derive(Debug, Error)]
enum ConnectionError {
    #[error("TLS handshake failed")]
    Handshake(#[source] io::Error),
    #[error("TLS handshake took too long")]
    SlowHandshake,
    #[error("HTTP connection failed")]
    Http(#[source] hyper::Error),
    #[error("deadline exceeded while {}", .0.description())]
    Deadline(Phase),
}

impl Protocol {
    /// Runs a connection until its end.
    pub(super) async fn run<S>(self: Arc<Self>, stream: S, peer: impl Display, activity: Arc<Activity>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let ended = match &self.tls {
            None => self.serve(stream, &activity).await,
            Some(tls) => match timeout(self.limits.handshake, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    activity.enter(Phase::Idle);
                    self.serve(stream, &activity).await
                }
                Ok(Err(error)) => Err(ConnectionError::Handshake(error)),
                Err(_) => Err(ConnectionError::SlowHandshake),
            },
        };
        if let Err(error) = ended {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::debug!(server = self.name, %peer, %error, cause, "connection closed");
        }
    }

    async fn serve<S>(&self, stream: S, activity: &Arc<Activity>) -> Result<(), ConnectionError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(|request| {
            activity.enter(Phase::Request);
            let (response, activity) = (router.call(request), Arc::clone(activity));
            async move { response.await.map(|response| response.map(|body| TrackedBody { body, activity })) }
        });
        let mut settings = http1::Builder::new();
        // The deadline below includes the header.
        settings.header_read_timeout(None).max_buf_size(self.limits.header_bytes);
        let stream = TokioIo::new(ActivityStream { stream, activity: Arc::clone(activity) });
        let mut connection = pin!(settings.serve_connection(stream, service));
        let mut finish = pin!(self.finish.cancelled());
        let mut is_finishing = false;
        let mut deadline = pin!(sleep_until(activity.deadline(&self.limits)));
        poll_fn(|context| {
            if !is_finishing && finish.as_mut().poll(context).is_ready() {
                is_finishing = true;
                connection.as_mut().graceful_shutdown();
            }
            if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                return Poll::Ready(ended.map_err(ConnectionError::Http));
            }
            // Phases change only while the connection is polled.
            let due = activity.deadline(&self.limits);
            if due < deadline.deadline() {
                deadline.as_mut().reset(due);
            }
            while deadline.as_mut().poll(context).is_ready() {
                if due <= Instant::now() {
                    return Poll::Ready(Err(ConnectionError::Deadline(activity.phase())));
                }
                deadline.as_mut().reset(due);
            }
            Poll::Pending
        })
        .await
    }
}

/// Response body that records its end.
struct TrackedBody<B> {
    body: B,
    activity: Arc<Activity>,
}

impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        self.activity.record_response_end();
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Stream that records when bytes are received and sent.
struct ActivityStream<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ActivityStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.record_received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ActivityStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.activity.record_flushed();
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

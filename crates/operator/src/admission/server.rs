//! Webhook server. Every pod in the cluster can reach it, so connections and bodies are limited per peer and in total.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use vfleet_cluster::server::{BodyError, BodyLimits, BodyReader, Server, ServerLimits};

use super::review::{AdmissionResponse, Review, ReviewRequest, reply};
use super::tls::{CertificateResolver, build_acceptor};
use crate::OperatorError;
use crate::replica::context::Context;
use crate::replica::metrics::Metrics;

/// Path of the validating webhook for objects of this operator.
pub(crate) const VALIDATE: &str = "/validating-custom-resource";
/// Path of the mutating webhook for policies.
pub(crate) const MUTATE: &str = "/mutating-custom-resource";
/// Path of the mutating webhook for pods.
pub(crate) const PODS: &str = "/mutate";

/// Limits of connections. One API server has at most 200 writes in progress by default, and behind a proxy all API
/// servers are one peer. Together with the operator's other servers, this leaves more than a third of the usual 1,024
/// file descriptors.
const LIMITS: ServerLimits = ServerLimits::new(512, 384);

/// Limits of request bodies. Nearly all are small; the largest have a new and an old object of the size limit of the
/// API server.
const REVIEWS: BodyLimits = BodyLimits { largest: 8 * 1024 * 1024, small: 128 * 1024, large_at_once: 8 };

/// Time that the server keeps answering after `stop`, until API servers no longer send requests to this replica.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Handler of admission requests. Requests are independent of each other.
pub(crate) trait WebhookHandler: Send + Sync + 'static {
    /// Checks an object of this operator.
    fn validate(&self, request: &ReviewRequest<'_>) -> impl Future<Output = AdmissionResponse> + Send;

    /// Adds defaults to an object of this operator.
    fn mutate(&self, request: &ReviewRequest<'_>) -> AdmissionResponse;

    /// Adds resources to a pod.
    fn pod(&self, request: ReviewRequest<'_>) -> impl Future<Output = AdmissionResponse> + Send;
}

/// Serves at `listener` until [`DRAIN_TIME`] after `stop`: a closed port would refuse writes of API servers that still
/// send requests.
pub(crate) async fn serve(
    context: &Context,
    listener: TcpListener,
    handler: Arc<impl WebhookHandler>,
    certificate: CertificateResolver,
    stop: &CancellationToken,
) -> Result<(), OperatorError> {
    let acceptor =
        build_acceptor(certificate.clone(), context.config.webhook.only_tls13).map_err(OperatorError::Tls)?;
    let router = router(handler, Arc::clone(&context.metrics), stop.clone());
    let stop = stop.clone();
    let end = async move {
        stop.cancelled().await;
        // Without a certificate no request was ever served.
        if certificate.is_loaded() {
            sleep_until(Instant::now() + DRAIN_TIME).await;
        }
    };
    Server::new("webhooks", router, LIMITS).with_tls(acceptor).serve(listener, end).await;
    Ok(())
}

/// State of the webhook server.
struct WebhookService<H> {
    handler: Arc<H>,
    metrics: Arc<Metrics>,
    bodies: BodyReader,
    stop: CancellationToken,
}

impl<H> Clone for WebhookService<H> {
    fn clone(&self) -> Self {
        Self {
            handler: Arc::clone(&self.handler),
            metrics: Arc::clone(&self.metrics),
            bodies: self.bodies.clone(),
            stop: self.stop.clone(),
        }
    }
}

/// Webhook that is called.
#[derive(Clone, Copy, Debug)]
enum Webhook {
    Validate,
    Mutate,
    Pod,
}

impl Webhook {
    fn name(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::Mutate => "mutate",
            Self::Pod => "pod",
        }
    }

    /// Returns the time limit of a request. The timeout of the API server is a little longer, so that it gets the
    /// reason.
    fn time_limit(self) -> Duration {
        match self {
            Self::Validate => Duration::from_millis(4500),
            Self::Mutate | Self::Pod => Duration::from_millis(2500),
        }
    }
}

fn router<H: WebhookHandler>(handler: Arc<H>, metrics: Arc<Metrics>, stop: CancellationToken) -> Router {
    let route = |webhook| {
        post(async move |State(service): State<WebhookService<H>>, request: Request| {
            service.respond(webhook, request).await
        })
    };
    let is_stopping = stop.clone();
    let ready = async move || {
        if is_stopping.is_cancelled() {
            (StatusCode::SERVICE_UNAVAILABLE, "the operator is shutting down")
        } else {
            (StatusCode::OK, "ok")
        }
    };
    Router::new()
        .route(VALIDATE, route(Webhook::Validate))
        .route(MUTATE, route(Webhook::Mutate))
        .route(PODS, route(Webhook::Pod))
        .route("/readyz", get(ready))
        .with_state(WebhookService::new(handler, metrics, stop))
}

impl<H: WebhookHandler> WebhookService<H> {
    fn new(handler: Arc<H>, metrics: Arc<Metrics>, stop: CancellationToken) -> Self {
        Self { handler, metrics, bodies: BodyReader::new(REVIEWS), stop }
    }

    async fn respond(&self, webhook: Webhook, request: Request) -> Response {
        let in_time = timeout(webhook.time_limit(), self.read(webhook, request)).await;
        let is_late = in_time.is_err();
        let mut response = in_time.unwrap_or_else(|_| {
            self.metrics.count_admission_request(webhook.name(), "", "failed");
            (StatusCode::REQUEST_TIMEOUT, "the request was not received or not checked in time: try again")
                .into_response()
        });
        if is_late || self.stop.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn read(&self, webhook: Webhook, request: Request) -> Response {
        let is_json = is_json(request.headers());
        let (body, _permit) = match self.bodies.read(request.into_body()).await {
            Ok(body) => body,
            Err(error) => return body_error_response(error),
        };
        if is_json {
            self.handle_in_task(webhook, body).await
        } else {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "an AdmissionReview must have content type application/json")
                .into_response()
        }
    }

    /// Handles the request in its own task, so that a panic in a rule ends only this request.
    async fn handle_in_task(&self, webhook: Webhook, body: Bytes) -> Response {
        let service = self.clone();
        let start = Instant::now();
        let task = tokio::spawn(async move { service.handle(webhook, &body).await });
        // The task is aborted when the client disconnects.
        let result = AbortOnDropHandle::new(task).await;
        self.metrics.observe_admission(start.elapsed());
        result.unwrap_or_else(|error| {
            tracing::error!(webhook = webhook.name(), %error, "admission request failed");
            self.metrics.count_admission_request(webhook.name(), "", "failed");
            (StatusCode::INTERNAL_SERVER_ERROR, "the operator failed to check the object: see its log")
                .into_response()
        })
    }

    async fn handle(&self, webhook: Webhook, body: &[u8]) -> Response {
        let failed = |code: StatusCode, text: String| {
            self.metrics.count_admission_request(webhook.name(), "", "failed");
            (code, text).into_response()
        };
        let review = match Review::read(body) {
            Ok(review) => review,
            Err(error) => {
                tracing::debug!(webhook = webhook.name(), %error, "invalid admission request");
                return failed(StatusCode::BAD_REQUEST, error.to_string());
            }
        };
        let request = review.request();
        let response = match webhook {
            Webhook::Validate => self.handler.validate(&request).await,
            Webhook::Mutate => self.handler.mutate(&request),
            Webhook::Pod => self.handler.pod(request).await,
        };
        tracing::debug!(
            webhook = webhook.name(),
            kind = request.kind,
            namespace = request.namespace,
            name = request.name,
            result = response.result(),
            "admission request answered"
        );
        match reply(request.uid, &response) {
            Ok(text) => {
                self.metrics.count_admission_request(webhook.name(), request.kind, response.result());
                ([(header::CONTENT_TYPE, "application/json")], text).into_response()
            }
            Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

fn body_error_response(error: BodyError) -> Response {
    let response = match error {
        BodyError::TooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "the request is larger than any that the API server sends")
        }
        BodyError::Incomplete => (StatusCode::BAD_REQUEST, "the request is incomplete"),
    };
    response.into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests;

//! The server that the API server asks. Anybody in the cluster can reach it, so nobody can have more of it than others
//! can spare.

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
use vfleet_cluster::server::{BodyError, BodyLimits, BodyReader, Limits, Server};

use super::review::{Answer, Review, ReviewRequest, reply};
use super::tls::{Resolver, acceptor};
use crate::OperatorError;
use crate::replica::context::Context;
use crate::replica::metrics::Metrics;

/// Where our own objects are judged.
pub(crate) const VALIDATE: &str = "/validating-custom-resource";
/// Where they are added to.
pub(crate) const MUTATE: &str = "/mutating-custom-resource";
/// Where pods are added to.
pub(crate) const PODS: &str = "/mutate";

/// One API server has at most 200 writes in progress by default, and behind a proxy all of them are one peer. Together with
/// the other servers of the operator, that leaves more than a third of the 1,024 files that a process may usually open.
const LIMITS: Limits = Limits::new(512, 384);

/// Limits of questions. Nearly all are small; a large one has an object and the one before, each of them as large as the API
/// server stores them, as text.
const REVIEWS: BodyLimits = BodyLimits { largest: 8 * 1024 * 1024, small: 128 * 1024, large_at_once: 8 };

/// API servers learn only after a while that this replica is none to ask any more.
const TIME_TO_BE_FORGOTTEN: Duration = Duration::from_secs(10);

/// Who knows the answers. Each question is answered by itself: nothing of one is kept for another.
pub(crate) trait Answers: Send + Sync + 'static {
    /// Whether one of our objects may be written.
    fn validate(&self, request: &ReviewRequest<'_>) -> impl Future<Output = Answer> + Send;

    /// What is added to one of our objects.
    fn mutate(&self, request: &ReviewRequest<'_>) -> Answer;

    /// What is added to a pod.
    fn pod(&self, request: ReviewRequest<'_>) -> impl Future<Output = Answer> + Send;
}

/// Answers at `listener` until a while after `stop`: an API server that still asks must not meet a closed door, which
/// would refuse somebody's write.
pub(crate) async fn serve(
    context: &Context,
    listener: TcpListener,
    answers: Arc<impl Answers>,
    certificate: Resolver,
    stop: &CancellationToken,
) -> Result<(), OperatorError> {
    let acceptor =
        acceptor(certificate.clone(), context.config.webhook.only_tls13).map_err(OperatorError::Tls)?;
    let router = router(answers, Arc::clone(&context.metrics), stop.clone());
    let stop = stop.clone();
    let over = async move {
        stop.cancelled().await;
        // Without a certificate nobody was ever answered here.
        if certificate.is_loaded() {
            sleep_until(Instant::now() + TIME_TO_BE_FORGOTTEN).await;
        }
    };
    Server::new("webhooks", router, LIMITS).with_tls(acceptor).serve(listener, over).await;
    Ok(())
}

struct Served<A> {
    answers: Arc<A>,
    metrics: Arc<Metrics>,
    bodies: BodyReader,
    stop: CancellationToken,
}

impl<A> Clone for Served<A> {
    fn clone(&self) -> Self {
        Self {
            answers: Arc::clone(&self.answers),
            metrics: Arc::clone(&self.metrics),
            bodies: self.bodies.clone(),
            stop: self.stop.clone(),
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
enum Question {
    Validate,
    Mutate,
    Pod,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::Mutate => "mutate",
            Self::Pod => "pod",
        }
    }

    /// From the first word of the question to the answer. The API server waits a little longer, so that it is told why
    /// there is none.
    fn time_to_answer(self) -> Duration {
        match self {
            Self::Validate => Duration::from_millis(4500),
            Self::Mutate | Self::Pod => Duration::from_millis(2500),
        }
    }
}

fn router<A: Answers>(answers: Arc<A>, metrics: Arc<Metrics>, stop: CancellationToken) -> Router {
    let at = |question| {
        post(async move |State(served): State<Served<A>>, request: Request| {
            served.respond(question, request).await
        })
    };
    let is_stopping = stop.clone();
    let ready = async move || {
        if is_stopping.is_cancelled() {
            (StatusCode::SERVICE_UNAVAILABLE, "the operator stops")
        } else {
            (StatusCode::OK, "ok")
        }
    };
    Router::new()
        .route(VALIDATE, at(Question::Validate))
        .route(MUTATE, at(Question::Mutate))
        .route(PODS, at(Question::Pod))
        .route("/readyz", get(ready))
        .with_state(Served::new(answers, metrics, stop))
}

impl<A: Answers> Served<A> {
    fn new(answers: Arc<A>, metrics: Arc<Metrics>, stop: CancellationToken) -> Self {
        Self { answers, metrics, bodies: BodyReader::new(REVIEWS), stop }
    }

    async fn respond(&self, question: Question, request: Request) -> Response {
        let in_time = timeout(question.time_to_answer(), self.read(question, request)).await;
        let is_late = in_time.is_err();
        let mut response = in_time.unwrap_or_else(|_| {
            self.metrics.asked(question.name(), "", "failed");
            (StatusCode::REQUEST_TIMEOUT, "it was not sent, or not judged, in time: try again")
                .into_response()
        });
        if is_late || self.stop.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn read(&self, question: Question, request: Request) -> Response {
        let is_json = is_json(request.headers());
        let (body, _permit) = match self.bodies.read(request.into_body()).await {
            Ok(body) => body,
            Err(error) => return refuse(error),
        };
        if is_json {
            self.answer(question, body).await
        } else {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "an AdmissionReview comes as application/json")
                .into_response()
        }
    }

    /// In a task of its own: a fault in a rule ends that one answer, and nothing else.
    async fn answer(&self, question: Question, body: Bytes) -> Response {
        let served = self.clone();
        let start = Instant::now();
        let answer = tokio::spawn(async move { served.read_and_answer(question, &body).await });
        // Nobody waits for it any more when this is dropped.
        let answered = AbortOnDropHandle::new(answer).await;
        self.metrics.admission_took(start.elapsed());
        answered.unwrap_or_else(|error| {
            tracing::error!(question = question.name(), %error, "a question of admission was not answered");
            self.metrics.asked(question.name(), "", "failed");
            (StatusCode::INTERNAL_SERVER_ERROR, "the operator failed to judge it: see its log")
                .into_response()
        })
    }

    async fn read_and_answer(&self, question: Question, body: &[u8]) -> Response {
        let failed = |code: StatusCode, text: String| {
            self.metrics.asked(question.name(), "", "failed");
            (code, text).into_response()
        };
        let review = match Review::read(body) {
            Ok(review) => review,
            Err(error) => {
                tracing::debug!(question = question.name(), %error, "not a question of admission");
                return failed(StatusCode::BAD_REQUEST, error.to_string());
            }
        };
        let request = review.request();
        let answer = match question {
            Question::Validate => self.answers.validate(&request).await,
            Question::Mutate => self.answers.mutate(&request),
            Question::Pod => self.answers.pod(request).await,
        };
        tracing::debug!(
            question = question.name(),
            kind = request.kind,
            namespace = request.namespace,
            name = request.name,
            verdict = answer.verdict(),
            "asked"
        );
        match reply(request.uid, &answer) {
            Ok(text) => {
                self.metrics.asked(question.name(), request.kind, answer.verdict());
                ([(header::CONTENT_TYPE, "application/json")], text).into_response()
            }
            Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

fn refuse(error: BodyError) -> Response {
    let refusal = match error {
        BodyError::TooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "it is larger than anything the API server stores")
        }
        BodyError::Incomplete => (StatusCode::BAD_REQUEST, "it was not sent to its end"),
    };
    refusal.into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests;

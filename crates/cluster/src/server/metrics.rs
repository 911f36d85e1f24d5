//! Metrics endpoint for Prometheus.

use std::fmt;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;

/// Content type of the text that `prometheus-client` encodes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns a router that serves the result of `encode` at `/metrics`.
pub fn metrics_route(
    encode: impl Fn() -> Result<String, fmt::Error> + Clone + Send + Sync + 'static,
) -> Router {
    let answer = async move || match encode() {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, OPEN_METRICS)], text),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], error.to_string())
        }
    };
    Router::new().route("/metrics", get(answer))
}

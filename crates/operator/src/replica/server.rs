//! Metrics, and probes for the kubelet.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use vfleet_cluster::server::{BindAddress, Limits, Server, metrics_route};

use crate::OperatorError;
use crate::replica::context::Context;

/// Serves both until `stop`.
pub(crate) async fn start(context: &Context, stop: &CancellationToken) -> Result<(), OperatorError> {
    let metrics = Arc::clone(&context.metrics);
    let metrics = metrics_route(move || metrics.text());
    serve("metrics", context.config.metrics, metrics, stop).await?;
    serve("probes", context.config.health, probes(context), stop).await
}

async fn serve(
    what: &'static str,
    at: BindAddress,
    router: Router,
    stop: &CancellationToken,
) -> Result<(), OperatorError> {
    let listener = at.listen().await.map_err(|source| OperatorError::Bind { what, source })?;
    let Some(listener) = listener else { return Ok(()) };
    if let Ok(address) = listener.local_addr() {
        tracing::info!(what, %address, "serving");
    }
    let server = Server::new(what, router, Limits::FEW_CLIENTS);
    tokio::spawn(server.serve(listener, stop.clone().cancelled_owned()));
    Ok(())
}

fn probes(context: &Context) -> Router {
    let health = Arc::clone(&context.health);
    let ready = async move || match health.ready() {
        Ok(()) => (StatusCode::OK, "ok"),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    };
    Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(ready))
}

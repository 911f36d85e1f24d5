//! Servers of metrics and of the probes of the kubelet.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use vfleet_cluster::server::{BindAddress, Server, ServerLimits, metrics_route};

use crate::OperatorError;
use crate::replica::context::Context;

/// Starts both servers, which run until `stop`.
pub(crate) async fn start(context: &Context, stop: &CancellationToken) -> Result<(), OperatorError> {
    let metrics = Arc::clone(&context.metrics);
    let metrics = metrics_route(move || metrics.encode());
    serve("metrics", context.config.metrics, metrics, stop).await?;
    serve("probes", context.config.health, build_probes(context), stop).await
}

async fn serve(
    what: &'static str,
    address: BindAddress,
    router: Router,
    stop: &CancellationToken,
) -> Result<(), OperatorError> {
    let listener = address.listen().await.map_err(|source| OperatorError::Bind { what, source })?;
    let Some(listener) = listener else { return Ok(()) };
    if let Ok(address) = listener.local_addr() {
        tracing::info!(server = what, %address, "listening");
    }
    let server = Server::new(what, router, ServerLimits::FEW_CLIENTS);
    tokio::spawn(server.serve(listener, stop.clone().cancelled_owned()));
    Ok(())
}

fn build_probes(context: &Context) -> Router {
    let health = Arc::clone(&context.health);
    let ready = async move || match health.check_ready() {
        Ok(()) => (StatusCode::OK, "ok"),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
    };
    Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(ready))
}

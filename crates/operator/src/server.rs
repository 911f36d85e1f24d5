//! The small HTTP servers: metrics, and probes for the kubelet.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::OperatorError;
use crate::context::Context;

/// Where to serve: `:8080` is every address of the machine, `127.0.0.1:8080` one of them, `0` nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress(Option<Place>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Everywhere(u16),
    At(SocketAddr),
}

/// Not a place to serve at.
#[derive(Debug, Error)]
#[error("{0:?} is neither `:PORT`, nor `ADDRESS:PORT`, nor `0` for nowhere")]
pub struct BadAddress(String);

impl FromStr for BindAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadAddress(text.to_owned());
        Ok(Self(match text.strip_prefix(':') {
            Some(port) => Some(Place::Everywhere(port.parse().map_err(|_| bad())?)),
            None if text == "0" => None,
            None => Some(Place::At(text.parse().map_err(|_| bad())?)),
        }))
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("0"),
            Some(Place::Everywhere(port)) => write!(f, ":{port}"),
            Some(Place::At(address)) => address.fmt(f),
        }
    }
}

impl BindAddress {
    /// Whether nothing is served.
    pub fn is_nowhere(self) -> bool {
        self.0.is_none()
    }

    /// A socket that listens there; `None` for nowhere.
    pub async fn listen(self) -> Result<Option<TcpListener>, BindError> {
        match self.0 {
            None => Ok(None),
            Some(place) => bind(place).await.map(Some),
        }
    }
}

/// Nothing can be served there.
#[derive(Debug, Error)]
#[error("cannot listen at {address}")]
pub struct BindError {
    address: SocketAddr,
    source: std::io::Error,
}

/// Starts what is to be served, until `stop`.
pub(crate) async fn start(context: &Context, stop: &CancellationToken) -> Result<(), OperatorError> {
    serve("metrics", context.config.metrics, metrics(context), stop).await?;
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
    let stop = stop.clone();
    tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(what, %error, "serving ended");
        }
    });
    Ok(())
}

/// Every address means IPv6 and IPv4, where the machine has both.
async fn bind(place: Place) -> Result<TcpListener, BindError> {
    let address = match place {
        Place::At(address) => address,
        Place::Everywhere(port) => {
            if let Ok(listener) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
                return Ok(listener);
            }
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))
        }
    };
    TcpListener::bind(address).await.map_err(|source| BindError { address, source })
}

fn metrics(context: &Context) -> Router {
    const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let metrics = Arc::clone(&context.metrics);
    Router::new().route(
        "/metrics",
        get(async move || match metrics.text() {
            Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, TEXT)], text),
            Err(error) => {
                (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], error.to_string())
            }
        }),
    )
}

fn probes(context: &Context) -> Router {
    let health = Arc::clone(&context.health);
    let ready = async move || match health.ready() {
        Ok(()) => (StatusCode::OK, "ok"),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    };
    Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(ready))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [":8080", "0", "127.0.0.1:0", "[::1]:8081"] {
            assert_eq!(text.parse::<BindAddress>().unwrap().to_string(), text);
        }
        for text in ["", "8080", ":x", ":99999", "localhost:1", "off"] {
            assert!(text.parse::<BindAddress>().is_err(), "{text:?}");
        }
    }
}

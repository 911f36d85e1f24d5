//! Port of the metrics server. Another program may use it, often the Go metrics exporter of an earlier operator, which
//! is removed some time after the agent was started. The agent works without metrics meanwhile.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vfleet_api::conditions::{ConditionUpdate, METRICS};
use vfleet_cluster::server::{BindAddress, BindError};
use vfleet_host::format_error_chain;

use super::{Metrics, serve};
use crate::{Config, ProcessConditions};

/// First pause before another attempt to bind the port; it doubles each time up to [`LAST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_mins(1);

/// Serves `/metrics` and `/healthz` on `address` until `stop`. Sets a condition of the node state while the port cannot
/// be bound.
pub fn serve_at(
    address: BindAddress,
    config: &Config,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let (metrics, conditions) = (Arc::clone(&config.metrics), config.process_conditions.clone());
    serve_when_free(address, metrics, conditions, stop)
}

async fn serve_when_free(
    address: BindAddress,
    metrics: Arc<Metrics>,
    conditions: watch::Sender<ProcessConditions>,
    stop: CancellationToken,
) {
    let mut pause = FIRST_RETRY;
    let listener = loop {
        match address.listen().await {
            Ok(None) => return,
            Ok(Some(listener)) => break listener,
            Err(error) => note_failure(&error, &conditions),
        }
        if tokio::time::timeout(pause, stop.cancelled()).await.is_ok() {
            return;
        }
        pause = (2 * pause).min(LAST_RETRY);
    };
    if let Ok(address) = listener.local_addr() {
        tracing::info!(server = "metrics", %address, "listening");
    }
    conditions.send_if_modified(|conditions| conditions.remove(METRICS).is_some());
    serve(listener, metrics, stop).await;
}

/// Sets the condition, and logs the failure if it differs from the last one.
fn note_failure(error: &BindError, conditions: &watch::Sender<ProcessConditions>) {
    let kind = error.source().and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
    let reason = if kind == Some(io::ErrorKind::AddrInUse) { "AddressInUse" } else { "AddressNotAvailable" };
    let message = format!(
        "metrics are not served: {}; stop the program that uses the port (after a take-over, the Go metrics exporter), or \
         set METRICS_BIND_ADDRESS in configDaemonEnvVars of the operator config; retrying every minute",
        format_error_chain(error)
    );
    let condition = ConditionUpdate { type_: METRICS, status: false, reason, message };
    let is_new = conditions.send_if_modified(|conditions| {
        let is_new = conditions.get(METRICS) != Some(&condition);
        conditions.insert(METRICS, condition.clone());
        is_new
    });
    if is_new {
        tracing::warn!(reason, "{}", condition.message);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use tokio::net::TcpListener;
    use vfleet_host::SimHost;
    use vfleet_host::sim::Machine;

    use super::*;

    fn get(address: SocketAddr) -> String {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        text
    }

    #[tokio::test]
    async fn a_taken_port_is_a_condition_until_it_is_free() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let host = Arc::new(SimHost::new(&Machine::lab(), "node").unwrap());
        let config = Config::new("node".to_owned(), "home".to_owned(), host);
        let mut conditions = config.process_conditions.subscribe();
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve_at(address.to_string().parse().unwrap(), &config, stop.clone()));

        conditions.changed().await.unwrap();
        let condition = conditions.borrow_and_update()[METRICS].clone();
        assert_eq!((condition.status, condition.reason), (false, "AddressInUse"));
        assert!(condition.message.contains(&address.to_string()), "{}", condition.message);

        drop(taken);
        conditions.changed().await.unwrap();
        assert!(conditions.borrow().is_empty());
        let text = tokio::task::spawn_blocking(move || get(address)).await.unwrap();
        assert!(text.contains("vfleet_agent_ready 0"), "{text}");
        stop.cancel();
        served.await.unwrap();
    }
}

//! The port of the metrics. Another program may have it, often the Go metrics exporter of an earlier operator, which goes
//! some time after the agent came. The agent works without it meanwhile.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vfleet_api::conditions::{METRICS, Verdict};
use vfleet_cluster::server::{BindAddress, BindError};
use vfleet_host::with_causes;

use super::{Metrics, serve};
use crate::{Config, Standing};

/// Nobody tells when a port is free: it is tried again after so long, and then after twice as long each time...
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// ...up to this.
const LAST_RETRY: Duration = Duration::from_mins(1);

/// Serves `/metrics` and `/healthz` at `address` until `stop`. While that is not possible, a condition of the node state
/// says so.
pub fn serve_at(
    address: BindAddress,
    config: &Config,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let (metrics, standing) = (Arc::clone(&config.metrics), config.standing.clone());
    serve_when_free(address, metrics, standing, stop)
}

async fn serve_when_free(
    address: BindAddress,
    metrics: Arc<Metrics>,
    standing: watch::Sender<Standing>,
    stop: CancellationToken,
) {
    let mut wait = FIRST_RETRY;
    let listener = loop {
        match address.listen().await {
            Ok(None) => return,
            Ok(Some(listener)) => break listener,
            Err(error) => note_failure(&error, &standing),
        }
        if tokio::time::timeout(wait, stop.cancelled()).await.is_ok() {
            return;
        }
        wait = (2 * wait).min(LAST_RETRY);
    };
    tracing::info!(address = ?listener.local_addr(), "serving metrics");
    standing.send_if_modified(|standing| standing.remove(METRICS).is_some());
    serve(listener, metrics, stop).await;
}

/// Sets the condition, and logs the failure when it is another one than before.
fn note_failure(error: &BindError, standing: &watch::Sender<Standing>) {
    let kind = error.source().and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
    let reason = if kind == Some(io::ErrorKind::AddrInUse) { "AddressInUse" } else { "AddressNotAvailable" };
    let message = format!(
        "metrics are not served: {}; stop the program that has the port (the Go metrics exporter, after a take-over), or \
         set METRICS_BIND_ADDRESS in configDaemonEnvVars of the operator config. The port is tried again every minute",
        with_causes(error)
    );
    let verdict = Verdict { type_: METRICS, holds: false, reason, message };
    let is_new = standing.send_if_modified(|standing| {
        let is_new = standing.get(METRICS) != Some(&verdict);
        standing.insert(METRICS, verdict.clone());
        is_new
    });
    if is_new {
        tracing::warn!(reason, "{}", verdict.message);
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
        let mut standing = config.standing.subscribe();
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve_at(address.to_string().parse().unwrap(), &config, stop.clone()));

        standing.changed().await.unwrap();
        let condition = standing.borrow_and_update()[METRICS].clone();
        assert_eq!((condition.holds, condition.reason), (false, "AddressInUse"));
        assert!(condition.message.contains(&address.to_string()), "{}", condition.message);

        drop(taken);
        standing.changed().await.unwrap();
        assert!(standing.borrow().is_empty());
        let text = tokio::task::spawn_blocking(move || get(address)).await.unwrap();
        assert!(text.contains("vfleet_agent_ready 0"), "{text}");
        stop.cancel();
        served.await.unwrap();
    }
}

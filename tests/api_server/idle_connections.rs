//! Idle connections of a client to all ports do not affect other clients.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use vfleet_tests::admission::{AdmissionCluster, WriteLoad};
use vfleet_tests::cluster::machine;
use vfleet_tests::plane::Plane;
use vfleet_tests::ports::reserve_ports;

/// Number of connections, more than the default limit of open files of a process.
const HELD: usize = 1100;

/// Timeout of a probe. A kubelet waits three times one second, and the machine may be busy.
const PROBE_TIME: Duration = Duration::from_secs(3);

/// Holder of open connections.
struct Holder(Child);

impl Holder {
    /// Starts to open connections from the source address `from`.
    fn start(port: u16, from: &str, trust: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hold_connections"));
        command.arg(format!("127.0.0.1:{port}")).args(["--count", &HELD.to_string(), "--from", from]);
        command.args(trust.iter().flat_map(|file| ["--trust", file]));
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until all connections are open.
    fn wait(&mut self) {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("{HELD} connections are open\n"));
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the status line of the response to a request over a new connection, as kubelet and Prometheus use it.
async fn get(port: u16, path: &str) -> Result<String, String> {
    let response = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer.lines().next().unwrap_or_default().to_owned())
    };
    match timeout(PROBE_TIME, response).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no response within {PROBE_TIME:?}")),
    }
}

/// Waits until `path` is served successfully.
async fn wait_for(port: u16, path: &str) {
    let start = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(25));
    while get(port, path).await.as_deref() != Ok("HTTP/1.1 200 OK") {
        assert!(start.elapsed() < Duration::from_mins(1), "timed out waiting for {path} at port {port}");
        ticks.tick().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_on_any_port_do_not_block_other_clients() {
    let admission = AdmissionCluster::new("idle", Plane::Admission).await;
    let [health, agent_metrics] = reserve_ports().unwrap();
    let operator = admission.start_replica_with_probes("operator", health);
    operator.program.limit_open_files();
    let file = admission.cluster.write_file("machine.yaml", &machine());
    let address = format!("127.0.0.1:{agent_metrics}");
    let agent = admission
        .cluster
        .start_agent_with("idle-1", &["--sim", &file, "--metrics-bind-address", &address], &[])
        .await;
    agent.limit_open_files();
    admission.enable().await;
    wait_for(health, "/readyz").await;
    wait_for(agent_metrics, "/healthz").await;
    let trust = admission.cluster.write_file("trust.pem", &admission.trusted_bundle().await);
    let client = admission.direct_client(&operator).await;
    let first = WriteLoad::start(&admission);
    while operator.count_requests("validate") == 0 {
        first.wait_for_more(10).await;
    }
    let mut first = Some(first);

    // From another address than the API server, which then never loses a connection, and from the same address.
    for from in ["127.0.0.2", "127.0.0.1"] {
        let ports = [operator.metrics, health, agent_metrics];
        let mut holders: Vec<_> = ports.map(|port| Holder::start(port, from, None)).into();
        holders.push(Holder::start(operator.port, from, Some(&trust)));
        let waiting = tokio::task::spawn_blocking(move || {
            holders.iter_mut().for_each(Holder::wait);
            holders
        });
        let _holders = waiting.await.unwrap();
        for _ in 0..5 {
            for (port, path) in [
                (health, "/healthz"),
                (health, "/readyz"),
                (operator.metrics, "/metrics"),
                (agent_metrics, "/metrics"),
                (agent_metrics, "/healthz"),
            ] {
                let answer = get(port, path).await;
                assert_eq!(
                    answer.as_deref(),
                    Ok("HTTP/1.1 200 OK"),
                    "{path} while {HELD} connections from {from} are held\n{}",
                    admission.cluster.log()
                );
            }
            let answer = timeout(PROBE_TIME, client.request_admission()).await;
            answer.expect("admission responds in time").expect("admission responds");
        }
        let load = first.take().unwrap_or_else(|| WriteLoad::start(&admission));
        load.wait_for_more(50).await;
        let (writes, failed) = load.end().await;
        assert!(failed.is_empty(), "{} of {writes}: {failed:?}\n{}", failed.len(), admission.cluster.log());
        let (files, limit) = (operator.program.count_open_files(), 1024 * 3 / 4);
        assert!(files < limit, "the operator has {files} open files");
        let files = agent.count_open_files();
        assert!(files < 128, "the agent has {files} open files");
    }
}

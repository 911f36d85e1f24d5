//! Somebody opens connections to all ports and leaves them open, and everybody else is answered as before.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use vfleet_tests::cluster::machine;
use vfleet_tests::door::{Door, Load};
use vfleet_tests::plane::Plane;
use vfleet_tests::ports::own_ports;

/// More than a process may have open by default.
const HELD: usize = 1100;

/// A kubelet waits for one second, three times; the machine that runs the tests may be busy.
const PROBE_TIME: Duration = Duration::from_secs(3);

/// Connections that are open as long as this exists.
struct Holder(Child);

impl Holder {
    /// Starts to open connections, which come from `from`.
    fn start(port: u16, from: &str, trust: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hold_connections"));
        command.arg(format!("127.0.0.1:{port}")).args(["--count", &HELD.to_string(), "--from", from]);
        command.args(trust.iter().flat_map(|file| ["--trust", file]));
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until all of them are open.
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

/// Returns the status line of the answer to a request over a new connection, as a kubelet or Prometheus makes it.
async fn get(port: u16, path: &str) -> Result<String, String> {
    let answered = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer.lines().next().unwrap_or_default().to_owned())
    };
    match timeout(PROBE_TIME, answered).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer in {PROBE_TIME:?}")),
    }
}

/// Waits until `path` is answered well.
async fn wait_for(port: u16, path: &str) {
    let start = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(25));
    while get(port, path).await.as_deref() != Ok("HTTP/1.1 200 OK") {
        assert!(start.elapsed() < Duration::from_mins(1), "{path} at {port} is never answered");
        ticks.tick().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_somebody_holds_on_any_port_keep_nobody_from_an_answer() {
    let door = Door::new("idle", Plane::Admission).await;
    let [health, agent_metrics] = own_ports().unwrap();
    let operator = door.replica_with_probes("operator", health);
    operator.program.limit_open_files();
    let file = door.cluster.file("machine.yaml", &machine());
    let at = format!("127.0.0.1:{agent_metrics}");
    let agent =
        door.cluster.agent_with("idle-1", &["--sim", &file, "--metrics-bind-address", &at], &[]).await;
    agent.limit_open_files();
    door.open().await;
    wait_for(health, "/readyz").await;
    wait_for(agent_metrics, "/healthz").await;
    let trust = door.cluster.file("trust.pem", &door.trusted().await);
    let fresh = door.fresh(&operator).await;
    let first = Load::start(&door);
    while operator.asked("validate") == 0 {
        first.more(10).await;
    }
    let mut first = Some(first);

    // From another peer than the API server, which then never loses a connection, and from the same one.
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
                    door.cluster.log()
                );
            }
            let answer = timeout(PROBE_TIME, fresh.ask()).await;
            answer.expect("admission answers in time").expect("admission answers");
        }
        let load = first.take().unwrap_or_else(|| Load::start(&door));
        load.more(50).await;
        let (writes, failed) = load.end().await;
        assert!(failed.is_empty(), "{} of {writes}: {failed:?}\n{}", failed.len(), door.cluster.log());
        let (files, most) = (operator.program.open_files(), 1024 * 3 / 4);
        assert!(files < most, "{files} files of the operator are open");
        let files = agent.open_files();
        assert!(files < 128, "{files} files of the agent are open");
    }
}

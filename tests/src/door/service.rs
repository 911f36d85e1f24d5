//! One address for several servers: what a Service and its endpoints are in a real cluster.

use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// Forwards connections to its servers by turns.
pub struct Service {
    port: u16,
    behind: Arc<Mutex<Behind>>,
}

#[derive(Default)]
struct Behind {
    ports: Vec<u16>,
    turn: usize,
    /// To whom connections were made, one by one.
    made: Vec<u16>,
}

impl Service {
    /// One with no servers yet, until the test ends. It has a thread of its own: tests wait for kubectl, which waits for
    /// the API server, which asks here.
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let behind = Arc::new(Mutex::new(Behind::default()));
        let servers = Arc::clone(&behind);
        std::thread::spawn(move || {
            runtime.block_on(async move {
                while let Ok((client, _)) = listener.accept().await {
                    let servers = Arc::clone(&servers);
                    tokio::spawn(async move { forward(client, &servers).await });
                }
            });
        });
        Self { port, behind }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// One more server.
    pub fn add(&self, port: u16) {
        self.behind.lock().unwrap().ports.push(port);
    }

    /// How many connections were made to it.
    pub fn connections(&self, port: u16) -> usize {
        self.behind.lock().unwrap().made.iter().filter(|other| **other == port).count()
    }

    /// One less. Its connections stay.
    pub fn remove(&self, port: u16) {
        self.behind.lock().unwrap().ports.retain(|other| *other != port);
    }
}

/// To the next server that listens: one that does not yet is no endpoint yet.
async fn forward(mut client: TcpStream, behind: &Mutex<Behind>) {
    let ports = {
        let mut behind = behind.lock().unwrap();
        behind.turn += 1;
        let mut ports = behind.ports.clone();
        let first = behind.turn.checked_rem(ports.len()).unwrap_or(0);
        ports.rotate_left(first);
        ports
    };
    for port in ports {
        if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await {
            behind.lock().unwrap().made.push(port);
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let _ = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
